"""Preparation of a database: creates the store in an empty one and migrates an older store.

Law: several processes may open the same database at the same moment, and each must find it ready. This module
does not know the schema.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.engines.postgres import sql
from holdfast.engines.sql import adopting, layout
from holdfast.engines.sql.migrate import Need, needed, upgrade_postgres
from holdfast.errors import Unavailable, Unsupported

if TYPE_CHECKING:
    from holdfast.engines.postgres.connections import Connection
    from holdfast.engines.sql.adopting import Found

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
_COUNTING_SECONDS: Final = 3_600.0
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
    await connection.execute(ADD_EPOCH, secrets.token_hex(8))


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
    columns = [name for (name,) in await connection.fetch(_COLUMNS, adopting.TABLE)]
    if adopting.shape(columns, 0) is None:
        return None
    count = await connection.fetchval(f"SELECT count(*) FROM {adopting.TABLE}", timeout=_COUNTING_SECONDS)
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
