"""The contents of a replica as one hash, to compare replicas with each other.

Law: two replicas that hold the same rows have the same hash, whatever their files look like. What a node
keeps for itself, its clock and its place in the log, is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engines.sql import shelves
from holdfast.engines.sqlite.setup import connect

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable
    from pathlib import Path

ROWS: Final = 500
"""The number of rows that are read at a time."""
_TABLES: Final = {
    "holdfast_namespaces": (("name",), shelves.NAMESPACE),
    **{table.table: (table.key, (*table.key, *table.columns)) for table in shelves.TABLES.values()},
}


class Contents(msgspec.Struct, frozen=True):
    """The number of rows of a replica, and the hash of all of them."""

    rows: int
    hash: str


async def contents_of(path: Path) -> Awaitable[Contents]:
    """Begin to read a file as it is now. The result, which may take long, is to be awaited."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast contents")
    loop = asyncio.get_running_loop()
    try:
        connection = await loop.run_in_executor(thread, _begun, path)
    except BaseException:
        thread.shutdown(wait=False)
        raise
    found = loop.run_in_executor(thread, _summed, connection)
    thread.shutdown(wait=False)
    return found


def _begun(path: Path) -> sqlite3.Connection:
    connection = connect(path, patience=5)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_meta").fetchone()  # takes the snapshot
    return connection


def _summed(connection: sqlite3.Connection) -> Contents:
    digest, count = hashlib.sha256(), 0
    with contextlib.closing(connection):
        for table, (key, columns) in _TABLES.items():
            digest.update(table.encode())
            found = connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(key)}")
            while rows := found.fetchmany(ROWS):
                count += len(rows)
                for row in rows:
                    digest.update(msgspec.msgpack.encode(row))
    return Contents(count, digest.hexdigest())
