"""The SQLite engine: one file, written by any number of processes of one machine."""

from holdfast.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
