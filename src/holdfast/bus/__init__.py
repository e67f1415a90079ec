"""The connection to NATS: its protocol, login, and reconnecting.

Law: this knows NATS and nothing of Holdfast beside its errors.
"""
