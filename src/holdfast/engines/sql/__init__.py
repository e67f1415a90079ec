"""Shared parts of the SQL engines: the schema, its migrations and the ORM model."""
