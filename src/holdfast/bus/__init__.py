"""The connection to NATS: its protocol, login, and reconnecting.

This package knows NATS and, apart from its errors, nothing of Holdfast.
"""
