"""Reads of ranges (scans, due rows, the journal, totals) and of the server's clock.

Law: each answer comes from one statement, so that all of it is from one snapshot. This module writes only the
remembered time and the names of the audit's keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.clock import Reading
from holdfast.engine import Due, JournalPage, JournalQuery, Scan, Scanned, Totals, fitting
from holdfast.engines.postgres import part_sql, sql
from holdfast.engines.postgres.columns import COUNTERS, RECORD, row_of
from holdfast.engines.sql.layout import namespace_of, plugin_column
from holdfast.rows import KV, PARTS, Namespace, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engines.postgres.connections import Connection


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
        part_sql.scan_parts(after=bool(after)),
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
    """See `Engine.clock`: take the quickest of three readings and assume that it was taken half way."""
    looks = [await _look(connection, ticks) for _ in range(3)]
    return min(looks)[1]


async def _look(connection: Connection, ticks: Callable[[], float]) -> tuple[float, Reading]:
    """Read the server's clock. Return the duration of the call and the reading."""
    began = ticks()
    theirs: float = await connection.fetchval(sql.READ_CLOCK)
    took = ticks() - began
    return took, Reading(theirs, began + took / 2)


async def remembered(connection: Connection) -> int:
    """See `Engine.remembered`."""
    return int(await connection.fetchval(sql.REMEMBERED))


async def remember(connection: Connection, now: int) -> int:
    """See `Engine.remember`."""
    return int(await connection.fetchval(sql.REMEMBER, str(now)))


async def kept_keys(connection: Connection) -> list[str]:
    """See `KeyKeeper.kept_keys`."""
    found: str | None = await connection.fetchval(sql.KEPT_KEYS)
    return [] if found is None else found.split()


async def keep_keys(connection: Connection, names: Sequence[str], before: Sequence[str]) -> list[str]:
    """See `KeyKeeper.keep_keys`."""
    await connection.execute(sql.KEEP_KEYS, " ".join(names), " ".join(before))
    return await kept_keys(connection)
