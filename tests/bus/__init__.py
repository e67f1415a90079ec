"""The connection to NATS: its protocol, its logins, and how it is kept."""
