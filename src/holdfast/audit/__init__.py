"""The audit: a signed chain of records, the keys that sign it, and how a break in it is found.

Pure except for the key file. `holdfast.decide` decides which changes are recorded.
"""
