"""The connection to NATS: its protocol, login, and reconnecting.

Law: this package knows NATS and, apart from its errors, nothing of Holdfast.
"""
