"""From the fields of a call to a legal command.

Law: callers' commands are made only here, in the same way for every edge.
"""
