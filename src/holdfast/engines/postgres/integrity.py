"""Integrity checks of a PostgreSQL database that need no more than SQL.

Each table's rows are counted through its heap and through its indexes, in one snapshot. The counts differ if
an index entry points nowhere or a row is missing from an index. If the extension `amcheck` is installed, it
checks the indexes themselves. Pages are not checked: that takes `pg_checksums` or `pg_amcheck` on the server.

A check changes nothing and takes no lock that a write would wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from holdfast.engine import Checkup

if TYPE_CHECKING:
    from holdfast.engines.postgres.connections import Connection

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
    """See `Examined.examine`."""
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
