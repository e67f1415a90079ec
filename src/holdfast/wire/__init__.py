"""Messages: conversions between bytes, fields, commands and results.

Law: pure functions, no I/O. `holdfast.verbs` knows the meaning of a field; this package knows its spelling.
"""
