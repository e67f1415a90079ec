"""What operators ask of a store: the audit, dead letters, the trash, copies, and what namespaces hold.

Law: it reads through the engine and writes by commands. Programs on a store never need it.
"""
