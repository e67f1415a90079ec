"""The service over a real nats-server: what callers send, what they get, and what is told of it."""
