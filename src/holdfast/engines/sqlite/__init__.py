"""The SQLite engine: one file, one writer, many readers."""

from holdfast.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
