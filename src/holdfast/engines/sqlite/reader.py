"""The reading half of the SQLite engine.

Law: a quick read is answered on the event loop. A read that may take long, or that finds the file locked,
runs on the reader's thread. Nothing is written here.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.engine import LATER, Due, JournalPage, JournalQuery, Later, Scan, Scanned, Totals
from holdfast.engines.sql.layout import namespace_of, plugin_column
from holdfast.engines.sqlite import reads
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.engines.sqlite.peeks import Peeks
from holdfast.engines.sqlite.presence import Presence
from holdfast.engines.sqlite.reader_thread import ReaderThread
from holdfast.errors import Unavailable
from holdfast.pace import LOOKS_PER_TURN
from holdfast.rows import KV, PARTS, Address, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

INLINE_ROWS: Final = 128
INLINE_BYTES: Final = 131_072
"""The maximum number of rows, and of bytes of values, to load on the loop. The reader's thread loads more."""


class SqliteReader:
    """The reads of `holdfast.engine.Engine`, over two connections that the engine opens.

    `_inline` is used on the event loop and does not wait for a lock; `_patient` belongs to the reader's
    thread.

    Args:
        path: The database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._where = str(path)
        self._threads = ReaderThread()
        self._presence = Presence(path)
        self._peeks = Peeks(path, self._presence.there)
        self._inline: sqlite3.Connection | None = None
        self._patient: sqlite3.Connection | None = None
        self._looks = 0
        self._epoch = ""

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """See `Engine.glance`: SQLite answers at once, unless the file is locked."""
        if self._inline is None:
            return LATER
        try:
            if len(addresses) == 1:
                row = reads.get(self._inline, addresses[0])
                return [row if row is not None and row.alive(now) else None]
            return reads.get_alive(self._inline, addresses, now)
        except sqlite3.Error:
            return LATER

    def peek(self, address: Address, now: int) -> Row | Later | None:
        """See `Peeker.peek`."""
        if self._inline is None:
            return LATER
        row = self._peeks.get(address)
        return row if row is None or isinstance(row, Later) or row.alive(now) else None

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        if len(addresses) == 1 and addresses[0].space == KV:
            row = await self._look(lambda connection: reads.get(connection, addresses[0]))
            return [row if row is not None and row.alive(now) else None]
        wanted = dict.fromkeys(addresses, True)
        if addresses and addresses[0].space.startswith(PARTS):  # large: the loop has other things to do
            found = await self._aside(reads.load_rows, wanted)
        else:
            found = await self._load_rows(wanted)
        rows = [found.get(address) for address in addresses]
        return [row if row is not None and row.alive(now) else None for row in rows]

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`."""
        # With two bounds on one side, SQLite seeks to the first and reads all rows between them.
        first, stop, after = query.start, query.stop, query.after
        beyond = after is not None and not query.reverse and _later(after, first)
        if after is not None and beyond:
            first = after
        elif after is not None and query.reverse and (stop is None or _later(stop, after)):
            stop = after
        sql = statements.scan(
            query.space, values=query.values, bounded=stop is not None, after=beyond, reverse=query.reverse
        )
        owner = [plugin_column(query.namespace)] if query.space == KV else [query.namespace, query.space]
        bounds = [first] if stop is None else [first, stop]
        walk = reads.scan_rows if query.values else reads.scan_keys
        return await self._aside(walk, sql, [*owner, *bounds, now, query.limit + 1], query)

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """See `Engine.due`."""
        sql = statements.due(space, owned=namespace is not None)
        if space == KV:
            owner = [] if namespace is None else [plugin_column(namespace)]
        else:
            owner = [space] if namespace is None else [namespace, space]
        found = await self._aside(reads.fetch, sql, [now, *owner, limit])
        return [
            Due(namespace=namespace_of(name) if space == KV else name, key=key, expires_at=expires_at)
            for name, key, expires_at in found
        ]

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """See `Engine.falling_due`."""
        found = await self._aside(reads.fetch, statements.FALLING_DUE, [since, until, limit])
        return [
            Due(namespace=namespace_of(name), key=key, expires_at=expires_at)
            for name, key, expires_at in found
        ]

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        return await self._aside(reads.journal, query, self._epoch)

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`."""
        return await self._aside(reads.totals, now, namespace)

    async def owners(self, space: str) -> list[str]:
        """See `Engine.owners`."""
        return sorted(name for (name,) in await self._aside(reads.fetch, statements.OWNERS, [space]))

    @property
    def epoch(self) -> str:
        """The name of this life of the storage."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: str) -> None:
        self._epoch = epoch

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Run a query of another part of the engine, and return all rows that it finds."""
        return await self._aside(reads.fetch, sql, parameters)

    async def remembered(self) -> int:
        """See `Engine.remembered`."""
        return await self._aside(reads.remembered)

    async def _load_rows(
        self, wanted: dict[Address, bool], room: reads.Room | None = None
    ) -> dict[Address, Row]:
        if len(wanted) > INLINE_ROWS:
            return await self._aside(reads.load_rows, wanted, room)
        most = INLINE_BYTES if len(wanted) > 1 else 0
        try:
            return await self._look(lambda file: reads.load_rows(file, wanted, room, most=most))
        except reads.Rest as rest:
            return rest.rows | await self._aside(reads.load_rows, rest.wanted, room)

    async def _look(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a quick query on the loop. If the file is locked, wait for it on the reader's thread."""
        if self._inline is None:
            raise Unavailable(f"{self._where} is not open")
        self._looks += 1
        if self._looks % LOOKS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            return query(self._inline)
        except sqlite3.Error as error:
            if primary_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise translated(error, self._where) from error
        return await self._aside(query)

    async def _aside(self, query: Callable[..., T], *arguments: object) -> T:
        """Run a query that may take long, on the reader's thread."""
        if self._patient is None:
            raise Unavailable(f"{self._where} is not open")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, query, self._patient, *arguments)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error


def _later(one: Any, other: Any) -> bool:
    """Return whether a key is not before another. Within a space, keys are all text or all bytes."""
    return bool(one >= other)
