"""Raw reads and loads of a whole PostgreSQL store; see `holdfast.engine.moving`.

A snapshot is one read-only transaction on a connection of its own, and a load is one transaction that
locks the namespaces first. Triggers close a store to writes: they bind every process, of any version, and
cost nothing while a store is open.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.engine.moving import CHANGED, Facts, Mark, Marked, Shelf
from holdfast.engines.postgres.errors import CLOSED, DRIVER_ERRORS, translate
from holdfast.engines.postgres.sql import answered, stored, type_of
from holdfast.engines.postgres.transaction import commit
from holdfast.engines.sql import layout, shelves
from holdfast.errors import Busy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from holdfast.engines.postgres.connections import Connection, Connections
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
    """See `holdfast.engine.moving.Snapshot`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def facts(self) -> Facts:
        """See `RawSnapshot.facts`."""
        return shelves.facts_of(await self._fetch(_FACTS))

    async def namespaces(self) -> list[Namespace]:
        """See `RawSnapshot.namespaces`."""
        columns = ", ".join(answered(name) for name in shelves.NAMESPACE)
        found = await self._fetch(f"SELECT {columns} FROM holdfast_namespaces ORDER BY name")
        return [shelves.namespace_of(values) for values in found]

    async def names(self) -> list[str]:
        """See `RawSnapshot.names`."""
        names = {name for (name,) in await self._fetch("SELECT name FROM holdfast_namespaces")}
        for shelf, table in shelves.TABLES.items():
            found = await self._fetch(_NAMES.format(owner=table.owner, table=table.table))
            names |= {layout.namespace_of(name) if shelf is Shelf.ENTRIES else name for (name,) in found}
        return sorted(names)

    async def count(self) -> int:
        """See `RawSnapshot.count`."""
        tables = {table.table for table in shelves.TABLES.values()}
        return sum([(await self._fetch(f"SELECT count(*) FROM {table}"))[0][0] for table in tables])

    async def page(self, namespace: str, shelf: Shelf, *, after: Mark | None, limit: int) -> list[Marked]:
        """See `RawSnapshot.page`."""
        owner = shelves.owner_of(namespace, shelf)
        found = await self._fetch(_page(shelf, after is not None), owner, limit, *(after or ()))
        return [shelves.held(namespace, shelf, values) for values in found]

    async def find(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> list[Marked]:
        """See `RawSnapshot.find`."""
        if not marks:
            return []
        owner = shelves.owner_of(namespace, shelf)
        found = await self._fetch(_find(shelf), owner, *map(list, zip(*marks, strict=True)))
        return [shelves.held(namespace, shelf, values) for values in found]

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
    """See `holdfast.engine.moving.Loader`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed: str | None = None

    async def facts(self) -> Facts:
        """See `RawLoader.facts`."""
        with _our_errors():
            found = shelves.facts_of(map(tuple, await self._connection.fetch(_FACTS)))
        return msgspec.structs.replace(found, closed=found.closed or self._closed)

    async def put(self, namespace: str, shelf: Shelf, held: Sequence[Marked]) -> None:
        """See `RawLoader.put`."""
        if held:
            columns = map(list, zip(*shelves.columns(shelf, held), strict=True))
            await self._execute(_put(shelf), shelves.owner_of(namespace, shelf), *columns)

    async def drop(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> None:
        """See `RawLoader.drop`."""
        if marks:
            columns = map(list, zip(*marks, strict=True))
            await self._execute(_drop(shelf), shelves.owner_of(namespace, shelf), *columns)

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """See `RawLoader.put_namespaces`."""
        for one in namespaces:
            values = [getattr(one, name) for name in shelves.NAMESPACE]
            await self._execute(_PUT_NAMESPACE, *values)

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """See `RawLoader.drop_namespaces`."""
        for shelf, table in shelves.TABLES.items():
            owners = [shelves.owner_of(name, shelf) for name in names]
            await self._execute(f"DELETE FROM {table.table} WHERE {table.owner} = ANY ($1::text[])", owners)
        await self._execute("DELETE FROM holdfast_namespaces WHERE name = ANY ($1::text[])", list(names))

    async def remember(self, facts: Facts) -> None:
        """See `RawLoader.remember`."""
        rows = shelves.facts_rows(facts)
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
        drops = [f"DROP TRIGGER IF EXISTS holdfast_closed ON {table};" for table in shelves.CLOSABLE]
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
        for table in shelves.CLOSABLE
    )


@cache
def _page(shelf: Shelf, after: bool) -> str:
    table = shelves.TABLES[shelf]
    marks = ", ".join(table.marks)
    places = ", ".join(f"${number}" for number in range(3, 3 + len(table.marks)))
    later = f" AND ({marks}) > ({places})" if after else ""
    return (
        f"SELECT {marks}, {', '.join(map(answered, table.columns))} FROM {table.table} "
        f"WHERE {table.owner} = $1{later} ORDER BY {marks} LIMIT $2"
    )


@cache
def _find(shelf: Shelf) -> str:
    table = shelves.TABLES[shelf]
    shown = ", ".join((*(f"found.{mark}" for mark in table.marks), *map(answered, table.columns)))
    return f"SELECT {shown} FROM {_asked(shelf)} JOIN {table.table} AS found ON {_same(shelf)}"


@cache
def _drop(shelf: Shelf) -> str:
    return f"DELETE FROM {shelves.TABLES[shelf].table} AS found USING {_asked(shelf)} WHERE {_same(shelf)}"


@cache
def _put(shelf: Shelf) -> str:
    table = shelves.TABLES[shelf]
    columns = (*table.marks, *table.columns)
    arrays = ", ".join(f"${number}::{_type(shelf, name)}[]" for number, name in enumerate(columns, 2))
    new = ", ".join(f"{name} = excluded.{name}" for name in table.columns)
    return (
        f"INSERT INTO {table.table} ({', '.join((table.owner, *columns))}) "
        f"SELECT $1, {', '.join(map(stored, columns))} FROM unnest({arrays}) AS given ({', '.join(columns)}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {new}"
    )


_PUT_NAMESPACE: Final = (
    f"INSERT INTO holdfast_namespaces ({', '.join(shelves.NAMESPACE)}) SELECT "
    + ", ".join(
        stored(name, f"${number}::{type_of(name)}") for number, name in enumerate(shelves.NAMESPACE, 1)
    )
    + " ON CONFLICT (name) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in shelves.NAMESPACE[1:])
)


def _asked(shelf: Shelf) -> str:
    marks = shelves.TABLES[shelf].marks
    arrays = ", ".join(f"${number}::{_type(shelf, name)}[]" for number, name in enumerate(marks, 2))
    return f"unnest({arrays}) AS asked ({', '.join(f'asked_{name}' for name in marks)})"


def _same(shelf: Shelf) -> str:
    table = shelves.TABLES[shelf]
    return " AND ".join(
        [f"found.{table.owner} = $1", *(f"found.{name} = asked_{name}" for name in table.marks)]
    )


def _type(shelf: Shelf, column: str) -> str:
    if column == "key" and shelf in (Shelf.ROWS, Shelf.PARTS):
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
    return shelves.facts_of(map(tuple, await connection.fetch(_FACTS))).closed
