"""The PostgreSQL engine: rows in a database that several processes share."""

from holdfast.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
