"""From the fields of a call to a legal command.

Law: the only place where commands of callers are made, for every door alike.
"""
