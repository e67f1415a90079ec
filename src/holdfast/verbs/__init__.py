"""Verbs: they turn the fields of a call into a legal command.

Callers' commands are made only here and by the declarations of commands, in the same way for every edge.
"""
