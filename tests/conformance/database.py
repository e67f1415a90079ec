"""A PostgreSQL database that tests use one after the other, since making one takes longer than most tests.

Law: only emptying it stands here. It goes by the catalogue, so that a new table is emptied too; what names
this life of the storage and the version of its schema stay.
"""

from __future__ import annotations

from typing import Final

import asyncpg

_KEPT: Final = ("alembic_version", "holdfast_meta")


async def empty(url: str) -> None:
    """Remove every row of every table of a store that nobody has open."""
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT quote_ident(tablename) AS name FROM pg_tables"
            " WHERE schemaname = 'public' AND tablename <> ALL ($1::text[])",
            _KEPT,
        )
        for row in found:
            await connection.execute(f"DELETE FROM {row['name']}")
    finally:
        await connection.close()
