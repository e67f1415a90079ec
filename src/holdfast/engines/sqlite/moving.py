"""Raw reads and loads of a whole SQLite store; see `holdfast.engine.moving`.

Law: a snapshot is one read transaction on a connection and a thread of its own, so it delays nothing else. A
load is one transaction of the writer. Triggers close a store to writes: they bind every process that has the
file open, of any version, and cost nothing while a store is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from holdfast.engine.moving import CHANGED, UNFINISHED, Facts, Mark, Marked, Shelf
from holdfast.engines.sql import layout, shelves
from holdfast.engines.sqlite import load_sql
from holdfast.engines.sqlite.errors import translated
from holdfast.engines.sqlite.load_sql import places
from holdfast.engines.sqlite.setup import connect, revision
from holdfast.errors import Busy, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.engines.sqlite.presence import Presence
    from holdfast.engines.sqlite.writer import Writer
    from holdfast.rows import Namespace

T = TypeVar("T")

_FACTS: Final = "SELECT name, value FROM holdfast_meta"
_FIND: Final = 128
"""The number of marks that one statement looks for."""
_NAMES: Final = (
    "WITH RECURSIVE wanted (name) AS (SELECT min({owner}) FROM {table} UNION ALL "
    "SELECT (SELECT min({owner}) FROM {table} WHERE {owner} > name) FROM wanted WHERE name IS NOT NULL) "
    "SELECT name FROM wanted WHERE name IS NOT NULL"
)
_CLOSING_SECONDS: Final = 30.0
"""How long closing a store waits for a transaction of another process."""


class SqliteSnapshot:
    """See `holdfast.engine.moving.Snapshot`."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor, where: str) -> None:
        self._connection = connection
        self._thread = thread
        self._where = where

    async def facts(self) -> Facts:
        """See `RawSnapshot.facts`."""
        return shelves.facts_of(await self._fetch(_FACTS, ()))

    async def namespaces(self) -> list[Namespace]:
        """See `RawSnapshot.namespaces`."""
        names = ", ".join(shelves.NAMESPACE)
        found = await self._fetch(f"SELECT {names} FROM holdfast_namespaces ORDER BY name", ())
        return [shelves.namespace_of(values) for values in found]

    async def names(self) -> list[str]:
        """See `RawSnapshot.names`."""
        names = {name for (name,) in await self._fetch("SELECT name FROM holdfast_namespaces", ())}
        for shelf, table in shelves.TABLES.items():
            found = await self._fetch(_NAMES.format(owner=table.owner, table=table.table), ())
            names |= {layout.namespace_of(name) if shelf is Shelf.ENTRIES else name for (name,) in found}
        return sorted(names)

    async def count(self) -> int:
        """See `RawSnapshot.count`."""
        tables = {table.table for table in shelves.TABLES.values()}
        return sum([(await self._fetch(f"SELECT count(*) FROM {table}", ()))[0][0] for table in tables])

    async def page(self, namespace: str, shelf: Shelf, *, after: Mark | None, limit: int) -> list[Marked]:
        """See `RawSnapshot.page`."""
        owner = shelves.owner_of(namespace, shelf)
        found = await self._fetch(_page(shelf, after is not None), (owner, *(after or ()), limit))
        return [shelves.held(namespace, shelf, values) for values in found]

    async def find(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> list[Marked]:
        """See `RawSnapshot.find`."""
        owner, found = shelves.owner_of(namespace, shelf), []
        for start in range(0, len(marks), _FIND):
            some = marks[start : start + _FIND]
            values = [value for mark in some for value in mark]
            found += await self._fetch(_find(shelf, len(some)), (*values, owner))
        return [shelves.held(namespace, shelf, values) for values in found]

    async def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        with _our_errors(self._where):
            return await _on(self._thread, _fetch, self._connection, sql, parameters)


@contextlib.asynccontextmanager
async def snapshot(path: Path) -> AsyncIterator[SqliteSnapshot]:
    """Read a file at one instant."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast snapshot")
    try:
        with _our_errors(str(path)):
            connection = await _on(thread, _begun, path)
        try:
            yield SqliteSnapshot(connection, thread, str(path))
        finally:
            await _on(thread, connection.close)
    finally:
        thread.shutdown(wait=False)


class SqliteLoader:
    """See `holdfast.engine.moving.Loader`. The writer has begun a transaction for it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.closed: str | None = None

    async def facts(self) -> Facts:
        """See `RawLoader.facts`."""
        found = shelves.facts_of(await self._writer.run(partial(self._writer.fetch, _FACTS)))
        return msgspec.structs.replace(found, closed=found.closed or self.closed)

    async def put(self, namespace: str, shelf: Shelf, held: Sequence[Marked]) -> None:
        """See `RawLoader.put`."""
        await self._many(*load_sql.put(namespace, shelf, shelves.columns(shelf, held)))

    async def drop(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> None:
        """See `RawLoader.drop`."""
        await self._many(*load_sql.drop(namespace, shelf, marks))

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """See `RawLoader.put_namespaces`."""
        await self._many(*load_sql.put_namespaces(shelves.namespace_columns(namespaces)))

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """See `RawLoader.drop_namespaces`."""
        for sql, rows in load_sql.drop_namespaces(names):
            await self._many(sql, rows)

    async def remember(self, facts: Facts) -> None:
        """See `RawLoader.remember`."""
        rows = shelves.facts_rows(facts)
        await self._many(load_sql.FORGET, [(name,) for name, _ in rows])
        await self._many(
            load_sql.REMEMBER, [row for row in rows if row[1] is not None and row[0] != "closed"]
        )
        for sql in _triggers(facts.closed):
            await self._many(sql, [()])
        self.closed = facts.closed

    async def step_aside(self) -> None:
        """Make the triggers, also those of a closed store, let this transaction pass."""
        self.closed = (await self.facts()).closed
        await self._many(load_sql.FORGET, [("closed",)])
        await self._many(load_sql.REMEMBER, [load_sql.INSIDE])

    async def keep_closed(self) -> None:
        """Make the triggers hold again for all later transactions; the closing ones if it is to be closed."""
        await self._many(load_sql.FORGET, [load_sql.INSIDE[:1]])
        if self.closed is not None:
            await self._many(load_sql.REMEMBER, [("closed", self.closed)])

    async def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            await self._writer.run(partial(self._writer.load, sql, rows))


@contextlib.asynccontextmanager
async def loading(writer: Writer) -> AsyncIterator[SqliteLoader]:
    """Change raw contents in one transaction of the writer."""
    await writer.run(writer.begin_load)
    try:
        loader = SqliteLoader(writer)
        await loader.step_aside()
        yield loader
        await loader.keep_closed()
    except BaseException:
        await asyncio.shield(writer.run(writer.give_up_load))
        raise
    await asyncio.shield(writer.run(writer.end_load))


class SqliteMoves(ABC):
    """The part of the engine that implements `holdfast.engine.moving.Movable`."""

    _path: Path
    _writer: Writer
    _presence: Presence
    _unfinished_too = False

    @abstractmethod
    async def ready(self) -> None:
        """See `Engine.ready`."""

    @abstractmethod
    def forget(self) -> None:
        """Forget every row that was kept in memory: the contents of the file are about to change."""

    def open_unfinished(self) -> None:
        """See `Movable.open_unfinished`."""
        self._unfinished_too = True

    def snapshot(self) -> contextlib.AbstractAsyncContextManager[SqliteSnapshot]:
        """See `Movable.snapshot`."""
        self._presence.look()
        return snapshot(self._path)

    @contextlib.asynccontextmanager
    async def loading(self) -> AsyncIterator[SqliteLoader]:
        """See `Movable.loading`."""
        await self.ready()
        self.forget()
        async with loading(self._writer) as loader:
            yield loader
        if not self._presence.still():
            raise self._presence.loss(wrote=True)

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """See `Movable.close_to_writes`."""
        self._presence.look()
        with _our_errors(str(self._path)):
            await asyncio.to_thread(_close_to_writes, self._path, reason, instead_of)

    def _require_usable(self) -> None:
        """Refuse a file into which a copy is under way, before its lock is taken: the copy needs the lock.

        Raises:
            Unavailable: The copy is not complete.
        """
        if self._unfinished_too or not self._path.exists():
            return
        with contextlib.closing(connect(self._path, patience=5)) as connection:
            if revision(connection) == layout.SCHEMA_REVISION:
                self._require_finished(connection)

    def _require_finished(self, connection: sqlite3.Connection) -> None:
        """Refuse to open a store into which a copy is under way.

        Raises:
            Unavailable: The copy is not complete.
        """
        closed = self._closed(connection)
        if closed is not None and closed.startswith(UNFINISHED):
            raise Unavailable(f"{self._path} can't be used yet: {closed}")

    def _require_open(self, connection: sqlite3.Connection) -> None:
        """Refuse a store that accepts no writes.

        Raises:
            Unavailable: The store is closed.
        """
        closed = self._closed(connection)
        if closed is not None:
            raise Unavailable(f"{self._path} accepts no writes: {closed}")

    def _closed(self, connection: sqlite3.Connection) -> str | None:
        """Return the reason why the store is closed; None if it is open, or was opened to be loaded."""
        if self._unfinished_too:
            return None
        return shelves.facts_of(connection.execute(_FACTS).fetchall()).closed


def closed_in(path: Path) -> str | None:
    """Return the reason why the store in a file is closed; None if it is open."""
    with contextlib.closing(connect(path, patience=5)) as connection:
        return shelves.facts_of(connection.execute(_FACTS).fetchall()).closed


def _begun(path: Path) -> sqlite3.Connection:
    """Open a connection and begin its snapshot."""
    connection = connect(path, patience=5)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_meta").fetchone()  # takes the snapshot
    return connection


def _fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    return connection.execute(sql, parameters).fetchall()


def _close_to_writes(path: Path, reason: str | None, instead_of: str | None) -> None:
    connection = sqlite3.connect(path, timeout=_CLOSING_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if shelves.facts_of(connection.execute(_FACTS).fetchall()).closed != instead_of:
            raise Busy(CHANGED)
        for sql in _triggers(reason):
            connection.execute(sql)
        connection.execute(load_sql.FORGET, ("closed",))
        if reason is not None:
            connection.execute(load_sql.REMEMBER, ("closed", reason))
        connection.execute("COMMIT")
    finally:
        connection.close()


def _triggers(reason: str | None) -> list[str]:
    """Return the statements that replace the triggers of a closed store, or drop them."""
    statements = []
    text = (reason or "").replace("'", "''")
    for table in shelves.CLOSABLE:
        for change in ("INSERT", "UPDATE", "DELETE"):
            name = f"holdfast_closed_{table}_{change.lower()}"
            statements.append(f"DROP TRIGGER IF EXISTS {name}")
            if reason is not None:
                statements.append(
                    f"CREATE TRIGGER {name} BEFORE {change} ON {table} "
                    "WHEN EXISTS (SELECT 1 FROM holdfast_meta WHERE name = 'closed') "
                    f"BEGIN SELECT RAISE(ABORT, '{text}'); END"
                )
    return statements


@cache
def _page(shelf: Shelf, after: bool) -> str:
    table = shelves.TABLES[shelf]
    marks = ", ".join(table.marks)
    later = f" AND ({marks}) > ({places(table.marks)})" if after else ""
    return (
        f"SELECT {marks}, {', '.join(table.columns)} FROM {table.table} WHERE {table.owner} = ?{later} "
        f"ORDER BY {marks} LIMIT ?"
    )


@cache
def _find(shelf: Shelf, length: int) -> str:
    table = shelves.TABLES[shelf]
    wanted = ", ".join([f"({places(table.marks)})"] * length)
    named = [f"wanted_{mark}" for mark in table.marks]
    equal = " AND ".join(f"{mark} = {name}" for mark, name in zip(table.marks, named, strict=True))
    # A join in this order looks each mark up by the whole primary key. IN with two columns would use the
    # owner alone, and read everything that it has.
    return (
        f"WITH wanted ({', '.join(named)}) AS (VALUES {wanted}) "
        f"SELECT {', '.join((*table.marks, *table.columns))} FROM wanted CROSS JOIN {table.table} "
        f"WHERE {table.owner} = ? AND {equal}"
    )


async def _on(thread: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)


@contextlib.contextmanager
def _our_errors(where: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, where) from error
