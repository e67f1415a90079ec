"""Raw reads and loads of a whole SQLite store; see `holdfast.engine.raw`.

A snapshot is one read transaction on a connection and a thread of its own, so it delays nothing else. A load
is one transaction of the writer; the replicas of a cluster run the same statements. Triggers close a store to
writes: they bind every process that has the file open, of any version, and cost nothing while it is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from holdfast import seams
from holdfast.engine.raw import CHANGED, Position, Positioned, Section, StoreInfo
from holdfast.engines.sql import layout, sections
from holdfast.engines.sqlite.errors import translated
from holdfast.engines.sqlite.files import beside
from holdfast.engines.sqlite.setup import connect
from holdfast.engines.sqlite.sharing import Turn
from holdfast.engines.sqlite.sql import ADD_FACT, DROP_FACT, INSIDE
from holdfast.engines.sqlite.writer import Writer
from holdfast.errors import Busy
from holdfast.rows import Namespace

T = TypeVar("T")

Loads: TypeAlias = "tuple[str, list[tuple[Any, ...]]]"
"""A statement that loads raw contents, and the parameters of each of its runs."""

FACTS: Final = "SELECT name, value FROM holdfast_meta"
_FIND: Final = 128
"""The number of positions that one statement looks for."""
_NAMES: Final = (
    "WITH RECURSIVE wanted (name) AS (SELECT min({owner}) FROM {table} UNION ALL "
    "SELECT (SELECT min({owner}) FROM {table} WHERE {owner} > name) FROM wanted WHERE name IS NOT NULL) "
    "SELECT name FROM wanted WHERE name IS NOT NULL"
)
_CLOSING_SECONDS: Final = 30.0
"""How long closing a store waits for a transaction of another process."""


class SqliteSnapshot:
    """See `holdfast.engine.raw.Snapshot`."""

    def __init__(self, connection: sqlite3.Connection, thread: Executor, where: str) -> None:
        self._connection = connection
        self._thread = thread
        self._where = where

    async def facts(self) -> StoreInfo:
        """See `RawSnapshot.facts`."""
        return sections.facts_of(await self._fetch(FACTS, ()))

    async def namespaces(self) -> list[Namespace]:
        """See `RawSnapshot.namespaces`."""
        names = ", ".join(sections.NAMESPACE)
        found = await self._fetch(f"SELECT {names} FROM holdfast_namespaces ORDER BY name", ())
        return [sections.namespace_of(values) for values in found]

    async def names(self) -> list[str]:
        """See `RawSnapshot.names`."""
        names = {name for (name,) in await self._fetch("SELECT name FROM holdfast_namespaces", ())}
        for section, table in sections.TABLES.items():
            found = await self._fetch(_NAMES.format(owner=table.owner, table=table.table), ())
            names |= {layout.namespace_of(name) if section is Section.ENTRIES else name for (name,) in found}
        return sorted(names)

    async def count(self) -> int:
        """See `RawSnapshot.count`."""
        tables = {table.table for table in sections.TABLES.values()}
        return sum([(await self._fetch(f"SELECT count(*) FROM {table}", ()))[0][0] for table in tables])

    async def page(
        self, namespace: str, section: Section, *, after: Position | None, limit: int
    ) -> list[Positioned]:
        """See `RawSnapshot.page`."""
        owner = sections.owner_of(namespace, section)
        found = await self._fetch(_page(section, after is not None), (owner, *(after or ()), limit))
        return [sections.held(namespace, section, values) for values in found]

    async def find(self, namespace: str, section: Section, positions: Sequence[Position]) -> list[Positioned]:
        """See `RawSnapshot.find`."""
        owner, found = sections.owner_of(namespace, section), []
        for start in range(0, len(positions), _FIND):
            some = positions[start : start + _FIND]
            values = [value for position in some for value in position]
            found += await self._fetch(_find(section, len(some)), (*values, owner))
        return [sections.held(namespace, section, values) for values in found]

    async def _fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        with _our_errors(self._where):
            return await _on(self._thread, _fetch, self._connection, sql, parameters)


@contextlib.asynccontextmanager
async def snapshot(path: Path) -> AsyncIterator[SqliteSnapshot]:
    """Read a file at one instant."""
    thread = seams.pool("holdfast snapshot")
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
    """See `holdfast.engine.raw.Loader`. The writer has begun a transaction for it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.closed: str | None = None

    async def facts(self) -> StoreInfo:
        """See `RawLoader.facts`."""
        found = sections.facts_of(await self._writer.run(partial(self._writer.fetch, FACTS)))
        return msgspec.structs.replace(found, closed=found.closed or self.closed)

    async def put(self, namespace: str, section: Section, held: Sequence[Positioned]) -> None:
        """See `RawLoader.put`."""
        await self._many(*put_rows(namespace, section, sections.columns(section, held)))

    async def drop(self, namespace: str, section: Section, positions: Sequence[Position]) -> None:
        """See `RawLoader.drop`."""
        await self._many(*drop_rows(namespace, section, positions))

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """See `RawLoader.put_namespaces`."""
        await self._many(*put_namespaces(sections.namespace_columns(namespaces)))

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """See `RawLoader.drop_namespaces`."""
        for sql, rows in drop_namespaces(names):
            await self._many(sql, rows)

    async def remember(self, facts: StoreInfo) -> None:
        """See `RawLoader.remember`."""
        rows = sections.facts_rows(facts)
        await self._many(DROP_FACT, [(name,) for name, _ in rows])
        await self._many(ADD_FACT, [row for row in rows if row[1] is not None and row[0] != "closed"])
        for sql in _triggers(facts.closed):
            await self._many(sql, [()])
        self.closed = facts.closed

    async def step_aside(self) -> None:
        """Make the triggers, also those of a closed store, let this transaction pass."""
        self.closed = (await self.facts()).closed
        await self._many(DROP_FACT, [("closed",)])
        await self._many(ADD_FACT, [INSIDE])

    async def keep_closed(self) -> None:
        """Make the triggers hold again for all later transactions; the closing ones if it is to be closed."""
        await self._many(DROP_FACT, [INSIDE[:1]])
        if self.closed is not None:
            await self._many(ADD_FACT, [("closed", self.closed)])

    async def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            await self._writer.run(partial(self._writer.load, sql, rows))


@contextlib.asynccontextmanager
async def loading(writer: Writer) -> AsyncIterator[SqliteLoader]:
    """Change raw contents in one transaction of the writer."""
    try:
        await writer.run(writer.begin_load)
        loader = SqliteLoader(writer)
        await loader.step_aside()
        yield loader
        await loader.keep_closed()
    except BaseException:  # if it was cancelled as it began, the thread begins it all the same
        with contextlib.suppress(Busy):  # another process has the turn; the thread ends the load after it
            await asyncio.shield(writer.run(writer.give_up_load))
        raise
    await asyncio.shield(writer.run(writer.end_load))


def closed_in(path: Path) -> str | None:
    """Return the reason why the store in a file is closed; None if it is open."""
    with contextlib.closing(connect(path, patience=5)) as connection:
        return sections.facts_of(connection.execute(FACTS).fetchall()).closed


def _begun(path: Path) -> sqlite3.Connection:
    """Open a connection and begin its snapshot."""
    connection = connect(path, patience=5)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_meta").fetchone()  # takes the snapshot
    return connection


def _fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    return connection.execute(sql, parameters).fetchall()


async def close_to_writes(path: Path, reason: str | None, instead_of: str | None) -> None:
    """See `Movable.close_to_writes`."""
    with _our_errors(str(path)):
        await seams.aside(_close_to_writes, path, reason, instead_of)


def _close_to_writes(path: Path, reason: str | None, instead_of: str | None) -> None:
    turn = Turn(beside(path, ".turn"))
    with (
        turn.within(_CLOSING_SECONDS),
        contextlib.closing(
            sqlite3.connect(path, timeout=_CLOSING_SECONDS, isolation_level=None)
        ) as connection,
    ):
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if sections.facts_of(connection.execute(FACTS).fetchall()).closed != instead_of:
            raise Busy(CHANGED)
        for sql in _triggers(reason):
            connection.execute(sql)
        connection.execute(DROP_FACT, ("closed",))
        if reason is not None:
            connection.execute(ADD_FACT, ("closed", reason))
        connection.execute("COMMIT")


def _triggers(reason: str | None) -> list[str]:
    """Return the statements that replace the triggers of a closed store, or drop them."""
    statements = []
    text = (reason or "").replace("'", "''")
    for table in sections.CLOSABLE:
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


def put_rows(namespace: str, section: Section, columns: Sequence[Sequence[Any]]) -> Loads:
    """Put things in a section, given as `sections.columns` returns them."""
    owner = sections.owner_of(namespace, section)
    return _put(section), [(owner, *values) for values in columns]


def drop_rows(namespace: str, section: Section, positions: Sequence[Position]) -> Loads:
    """Remove what is at these positions."""
    owner = sections.owner_of(namespace, section)
    table = sections.TABLES[section]
    sql = f"DELETE FROM {table.table} WHERE {' AND '.join(f'{one} = ?' for one in table.key)}"
    return sql, [(owner, *position) for position in positions]


def put_namespaces(columns: Sequence[Sequence[Any]]) -> Loads:
    """Put the rows of namespaces, given in the order of `sections.NAMESPACE`."""
    names = sections.NAMESPACE
    sql = f"INSERT OR REPLACE INTO holdfast_namespaces ({', '.join(names)}) VALUES ({places(names)})"
    return sql, [tuple(values) for values in columns]


def drop_namespaces(names: Sequence[str]) -> list[Loads]:
    """Remove namespaces: their rows and everything in their sections."""
    found = [("DELETE FROM holdfast_namespaces WHERE name = ?", [(name,) for name in names])]
    for section, table in sections.TABLES.items():
        owners = [(sections.owner_of(name, section),) for name in names]
        found.append((f"DELETE FROM {table.table} WHERE {table.owner} = ?", owners))
    return found


def places(columns: Sequence[str]) -> str:
    """Return the question positions for as many parameters as there are columns."""
    return ", ".join("?" * len(columns))


@cache
def _put(section: Section) -> str:
    table = sections.TABLES[section]
    columns = (*table.key, *table.columns)
    new = ", ".join(f"{name} = excluded.{name}" for name in table.columns)
    return (
        f"INSERT INTO {table.table} ({', '.join(columns)}) VALUES ({places(columns)}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {new}"
    )


@cache
def _page(section: Section, after: bool) -> str:
    table = sections.TABLES[section]
    positions = ", ".join(table.positions)
    later = f" AND ({positions}) > ({places(table.positions)})" if after else ""
    return (
        f"SELECT {positions}, {', '.join(table.columns)} FROM {table.table} WHERE {table.owner} = ?{later} "
        f"ORDER BY {positions} LIMIT ?"
    )


@cache
def _find(section: Section, length: int) -> str:
    table = sections.TABLES[section]
    wanted = ", ".join([f"({places(table.positions)})"] * length)
    named = [f"wanted_{position}" for position in table.positions]
    equal = " AND ".join(
        f"{position} = {name}" for position, name in zip(table.positions, named, strict=True)
    )
    # A join in this order looks each position up by the whole primary key. IN with two columns would use the
    # owner alone, and read everything that it has.
    return (
        f"WITH wanted ({', '.join(named)}) AS (VALUES {wanted}) "
        f"SELECT {', '.join((*table.positions, *table.columns))} FROM wanted CROSS JOIN {table.table} "
        f"WHERE {table.owner} = ? AND {equal}"
    )


async def _on(thread: Executor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)


@contextlib.contextmanager
def _our_errors(where: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, where) from error
