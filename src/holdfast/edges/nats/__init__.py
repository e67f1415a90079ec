"""The NATS edge: the service, what it answers, and the server that it may bring along."""
