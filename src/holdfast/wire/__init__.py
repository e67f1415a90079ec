"""Messages: conversions between bytes, fields, commands and results.

These are pure functions without I/O. `holdfast.verbs` knows the meaning of a field; this package knows its
spelling.
"""
