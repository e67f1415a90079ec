"""Translation of SQLite's errors to ours, by their codes.

This is the engine's only translator. It never uses an error's text, except that of our own triggers.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from holdfast.errors import Busy, DatabaseError, HoldfastError, StorageFull, Unavailable

LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
"""The codes for a file that others keep locked.

SQLite reports the third one when a transaction could not begin in a hundred attempts, since others changed
the log during each.
"""


class DiskFailed(DatabaseError):
    """The disk could not be read or written to. The file may be as it should, so the caller may try again."""


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code, or 0 for an error that the driver itself raised."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_full(error: sqlite3.Error) -> bool:
    """Return whether the disk has no room, be it for the index of the log, which has a code of its own."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code == sqlite3.SQLITE_IOERR_SHMSIZE or primary_code(error) == sqlite3.SQLITE_FULL


def translated(error: sqlite3.Error, where: str) -> HoldfastError:
    """Return our error for an error of the database at `where` before a commit."""
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return Unavailable(f"{where} accepts no writes: {error}")
    if is_full(error):
        return StorageFull(f"the disk of {where} is full: make room to write again; deleting still works")
    match primary_code(error):
        case code if code in LOCKED:
            return Busy(f"{where} is locked by another program")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return Unavailable(f"{where} can't be opened for this: check its permissions and its folder")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return DatabaseError(
                f"{where} is not a database, or is corrupt: run holdfast doctor --deep, or restore a backup"
            )
        case code:
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            kind = DiskFailed if code == sqlite3.SQLITE_IOERR else DatabaseError
            return kind(f"the database {where} failed ({name})")
