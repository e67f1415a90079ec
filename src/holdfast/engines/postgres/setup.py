"""Preparation of a database: creates the store in an empty one, migrates an older one, adopts another's rows.

Several processes may open the same database at the same moment, and each must find it ready.

An adoption brings the rows of another program's table into a store (`engines.sql.adopting`). The rows are
inserted as any program inserts them, so that the store's triggers give them their versions and count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from holdfast import seams
from holdfast.engines.postgres import sql
from holdfast.engines.postgres.connections import Connection
from holdfast.engines.sql import adopting, layout
from holdfast.engines.sql.adopting import OLD_TABLE, TABLE, Found, NewRow, Report
from holdfast.engines.sql.migrate import Need, needed, upgrade_postgres
from holdfast.errors import Unavailable, Unsupported

# Not `to_regclass`: it would repeat what this session found before it waited for the lock.
_FIND: Final = (
    "SELECT relname::text FROM pg_catalog.pg_class "
    "WHERE relname = ANY($1::text[]) AND relkind = 'r' AND pg_catalog.pg_table_is_visible(oid)"
)
_COLUMNS: Final = (
    "SELECT attname::text FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON pg_class.oid = attrelid "
    "WHERE relname = $1 AND relkind IN ('r', 'p') AND pg_catalog.pg_table_is_visible(pg_class.oid) "
    "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)
_PATIENCE: Final = 3_600.0
"""Timeout of a statement that reads a whole table, in seconds."""
ADD_EPOCH: Final = "INSERT INTO holdfast_meta (name, value) VALUES ('epoch', $1) ON CONFLICT DO NOTHING"

_OTHERS: Final = (
    "SELECT count(*) FROM pg_catalog.pg_stat_activity "
    "WHERE datname = current_database() AND application_name = 'holdfast' AND pid <> pg_backend_pid()"
)
_CHANGES_BEFORE: Final = (
    "WITH moved AS (UPDATE holdfast_namespaces SET changed_at = to_timestamp($1::bigint / 1000.0) "
    "WHERE changed_at > to_timestamp($1::bigint / 1000.0) RETURNING 1) SELECT count(*) FROM moved"
)
_RESET_CLOCK: Final = "UPDATE holdfast_meta SET value = $1 WHERE name = 'clock'"


async def prepare(connection: Connection, dsn: str) -> None:
    """Make sure that the database holds a store of this version.

    Raises:
        Unsupported: The store is newer than this version, Holdfast did not create the tables, or an object of
            the operator's stands in the way of a migration.
    """
    match needed(await revision(connection)):
        case Need.CREATE:
            await _create(connection)
        case Need.MIGRATE:
            await _migrate(dsn)
        case Need.NOTHING:
            pass
    await connection.execute(ADD_EPOCH, seams.token(8))


async def _migrate(dsn: str) -> None:
    try:
        await upgrade_postgres(dsn)
    except asyncpg.DependentObjectsStillExistError as error:
        raise Unsupported(
            "the migration has to replace something on which objects of yours depend: drop them, "
            f"open the store, and create them again ({error.detail})"
        ) from error


async def revision(connection: Connection) -> str | None:
    """Return the schema's revision, or None if the database holds no store yet.

    An older store has it in `alembic_version`, which may also be another program's.
    """
    named = [layout.VERSION_TABLE, layout.SHARED_VERSION_TABLE, "holdfast_namespaces"]
    tables = {name for (name,) in await connection.fetch(_FIND, named)}
    if layout.VERSION_TABLE in tables:
        found: str | None = await connection.fetchval(f"SELECT version_num FROM {layout.VERSION_TABLE}")
        return found
    if len(tables) < len(named) - 1:
        return None
    every = await connection.fetch(f"SELECT version_num FROM {layout.SHARED_VERSION_TABLE}")
    return next((str(one) for (one,) in every if one in layout.SHARED_REVISIONS), None)


async def foreign_table(connection: Connection) -> Found | None:
    """Return the table of another program in the place of ours; None if there is none."""
    if await revision(connection) is not None:
        return None
    columns = [name for (name,) in await connection.fetch(_COLUMNS, TABLE)]
    if adopting.shape(columns, 0) is None:
        return None
    count = await connection.fetchval(f"SELECT count(*) FROM {TABLE}", timeout=_PATIENCE)
    return adopting.shape(columns, count)


async def _create(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", layout.CREATION_LOCK)
        if needed(await revision(connection)) is not Need.CREATE:
            return
        found = await foreign_table(connection)
        if found is not None:
            raise adopting.refusal("the PostgreSQL database", found.rows)
        try:
            await connection.execute(layout.ddl("postgresql"))
        except asyncpg.DuplicateTableError as error:
            raise Unsupported(
                "the database has tables with these names that Holdfast did not create"
            ) from error


async def reset_clock(connection: Connection) -> tuple[int, int, int]:
    """Reset a store's time to the server's, if it is ahead.

    Returns:
        The time before, the time after, and the number of namespaces whose time was reset.

    Raises:
        Unavailable: Another process has the store open.
    """
    others: int = await connection.fetchval(_OTHERS)
    if others:
        raise Unavailable(
            f"{others} other connections of Holdfast are open: stop every process and try again"
        )
    async with connection.transaction():
        before = int(await connection.fetchval(sql.REMEMBERED))
        after = min(before, int(await connection.fetchval(sql.READ_CLOCK)))
        moved: int = await connection.fetchval(_CHANGES_BEFORE, after)
        await connection.execute(_RESET_CLOCK, str(after))
    return before, after, moved


# Adoption.

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
    await connection.execute(ADD_EPOCH, seams.token(8))


async def _bring(connection: Connection, table: str, found: Found, report: Report) -> None:
    now = seams.wall_ns() // 1_000_000
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
