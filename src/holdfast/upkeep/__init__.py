"""Time as a caller like any other: what has expired goes, and interrupted work is finished.

Law: this package finds what is to be done and submits commands for it.
"""
