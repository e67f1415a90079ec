"""Verbs: they turn the fields of a call into a legal command.

Law: callers' commands are made only here, in the same way for every edge.
"""
