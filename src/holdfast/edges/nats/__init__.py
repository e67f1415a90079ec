"""The NATS edge: the service, its replies, and the NATS server that it may start."""
