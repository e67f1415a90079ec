"""Raw reads and loads of a whole PostgreSQL store; see `holdfast.engine.raw`.

A snapshot is one read-only transaction on a connection of its own, and a load is one transaction that
locks the namespaces first. Triggers close a store to writes: they bind every process, of any version, and
cost nothing while a store is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from holdfast.engine.raw import CHANGED, Position, Positioned, Section, StoreInfo
from holdfast.engines.postgres.connections import Connection, Connections
from holdfast.engines.postgres.errors import CLOSED, DRIVER_ERRORS, translate
from holdfast.engines.postgres.sql import answered, stored, type_of
from holdfast.engines.postgres.transaction import commit
from holdfast.engines.sql import layout, sections
from holdfast.errors import Busy
from holdfast.rows import Namespace

_FACTS: Final = "SELECT name, value FROM holdfast_meta"
_REMEMBER: Final = "INSERT INTO holdfast_meta (name, value) VALUES ($1, $2)"
_FORGET: Final = "DELETE FROM holdfast_meta WHERE name = ANY ($1::text[])"
_NAMES: Final = (
    "WITH RECURSIVE found AS ((SELECT {owner} AS name FROM {table} ORDER BY {owner} LIMIT 1) UNION ALL "
    "SELECT following.name FROM found CROSS JOIN LATERAL (SELECT {owner} AS name FROM {table} AS other "
    "WHERE other.{owner} > found.name ORDER BY {owner} LIMIT 1) AS following) SELECT name FROM found"
)
# The transaction may wait for a slow disk or network on the other side of a copy.
_PATIENCE: Final = "SET LOCAL idle_in_transaction_session_timeout = '10min'"


class PostgresSnapshot:
    """See `holdfast.engine.raw.Snapshot`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def facts(self) -> StoreInfo:
        """See `RawSnapshot.facts`."""
        return sections.facts_of(await self._fetch(_FACTS))

    async def namespaces(self) -> list[Namespace]:
        """See `RawSnapshot.namespaces`."""
        columns = ", ".join(answered(name) for name in sections.NAMESPACE)
        found = await self._fetch(f"SELECT {columns} FROM holdfast_namespaces ORDER BY name")
        return [sections.namespace_of(values) for values in found]

    async def names(self) -> list[str]:
        """See `RawSnapshot.names`."""
        names = {name for (name,) in await self._fetch("SELECT name FROM holdfast_namespaces")}
        for section, table in sections.TABLES.items():
            found = await self._fetch(_NAMES.format(owner=table.owner, table=table.table))
            names |= {layout.namespace_of(name) if section is Section.ENTRIES else name for (name,) in found}
        return sorted(names)

    async def count(self) -> int:
        """See `RawSnapshot.count`."""
        tables = {table.table for table in sections.TABLES.values()}
        return sum([(await self._fetch(f"SELECT count(*) FROM {table}"))[0][0] for table in tables])

    async def page(
        self, namespace: str, section: Section, *, after: Position | None, limit: int
    ) -> list[Positioned]:
        """See `RawSnapshot.page`."""
        owner = sections.owner_of(namespace, section)
        found = await self._fetch(_page(section, after is not None), owner, limit, *(after or ()))
        return [sections.held(namespace, section, values) for values in found]

    async def find(self, namespace: str, section: Section, positions: Sequence[Position]) -> list[Positioned]:
        """See `RawSnapshot.find`."""
        if not positions:
            return []
        owner = sections.owner_of(namespace, section)
        found = await self._fetch(_find(section), owner, *map(list, zip(*positions, strict=True)))
        return [sections.held(namespace, section, values) for values in found]

    async def _fetch(self, sql: str, *parameters: Any) -> list[Any]:
        with _our_errors():
            return await self._connection.fetch(sql, *parameters)


@contextlib.asynccontextmanager
async def snapshot(connections: Connections) -> AsyncIterator[PostgresSnapshot]:
    """Read a database at one instant."""
    async with connections.lent() as connection:
        with _our_errors():
            await connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {_PATIENCE}")
            await connection.execute("SELECT FROM holdfast_meta")  # takes the snapshot
        yield PostgresSnapshot(connection)


class PostgresLoader:
    """See `holdfast.engine.raw.Loader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed: str | None = None

    async def facts(self) -> StoreInfo:
        """See `RawLoader.facts`."""
        with _our_errors():
            found = sections.facts_of(map(tuple, await self._connection.fetch(_FACTS)))
        return msgspec.structs.replace(found, closed=found.closed or self._closed)

    async def put(self, namespace: str, section: Section, held: Sequence[Positioned]) -> None:
        """See `RawLoader.put`."""
        if held:
            columns = map(list, zip(*sections.columns(section, held), strict=True))
            await self._execute(_put(section), sections.owner_of(namespace, section), *columns)

    async def drop(self, namespace: str, section: Section, positions: Sequence[Position]) -> None:
        """See `RawLoader.drop`."""
        if positions:
            columns = map(list, zip(*positions, strict=True))
            await self._execute(_drop(section), sections.owner_of(namespace, section), *columns)

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """See `RawLoader.put_namespaces`."""
        for one in namespaces:
            values = [getattr(one, name) for name in sections.NAMESPACE]
            await self._execute(_PUT_NAMESPACE, *values)

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """See `RawLoader.drop_namespaces`."""
        for section, table in sections.TABLES.items():
            owners = [sections.owner_of(name, section) for name in names]
            await self._execute(f"DELETE FROM {table.table} WHERE {table.owner} = ANY ($1::text[])", owners)
        await self._execute("DELETE FROM holdfast_namespaces WHERE name = ANY ($1::text[])", list(names))

    async def remember(self, facts: StoreInfo) -> None:
        """See `RawLoader.remember`."""
        rows = sections.facts_rows(facts)
        await self._execute(_FORGET, [name for name, _ in rows])
        for name, value in rows:
            if value is not None and name != "closed":
                await self._execute(_REMEMBER, name, value)
        await self._execute(_triggers(facts.closed))
        self._closed = facts.closed

    async def step_aside(self) -> None:
        """Make the triggers of a closed store let this transaction pass."""
        self._closed = (await self.facts()).closed
        await self._execute(_FORGET, ["closed"])

    async def keep_closed(self) -> None:
        """Make the triggers hold again for all later transactions, if the store is to be closed."""
        if self._closed is not None:
            await self._execute(_REMEMBER, "closed", self._closed)

    async def _execute(self, sql: str, *parameters: Any) -> None:
        with _our_errors():
            await self._connection.execute(sql, *parameters)


@contextlib.asynccontextmanager
async def loading(connections: Connections) -> AsyncIterator[PostgresLoader]:
    """Change raw contents in one transaction. Other writers wait for it."""
    async with connections.lent() as connection:
        with _our_errors():
            await connection.execute(f"BEGIN; {_PATIENCE}")
            await connection.execute("LOCK TABLE holdfast_namespaces IN EXCLUSIVE MODE")
        loader = PostgresLoader(connection)
        await loader.step_aside()
        yield loader
        await loader.keep_closed()
        await commit(connection)


def _triggers(reason: str | None) -> str:
    """Return the statements that replace the triggers of a closed store, or drop them.

    Creating a trigger waits for the transactions that have changed the table, and makes later ones wait.
    Dropping one would wait for those that read it too: for a copy that waits for this transaction in turn.
    """
    if reason is None:
        drops = [f"DROP TRIGGER IF EXISTS holdfast_closed ON {table};" for table in sections.CLOSABLE]
        return f"{' '.join(drops)} DROP FUNCTION IF EXISTS holdfast_closed();"
    text = reason.replace("'", "''").replace("%", "%%")
    function = (
        "CREATE OR REPLACE FUNCTION holdfast_closed() RETURNS trigger LANGUAGE plpgsql AS $holdfast$ BEGIN "
        "IF EXISTS (SELECT FROM holdfast_meta WHERE name = 'closed') THEN "
        f"RAISE EXCEPTION '{text}' USING ERRCODE = '{CLOSED}'; END IF; RETURN NULL; END $holdfast$;"
    )
    return function + " ".join(
        f"CREATE OR REPLACE TRIGGER holdfast_closed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION holdfast_closed();"
        for table in sections.CLOSABLE
    )


@cache
def _page(section: Section, after: bool) -> str:
    table = sections.TABLES[section]
    positions = ", ".join(table.positions)
    places = ", ".join(f"${number}" for number in range(3, 3 + len(table.positions)))
    later = f" AND ({positions}) > ({places})" if after else ""
    return (
        f"SELECT {positions}, {', '.join(map(answered, table.columns))} FROM {table.table} "
        f"WHERE {table.owner} = $1{later} ORDER BY {positions} LIMIT $2"
    )


@cache
def _find(section: Section) -> str:
    table = sections.TABLES[section]
    shown = ", ".join((*(f"found.{position}" for position in table.positions), *map(answered, table.columns)))
    return f"SELECT {shown} FROM {_asked(section)} JOIN {table.table} AS found ON {_same(section)}"


@cache
def _drop(section: Section) -> str:
    table = sections.TABLES[section].table
    return f"DELETE FROM {table} AS found USING {_asked(section)} WHERE {_same(section)}"


@cache
def _put(section: Section) -> str:
    table = sections.TABLES[section]
    columns = (*table.positions, *table.columns)
    arrays = ", ".join(f"${number}::{_type(section, name)}[]" for number, name in enumerate(columns, 2))
    new = ", ".join(f"{name} = excluded.{name}" for name in table.columns)
    return (
        f"INSERT INTO {table.table} ({', '.join((table.owner, *columns))}) "
        f"SELECT $1, {', '.join(map(stored, columns))} FROM unnest({arrays}) AS given ({', '.join(columns)}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {new}"
    )


_PUT_NAMESPACE: Final = (
    f"INSERT INTO holdfast_namespaces ({', '.join(sections.NAMESPACE)}) SELECT "
    + ", ".join(
        stored(name, f"${number}::{type_of(name)}") for number, name in enumerate(sections.NAMESPACE, 1)
    )
    + " ON CONFLICT (name) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in sections.NAMESPACE[1:])
)


def _asked(section: Section) -> str:
    positions = sections.TABLES[section].positions
    arrays = ", ".join(f"${number}::{_type(section, name)}[]" for number, name in enumerate(positions, 2))
    return f"unnest({arrays}) AS asked ({', '.join(f'asked_{name}' for name in positions)})"


def _same(section: Section) -> str:
    table = sections.TABLES[section]
    return " AND ".join(
        [f"found.{table.owner} = $1", *(f"found.{name} = asked_{name}" for name in table.positions)]
    )


def _type(section: Section, column: str) -> str:
    if column == "key" and section in (Section.ROWS, Section.PARTS):
        return "bytea"
    return type_of(column)


@contextlib.contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error) from error


async def close_to_writes(connections: Connections, reason: str | None, instead_of: str | None) -> None:
    """See `Movable.close_to_writes`."""
    async with connections.lent() as connection:
        with _our_errors():
            async with connection.transaction():
                await connection.execute(_triggers(reason))  # keeps other processes from doing the same
                if await closed_at(connection) != instead_of:
                    raise Busy(CHANGED)
                await connection.execute(_FORGET, ["closed"])
                if reason is not None:
                    await connection.execute(_REMEMBER, "closed", reason)


async def closed_at(connection: Connection) -> str | None:
    """Return the reason why the store in a database is closed; None if it is open."""
    return sections.facts_of(map(tuple, await connection.fetch(_FACTS))).closed
