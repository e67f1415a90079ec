"""Time as a caller like any other: what has expired goes, and interrupted work is finished.

Law: what is to be done is found here and asked for by commands.
"""
