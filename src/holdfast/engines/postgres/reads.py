"""The reads of the PostgreSQL engine: rows, ranges, what the store remembers, the clock, and checks of all.

Reads of rows by address are batched: those that are requested while one is running are combined in the next
one. A read never returns state from before it was requested, and each caller's own `now` decides what it
sees. Each answer about a range comes from one statement, so that all of it is from one snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import asyncpg

from holdfast.clock import Reading
from holdfast.engine import Checkup, Due, JournalPage, JournalQuery, Scan, Scanned, Totals, fitting
from holdfast.engines.postgres import sql
from holdfast.engines.postgres.connections import Connection, Connections
from holdfast.engines.postgres.sql import COUNTERS, RECORD, keys_text, row_of
from holdfast.engines.sql.layout import namespace_of, plugin_column
from holdfast.rows import KV, PARTS, Address, Namespace, Record, Row

_MOST: Final = 512
"""The maximum number of rows in a batch. A single caller may exceed it."""


class _Asked(NamedTuple):
    addresses: Sequence[Address]
    now: int
    answer: asyncio.Future[list[Row | None]]


class Lookups:
    """Reads by address, with at most `lanes` statements at a time."""

    def __init__(self, connections: Connections, lanes: int) -> None:
        self._connections = connections
        self._free = lanes
        self._waiting: list[_Asked] = []

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """Return the rows that are alive at `now`, by position."""
        self._connections.check_open()
        asked = _Asked(addresses, now, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._free:
            self._begin()
        return await asked.answer

    def _begin(self) -> None:
        self._free -= 1
        self._connections.spawn(self._lane()).add_done_callback(self._ended)

    def _ended(self, lane: asyncio.Task[None]) -> None:
        """Go on with those who wait: a program that cancels all its tasks has perhaps ended their lane."""
        self._free += 1
        self._waiting = [asked for asked in self._waiting if not asked.answer.done()]
        if self._waiting:
            self._begin()

    async def _lane(self) -> None:
        while self._waiting:
            await self._answer(self._next())

    def _next(self) -> list[_Asked]:
        """Take the next batch of callers: the first, and as many others as fit."""
        room = _MOST
        for position, asked in enumerate(self._waiting):
            room -= len(asked.addresses)
            if room < 0 and position:
                break
        else:
            position = len(self._waiting)
        group, self._waiting = self._waiting[:position], self._waiting[position:]
        return [asked for asked in group if not asked.answer.done()]

    async def _answer(self, group: list[_Asked]) -> None:
        wanted = {address for asked in group for address in asked.addresses}
        try:
            rows = await self._connections.use(partial(_fetch, wanted=wanted))
        except asyncio.CancelledError:
            self._waiting = [*group, *self._waiting]
            raise
        except Exception as error:
            for asked in group:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            return
        for asked in group:
            if not asked.answer.done():
                asked.answer.set_result([_alive(rows.get(address), asked.now) for address in asked.addresses])


def _alive(row: Row | None, now: int) -> Row | None:
    return row if row is not None and row.alive(now) else None


async def _fetch(connection: Connection, wanted: Collection[Address]) -> dict[Address, Row]:
    rows: dict[Address, Row] = {}
    kv = [address for address in wanted if address.space == KV]
    if kv:
        plugins = [plugin_column(address.namespace) for address in kv]
        found = await connection.fetch(sql.READ_KV, plugins, [address.key for address in kv])
        rows.update((kv[answer[0] - 1], row_of(answer[1:])) for answer in found)
    parts = [address for address in wanted if address.space.startswith(PARTS)]
    if parts:
        found = await connection.fetch(sql.READ_PARTS, *_columns(parts))
        rows.update((parts[answer[0] - 1], row_of(answer[1:-1], answer[-1])) for answer in found)
    others = [address for address in wanted if address.space != KV and not address.space.startswith(PARTS)]
    if others:
        found = await connection.fetch(sql.READ_OTHERS, *_columns(others))
        rows.update((others[answer[0] - 1], row_of(answer[1:])) for answer in found)
    return rows


def _columns(addresses: Sequence[Address]) -> tuple[list[str], list[str], str]:
    """Return the namespaces, spaces and keys of addresses."""
    return (
        [address.namespace for address in addresses],
        [address.space for address in addresses],
        keys_text(addresses),
    )


async def scan(connection: Connection, query: Scan, now: int) -> Scanned:
    """See `Engine.scan`."""
    if query.space.startswith(PARTS):
        return await _scan_parts(connection, query)
    shape = {
        "values": query.values,
        "bounded": query.stop is not None,
        "after": query.after is not None,
        "reverse": query.reverse,
    }
    owner: tuple[str, ...]
    if query.space == KV:
        statement = sql.scan_kv(**shape)
        owner = (plugin_column(query.namespace),)
    else:
        statement = sql.scan_others(**shape)
        owner = (query.namespace, query.space)
    bounds = [bound for bound in (query.stop, query.after) if bound is not None]
    found = await connection.fetch(
        statement, now, _reach(query) + 1, query.max_bytes, query.start, *owner, *bounds
    )
    given = found[: query.limit]
    if len(given) > 1 and given[-1]["total"] > query.max_bytes:
        given.pop()
    return Scanned(
        keys=[answer[0] for answer in given],
        rows=[row_of(answer[2:]) for answer in given] if query.values else [],
        more=len(given) < len(found),
    )


async def _scan_parts(connection: Connection, query: Scan) -> Scanned:
    after = () if query.after is None else (query.after,)
    found = await connection.fetch(
        sql.scan_parts(after=bool(after)),
        query.namespace,
        query.space,
        query.start,
        query.limit + 1,
        *after,
    )
    keys = [key for (key,) in found]
    return Scanned(keys=keys[: query.limit], rows=[], more=len(keys) > query.limit)


def _reach(query: Scan) -> int:
    """Return the largest number of rows that can fit: a row with its value counts for at least 256 bytes."""
    return min(query.limit, query.max_bytes // 256 + 1) if query.values else query.limit


async def due(
    connection: Connection, space: str, now: int, *, limit: int, namespace: str | None
) -> list[Due]:
    """See `Engine.due`."""
    one = namespace is not None
    parameters: list[Any] = [now, limit]
    if space == KV:
        statement = sql.due_kv(one=one)
        parameters += [] if namespace is None else [plugin_column(namespace)]
    else:
        statement = sql.due_others(one=one)
        parameters += [space] if namespace is None else [space, namespace]
    found = await connection.fetch(statement, *parameters)
    return [
        Due(namespace=namespace_of(owner) if space == KV else owner, key=key, expires_at=expires_at)
        for owner, key, expires_at in found
    ]


async def falling_due(connection: Connection, *, since: int, until: int, limit: int) -> list[Due]:
    """See `Engine.falling_due`."""
    found = await connection.fetch(sql.FALLING_DUE, since, until, limit)
    return [
        Due(namespace=namespace_of(owner), key=key, expires_at=expires_at) for owner, key, expires_at in found
    ]


async def journal(connection: Connection, query: JournalQuery) -> JournalPage:
    """See `Engine.journal`."""
    statement = sql.journal(
        bounded=query.stop is not None,
        key=query.key is not None,
        newest_first=query.newest_first,
        most=query.max_bytes,
    )
    bounds = [bound for bound in (query.stop, query.key) if bound is not None]
    found = await connection.fetch(
        statement, query.namespace, query.since, query.start, query.limit + 1, *bounds
    )
    epoch, floor, head = found[0][:3]
    records = [
        Record(namespace=query.namespace, **dict(zip(RECORD, answer[3:], strict=True)))
        for answer in found
        if answer["version"] is not None
    ]
    given, complete = fitting(records, query)
    return JournalPage(
        records=given,
        complete=complete,
        floor=floor,
        head=head,
        epoch=epoch,
    )


async def totals(connection: Connection, now: int, *, namespace: str | None) -> list[Totals]:
    """See `Engine.totals`."""
    one = () if namespace is None else (namespace,)
    found = await connection.fetch(sql.totals(one=bool(one)), now, *one)
    return [
        Totals(
            namespace=Namespace(name=name, policy=policy, **dict(zip(COUNTERS, counters, strict=True))),
            due_keys=due_keys,
            due_bytes=due_bytes,
        )
        for name, policy, *counters, due_keys, due_bytes in found
    ]


async def owners(connection: Connection, space: str) -> list[str]:
    """See `Engine.owners`."""
    return sorted(name for (name,) in await connection.fetch(sql.OWNERS, space))


async def follows_another(connection: Connection) -> bool:
    """Return whether the server is a standby."""
    return bool(await connection.fetchval("SELECT pg_is_in_recovery()"))


async def clock(connection: Connection, ticks: Callable[[], float]) -> Reading:
    """See `SharedStorage.clock`: take the quickest of three readings, and assume that it came half way."""
    looks = [await _look(connection, ticks) for _ in range(3)]
    return min(looks)[1]


async def _look(connection: Connection, ticks: Callable[[], float]) -> tuple[float, Reading]:
    """Read the server's clock. Return the duration of the call and the reading."""
    began = ticks()
    theirs: float = await connection.fetchval(sql.READ_CLOCK)
    took = ticks() - began
    return took, Reading(theirs, began + took / 2)


async def remembered(connection: Connection) -> int:
    """See `DurableStorage.remembered`."""
    return int(await connection.fetchval(sql.REMEMBERED))


async def remember(connection: Connection, now: int) -> int:
    """See `DurableStorage.remember`."""
    return int(await connection.fetchval(sql.REMEMBER, str(now)))


async def kept_keys(connection: Connection) -> list[str]:
    """See `DurableStorage.kept_keys`."""
    found: str | None = await connection.fetchval(sql.KEPT_KEYS)
    return [] if found is None else found.split()


async def keep_keys(connection: Connection, names: Sequence[str], before: Sequence[str]) -> list[str]:
    """See `DurableStorage.keep_keys`."""
    await connection.execute(sql.KEEP_KEYS, " ".join(names), " ".join(before))
    return await kept_keys(connection)


# Integrity checks.

TABLES: Final = {
    "plugin_kv_storage": "plugin_name, key",
    "holdfast_rows": "namespace, space, key",
    "holdfast_namespaces": "name",
    "holdfast_journal": "namespace, version",
    "holdfast_meta": "name",
}
"""Every table, with the columns of its primary key. Only that index has all rows in this order."""
DEADLINES: Final = {"plugin_kv_storage": "expires_at", "holdfast_rows": "namespace, space, expires_at"}
"""The tables that have an index on deadlines, with its columns."""
PATIENCE: Final = 3_600.0
"""Timeout of one check, in seconds."""

_SCANS: Final = ("enable_indexscan", "enable_indexonlyscan")
_STRAYS: Final = """
SELECT name FROM (
    SELECT DISTINCT CASE WHEN plugin_name LIKE '%/%' THEN '' ELSE 'kv/' END || plugin_name AS name
    FROM plugin_kv_storage WHERE version > 0
    UNION SELECT DISTINCT namespace FROM holdfast_rows
) AS found WHERE name NOT IN (SELECT name FROM holdfast_namespaces) ORDER BY name LIMIT 20
"""
_INDEXES: Final = """
SELECT indexrelid::regclass::text FROM pg_index
WHERE indrelid = ANY($1::text[]::regclass[]) ORDER BY 1
"""


async def examined(connection: Connection) -> Checkup:
    """Check the integrity of a database as far as SQL can, without a lock that a write would wait for.

    Each table's rows are counted through its heap and through its indexes, in one snapshot. The counts differ
    if an index entry points nowhere or a row is missing from an index. If the extension `amcheck` is
    installed, it checks the indexes themselves. Pages are not checked: that takes `pg_checksums` or
    `pg_amcheck` on the server.
    """
    troubles: list[str] = []
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        wanted = [(table, key, "") for table, key in TABLES.items()]
        wanted += [(table, key, " WHERE expires_at IS NOT NULL") for table, key in DEADLINES.items()]
        for table, key, which in wanted:
            rows = await _count(connection, f"SELECT 1 FROM {table}{which}", by_index=False)
            led_to = await _count(connection, f"SELECT 1 FROM {table}{which} ORDER BY {key}", by_index=True)
            if rows != led_to:
                troubles.append(f"{table} has {rows} rows{which.lower()}, and its index {led_to}")
        names = await connection.fetch(_STRAYS, timeout=PATIENCE)
        troubles += [f"{name} has rows, but none of its own" for (name,) in names]
    checked = "the rows of every table by heap and by index"
    if await connection.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'") is None:
        return Checkup(
            checked=f"{checked} (indexes not by amcheck, which is not installed)", troubles=troubles
        )
    return Checkup(checked=f"{checked}, indexes by amcheck", troubles=troubles + await _corrupt(connection))


async def _count(connection: Connection, rows: str, *, by_index: bool) -> int:
    """Count rows, either through the index that has them in order or without any index."""
    for setting in _SCANS:
        await connection.execute(f"SET LOCAL {setting} = {'on' if by_index else 'off'}")
    for setting in ("enable_seqscan", "enable_sort"):
        await connection.execute(f"SET LOCAL {setting} = {'off' if by_index else 'on'}")
    count: int = await connection.fetchval(f"SELECT count(*) FROM ({rows}) AS found", timeout=PATIENCE)
    return count


async def _corrupt(connection: Connection) -> list[str]:
    """Return one message per index that amcheck finds corrupt or is not allowed to check."""
    troubles = []
    for (index,) in await connection.fetch(_INDEXES, list(TABLES)):
        try:
            await connection.execute(f"SELECT bt_index_check('{index}'::regclass)", timeout=PATIENCE)
        except asyncpg.IndexCorruptedError:
            troubles.append(f"amcheck says that the index {index} is corrupt")
        except asyncpg.InsufficientPrivilegeError:
            troubles.append(f"this user may not run amcheck on {index}")
    return troubles
