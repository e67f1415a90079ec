"""The view `plugin_kv`, whose times operators compare with CURRENT_TIMESTAMP in the databases' own shells.

Statements run on bare connections and in `sqlite3` and `psql` themselves, with nothing of Holdfast in
them.
"""

from __future__ import annotations

import asyncio
import operator
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.engines.sql import layout, migrate
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
NOON = 1_800_014_400_000
"""12:00:00 UTC of a day, in milliseconds."""
OFFSETS = [-86_400_000, -1_000, -999, -1, 0, 1, 250, 999, 1_000, 3_600_000, 86_400_000]
INSERT = (
    "INSERT INTO plugin_kv_storage (plugin_name, key, value_json, expires_at, created_at, updated_at) "
    "VALUES ('trivia', '{0}', '1', {1}, {1}, {1})"
)
EXPIRED = "SELECT key FROM plugin_kv WHERE expires_at < CURRENT_TIMESTAMP"
LIVE = "SELECT key FROM plugin_kv WHERE expires_at > CURRENT_TIMESTAMP OR expires_at IS NULL ORDER BY key"
TIMES = ("expires_at", "created_at", "updated_at")


@pytest.fixture
def sqlite() -> Iterator[sqlite3.Connection]:
    """A SQLite store with an entry at each distance from noon."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(layout.ddl("sqlite"))
        for offset in OFFSETS:
            connection.execute(INSERT.format(offset, NOON + offset))
        yield connection


@pytest.fixture
async def postgres(pg_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The same in PostgreSQL, in a session whose timezone is not UTC."""
    connection = await asyncpg.connect(pg_url, server_settings={"timezone": "Asia/Kolkata"})
    await connection.execute(layout.ddl("postgresql"))
    for offset in OFFSETS:
        await connection.execute(INSERT.format(offset, f"to_timestamp({NOON + offset} / 1000.0)"))
    yield connection
    await connection.close()


@pytest.mark.parametrize("column", TIMES)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_sqlite_compares_with_its_own_times(sqlite: sqlite3.Connection, comparison: str, column: str) -> None:
    """Text such as CURRENT_TIMESTAMP and datetime('now') sorts rightly, also within a day and a second."""
    query = f"SELECT key FROM plugin_kv WHERE {column} {comparison} datetime({NOON} / 1000, 'unixepoch')"
    found = {int(key) for (key,) in sqlite.execute(query)}
    assert found == {offset for offset in OFFSETS if COMPARISONS[comparison](offset, 0)}


@pytest.mark.parametrize("column", TIMES)
@pytest.mark.parametrize("comparison", COMPARISONS)
async def test_postgres_compares_with_its_own_times(
    postgres: asyncpg.Connection, comparison: str, column: str
) -> None:
    """The times are timestamps, so a comparison means the same in every timezone."""
    query = f"SELECT key FROM plugin_kv WHERE {column} {comparison} timestamptz '2027-01-15 12:00:00+00'"
    found = {int(key) for (key,) in await postgres.fetch(query)}
    assert found == {offset for offset in OFFSETS if COMPARISONS[comparison](offset, 0)}


def test_sqlite_compares_with_milliseconds(sqlite: sqlite3.Connection) -> None:
    """A comparison with an instant that has a fraction is exact, too."""
    for offset in OFFSETS:
        instant = f"strftime('%Y-%m-%d %H:%M:%f', {NOON + offset + 2} / 1000.0, 'unixepoch')"
        query = f"SELECT key FROM plugin_kv WHERE expires_at < {instant}"
        found = {int(key) for (key,) in sqlite.execute(query)}
        assert found == {other for other in OFFSETS if other < offset + 2}


def test_sqlite_shows_every_millisecond(sqlite: sqlite3.Connection) -> None:
    """No millisecond is rounded away, and the text sorts as the numbers do."""
    sqlite.execute("DELETE FROM plugin_kv_storage")
    for offset in range(2000):
        sqlite.execute(INSERT.format(offset, NOON + offset))
    shown = [text for (text,) in sqlite.execute("SELECT expires_at FROM plugin_kv ORDER BY expires_at")]
    start = datetime.fromtimestamp(NOON / 1000, UTC).replace(tzinfo=None)
    expected = [start + timedelta(milliseconds=n) for n in range(2000)]
    assert [datetime.fromisoformat(text) for text in shown] == expected
    assert (shown[0], shown[1000]) == ("2027-01-15 12:00:00", "2027-01-15 12:00:01")


async def stored(url: str) -> None:
    """Write an entry that expired minutes ago, one that expires in minutes, and one without a deadline."""
    clock = ManualClock(start=int((time.time() - 600) * 1000))
    async with holdfast.open(url, clock=clock, reap=False) as store:
        await store.kv("trivia").set("expired", 1, ttl=60)
        await store.kv("trivia").set("live", 1, ttl=1200)
        await store.kv("trivia").set("lasting", 1)


async def shown_by(*arguments: str) -> str:
    """Return what a program prints."""
    done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, check=True)
    return done.stdout


async def test_operators_sql_in_the_sqlite_shell(tmp_path: Path) -> None:
    """The queries that operators know from other databases answer rightly in a bare connection and shell."""
    path = tmp_path / "state.db"
    await stored(str(path))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(EXPIRED).fetchall() == [("expired",)]
        assert connection.execute(LIVE).fetchall() == [("lasting",), ("live",)]
        now = connection.execute(EXPIRED.replace("CURRENT_TIMESTAMP", "datetime('now')")).fetchall()
        assert now == [("expired",)]
    shell = shutil.which("sqlite3")
    if shell is None:
        pytest.skip("the program sqlite3 is not installed; the bare connection gave the same answers")
    for query, keys in ((EXPIRED, "expired\n"), (LIVE, "lasting\nlive\n")):
        assert await shown_by(shell, str(path), query) == keys


async def test_operators_sql_in_psql(pg_url: str) -> None:
    """The same queries answer rightly on a bare connection to PostgreSQL, and in its shell."""
    await stored(pg_url)
    connection = await asyncpg.connect(pg_url)
    assert [tuple(row) for row in await connection.fetch(EXPIRED)] == [("expired",)]
    assert [tuple(row) for row in await connection.fetch(LIVE)] == [("lasting",), ("live",)]
    await connection.close()
    shell = shutil.which("psql")
    if shell is None:
        pytest.skip("the program psql is not installed; the bare connection gave the same answers")
    for query, keys in ((EXPIRED, "expired\n"), (LIVE, "lasting\nlive\n")):
        assert await shown_by(shell, "--no-psqlrc", "-At", "-c", query, pg_url) == keys


async def test_a_sqlite_store_of_the_version_before(tmp_path: Path) -> None:
    """An older store answers rightly once it is opened, and a downgrade gives the older view back."""
    path = tmp_path / "state.db"
    await stored(str(path))
    migrate.downgrade_sqlite(path, "0003")
    with closing(sqlite3.connect(path)) as connection:
        (shown,) = connection.execute("SELECT expires_at FROM plugin_kv WHERE key = 'live'").fetchone()
        assert datetime.fromisoformat(shown).tzinfo is UTC
    async with holdfast.open(str(path), reap=False) as store:
        assert (await store.kv("trivia").list()).keys == ["lasting", "live"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(EXPIRED).fetchall() == [("expired",)]


async def test_a_postgres_store_of_the_version_before(pg_url: str) -> None:
    """The same on PostgreSQL, where the view's owner and the rights on it stay too."""
    await stored(pg_url)
    await migrate.downgrade_postgres(pg_url, "0003")
    connection = await asyncpg.connect(pg_url)
    name = (await connection.fetchval("SELECT current_database()")) + "_Reader"
    await connection.execute(f'CREATE ROLE "{name}"')
    rights = (
        "SELECT pg_get_userbyid(relowner), relacl::text[] FROM pg_class WHERE oid = 'plugin_kv'::regclass"
    )
    try:
        await connection.execute(f'GRANT CREATE ON SCHEMA public TO "{name}"')
        await connection.execute(f'GRANT SELECT ON plugin_kv TO "{name}" WITH GRANT OPTION')
        await connection.execute("GRANT SELECT ON plugin_kv TO PUBLIC")
        shown = await connection.fetchval("SELECT expires_at FROM plugin_kv WHERE key = 'live'")
        assert datetime.fromisoformat(shown).tzinfo is UTC
        before = await connection.fetch(rights)
        async with holdfast.open(pg_url, reap=False) as store:
            assert (await store.kv("trivia").list()).keys == ["lasting", "live"]
        assert await connection.fetch(rights) == before
        assert [tuple(row) for row in await connection.fetch(EXPIRED)] == [("expired",)]
        await connection.execute(f'ALTER VIEW plugin_kv OWNER TO "{name}"')
        await migrate.downgrade_postgres(pg_url, "0003")
        assert await connection.fetchval(rights) == name
    finally:
        await connection.execute(f'DROP OWNED BY "{name}" CASCADE')
        await connection.execute(f'DROP ROLE "{name}"')
        await connection.close()


async def test_a_view_of_the_operators_own_is_named(pg_url: str) -> None:
    """A migration that an operator's own view prevents changes nothing, and says which view to drop."""
    await stored(pg_url)
    await migrate.downgrade_postgres(pg_url, "0003")
    connection = await asyncpg.connect(pg_url)
    await connection.execute("CREATE VIEW report AS SELECT key, expires_at FROM plugin_kv")
    with pytest.raises(Unsupported, match="view report depends on view plugin_kv") as refused:
        async with holdfast.open(pg_url):
            pass
    assert "drop them, open the store, and create them again" in refused.value.message
    assert await connection.fetchval("SELECT version_num FROM alembic_version") == "0003"
    await connection.execute("DROP VIEW report")
    async with holdfast.open(pg_url):
        pass
    found = await connection.fetchval("SELECT version_num FROM holdfast_alembic_version")
    assert found == layout.SCHEMA_REVISION
    await connection.close()
