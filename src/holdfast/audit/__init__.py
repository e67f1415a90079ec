"""The audit: a signed chain of records, the keys that sign it, and how a break in it is found.

Law: pure but for the file of the keys. Which changes are recorded is decided in `holdfast.decide`.
"""
