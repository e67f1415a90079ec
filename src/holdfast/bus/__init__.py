"""The connection to NATS: its protocol, login and reconnecting. It knows nothing of stores or keys."""
