"""Operators' tools: the audit, dead letters, the trash, copies, and the contents of namespaces.

Law: this package reads through the engine and writes by commands. Programs that use a store never need it.
"""
