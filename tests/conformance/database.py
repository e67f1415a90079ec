"""A PostgreSQL database that tests use one after the other, since making one takes longer than most tests.

Only emptying it stands here. It goes by the catalogue, so that a new table is emptied too; what names this
life of the storage and the version of its schema stay.
"""

from __future__ import annotations

from typing import Final

from tests.postgres_session import run

_EMPTY: Final = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN
        SELECT quote_ident(tablename) FROM pg_tables
        WHERE schemaname = 'public' AND tablename NOT IN ('holdfast_alembic_version', 'holdfast_meta')
    LOOP
        EXECUTE 'DELETE FROM ' || name;
    END LOOP;
END $$
"""


async def empty(url: str) -> None:
    """Remove every row of every table of a store that nobody has open."""
    await run(url, _EMPTY)
