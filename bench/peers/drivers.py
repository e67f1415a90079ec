"""The limits: the bare drivers that Holdfast's engines stand on, doing the least that keeps a value.

As durable as Holdfast is, one table, no versions, no journal, no expiry.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

SQLITE_DURABILITY: Final = "SQLite, WAL, synchronous=FULL; a commit for each set, or for 128 of them"
ASYNCPG_DURABILITY: Final = "PostgreSQL, fsync=on, synchronous_commit=on; a commit for each set"
CONNECTIONS: Final = 8
"""As many as a store on PostgreSQL holds."""

_PUT: Final = "INSERT INTO limits VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class RawSqlite:
    """The standard library's sqlite3 in a loop."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE limits (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")

    async def set(self, key: str, value: object) -> None:
        """Put a value and commit."""
        self._connection.execute(_PUT, [key, msgspec.json.encode(value).decode()])

    async def set_many(self, keys: list[str], value: object) -> None:
        """Put several values and commit once."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_PUT, [(key, msgspec.json.encode(value).decode()) for key in keys])
        self._connection.execute("COMMIT")

    async def get(self, key: str) -> None:
        """Look a value up."""
        found = self._connection.execute("SELECT value FROM limits WHERE key = ?", [key]).fetchone()
        msgspec.json.decode(found[0] if found else "null")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class RawItems:
    """Items of a table with one index, on the standard library's sqlite3: a commit for each put."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE items (user TEXT, at REAL, score REAL, item TEXT, PRIMARY KEY (user, at)) "
            "WITHOUT ROWID"
        )
        self._connection.execute("CREATE INDEX by_score ON items (score)")

    async def put(self, item: dict[str, object]) -> None:
        """Put an item and commit."""
        self._connection.execute(
            "INSERT INTO items VALUES (?, ?, ?, ?) ON CONFLICT (user, at) DO UPDATE "
            "SET score = excluded.score, item = excluded.item",
            [item["user"], item["at"], item["score"], msgspec.json.encode(item).decode()],
        )

    async def get(self, user: str, at: int) -> object:
        """Look an item up."""
        found = self._connection.execute("SELECT item FROM items WHERE user = ? AND at = ?", [user, at])
        return msgspec.json.decode(found.fetchone()[0])

    async def query(self, user: str, limit: int) -> list[object]:
        """Return the first items of a user."""
        sql = "SELECT item FROM items WHERE user = ? ORDER BY at LIMIT ?"
        return [msgspec.json.decode(item) for (item,) in self._connection.execute(sql, [user, limit])]

    async def query_index(self, score: int, limit: int) -> list[object]:
        """Return the first items with a score."""
        sql = "SELECT item FROM items WHERE score = ? ORDER BY user, at LIMIT ?"
        return [msgspec.json.decode(item) for (item,) in self._connection.execute(sql, [score, limit])]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class RawAsyncpg:
    """asyncpg with connections that are held: each request is one statement on one of them."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._idle: asyncio.Queue[asyncpg.Connection[asyncpg.Record]] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        for _ in range(CONNECTIONS):
            self._idle.put_nowait(await asyncpg.connect(self._dsn))
        connection = await self._idle.get()
        await connection.execute("CREATE TABLE IF NOT EXISTS limits (key TEXT PRIMARY KEY, value TEXT)")
        self._idle.put_nowait(connection)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while not self._idle.empty():
            await self._idle.get_nowait().close()

    async def set(self, key: str, value: object) -> None:
        """Put a value."""
        statement = (
            "INSERT INTO limits VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        connection = await self._idle.get()
        try:
            await connection.execute(statement, key, msgspec.json.encode(value).decode())
        finally:
            self._idle.put_nowait(connection)

    async def get(self, key: str) -> None:
        """Look a value up."""
        connection = await self._idle.get()
        try:
            found = await connection.fetchval("SELECT value FROM limits WHERE key = $1", key)
        finally:
            self._idle.put_nowait(connection)
        msgspec.json.decode(found or "null")
