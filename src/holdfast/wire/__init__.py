"""Messages: conversions between bytes, fields, commands and results.

Law: pure functions, no I/O. What a field means is known to `holdfast.verbs`; here is how it is spelled.
"""
