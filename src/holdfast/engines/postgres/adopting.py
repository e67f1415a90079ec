"""Bringing the rows of another program's table into a store, in PostgreSQL; see `engines.sql.adopting`.

Law: the rows are inserted as any program inserts them, so that the store's triggers give them their versions
and count them.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast.engines.postgres.setup import ADD_EPOCH, foreign_table
from holdfast.engines.sql import adopting, layout
from holdfast.engines.sql.adopting import OLD_TABLE, TABLE, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engines.postgres.connections import Connection
    from holdfast.engines.sql.adopting import Found, NewRow

_CONSTRAINTS: Final = (
    f"SELECT conname::text FROM pg_catalog.pg_constraint WHERE conrelid = '{TABLE}'::regclass "
    "AND contype IN ('p', 'u', 'x')"
)
_INDEXES: Final = (
    "SELECT indexrelid::regclass::text FROM pg_catalog.pg_index "
    f"WHERE indrelid = '{TABLE}'::regclass AND NOT EXISTS ("
    "SELECT FROM pg_catalog.pg_constraint WHERE conindid = indexrelid)"
)
_INSERT: Final = (
    f"INSERT INTO {TABLE} (plugin_name, key, value_json, expires_at, created_at, updated_at) "
    "SELECT plugin_name, key, value_json, "
    "timestamptz 'epoch' + expires_at * interval '1 millisecond', "
    "timestamptz 'epoch' + created_at * interval '1 millisecond', "
    "timestamptz 'epoch' + updated_at * interval '1 millisecond' "
    "FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) "
    "AS given (plugin_name, key, value_json, expires_at, created_at, updated_at) "
    "ON CONFLICT DO NOTHING RETURNING plugin_name, key"
)
_AT_ONCE: Final = 500
_PATIENCE: Final = 3_600.0
"""Timeout of a statement, in seconds."""


async def adopt(connection: Connection, place: str, *, dry_run: bool) -> Report:
    """Bring the rows of another program's table into a store."""
    report = Report(place=place, dry_run=dry_run)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await connection.execute("SET LOCAL enable_seqscan = on")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", layout.CREATION_LOCK)
        found = await foreign_table(connection)
        if found is not None:
            report.found = True
            if not dry_run:
                await _make_room(connection)
                # The store's own writes are known by this name, and these rows need the triggers.
                await connection.execute("SET LOCAL application_name = 'holdfast adopt'")
            await _bring(connection, OLD_TABLE if not dry_run else TABLE, found, report)
    except BaseException:
        await transaction.rollback()
        raise
    if dry_run or found is None:
        await transaction.rollback()
    else:
        await transaction.commit()
    return report


async def _make_room(connection: Connection) -> None:
    """Rename the table with its constraints, drop its indexes, and create the store."""
    await connection.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
    for number, (name,) in enumerate(await connection.fetch(_CONSTRAINTS)):
        await connection.execute(
            f"ALTER TABLE {TABLE} RENAME CONSTRAINT {_quoted(name)} TO {OLD_TABLE}_constraint_{number}"
        )
    for (index,) in await connection.fetch(_INDEXES):
        await connection.execute(f"DROP INDEX {index}")
    await connection.execute(f"ALTER TABLE {TABLE} RENAME TO {OLD_TABLE}")
    await connection.execute(layout.ddl("postgresql"))
    await connection.execute(ADD_EPOCH, secrets.token_hex(8))


async def _bring(connection: Connection, table: str, found: Found, report: Report) -> None:
    now = time.time_ns() // 1_000_000
    columns = ["plugin_name::text", "key::text", f"{found.value}::text", *map(_time, found.times)]
    some: list[NewRow] = []
    async for row in connection.cursor(
        f"SELECT {', '.join(columns)} FROM {table}", prefetch=_AT_ONCE, timeout=_PATIENCE
    ):
        new = adopting.judged(report, found, tuple(row), now)
        if new is not None:
            some.append(new)
        if len(some) >= _AT_ONCE:
            await _insert(connection, some, report)
            some = []
    if some:
        await _insert(connection, some, report)


async def _insert(connection: Connection, rows: Sequence[NewRow], report: Report) -> None:
    if report.dry_run:
        return
    arrays: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    kept = {tuple(one) for one in await connection.fetch(_INSERT, *arrays, timeout=_PATIENCE)}
    for row in rows:
        if (row.plugin, row.key) in kept:
            kept.discard((row.plugin, row.key))
            continue
        report.adopted -= 1
        report.skip(row.plugin, row.key, "the table has this key more than once")


def _time(column: str) -> str:
    """Return SQL for a time as text in ISO 8601, whatever type its column has; NULL for infinity."""
    return f"nullif(to_jsonb({column}) #>> '{{}}', 'infinity') AS {column}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
