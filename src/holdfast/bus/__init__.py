"""The connection to NATS: what is said on it, how one logs in, and how it is kept.

Law: this knows NATS and nothing of Holdfast beside its errors.
"""
