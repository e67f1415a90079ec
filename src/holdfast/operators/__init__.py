"""What operators ask of a store: the audit, dead letters, the trash, copies, and what namespaces hold.

Law: this package reads through the engine and writes by commands. Programs that use a store never need it.
"""
