"""Reads of single entries on threads other than the event loop's.

Law: every thread has a connection of its own. A connection that threads shared would keep the snapshot of
whichever of them is reading, so that another could miss its own last write. All of them read the file that
the store has open, whatever is at its path by now.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from typing import TYPE_CHECKING, Final

from holdfast.engine import LATER, Later
from holdfast.engines.sqlite import reads
from holdfast.engines.sqlite.setup import connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.rows import Address, Row

MOST: Final = 16
"""The number of threads with a connection, which takes three file descriptors. Others ask the loop."""


class Own:
    """The connection of one thread, and the lock that keeps it from being closed in the middle of a read."""

    __slots__ = ("__weakref__", "connection", "lock")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: sqlite3.Connection | None = connection
        self.lock: threading.Lock = threading.Lock()

    def close(self) -> None:
        """Close the connection, once no read is under way."""
        with self.lock:
            connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()


class Peeks:
    """The connections of all threads that have read.

    Args:
        path: The file.
        there: Returns whether the file at that path is the one that the store has open.
    """

    def __init__(self, path: Path, there: Callable[[], bool]) -> None:
        self._path = path
        self._there = there
        self._mine = threading.local()
        self._all: weakref.WeakSet[Own] = weakref.WeakSet()
        self._adding = threading.Lock()
        self._closed = False

    def get(self, address: Address) -> Row | Later | None:
        """Load one entry, or return `LATER` if the loop has to be asked."""
        own: Own | None = getattr(self._mine, "own", None)
        if own is None:
            own = self._add()
            if own is None:
                return LATER
        with own.lock:
            if own.connection is None:
                return LATER
            try:
                return reads.get(own.connection, address)
            except sqlite3.Error:
                return LATER

    def close(self) -> None:
        """Close all connections."""
        with self._adding:
            self._closed = True
            known = list(self._all)
        for own in known:
            own.close()

    def _add(self) -> Own | None:
        """Give the current thread a connection, unless too many have one."""
        with self._adding:
            if self._closed or len(self._all) >= MOST or not self._there():
                return None
            try:
                connection = connect(self._path, patience=0)
                own = Own(connection)
                reads.kept_time(connection)  # opens the log as well
            except sqlite3.Error:
                return None
            if not self._there():  # it was replaced meanwhile
                return None
            self._all.add(own)
        self._mine.own = own
        return own
