"""A database of the server that tests share is used again, and nobody can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests import postgres_session
from tests.postgres import DSN_VARIABLE, Server, shared_server

if TYPE_CHECKING:
    from pathlib import Path

OBJECTS = """
SELECT relname::text FROM pg_class JOIN pg_namespace AS it ON it.oid = relnamespace WHERE nspname = 'public'
UNION ALL SELECT proname::text FROM pg_proc JOIN pg_namespace AS it ON it.oid = pronamespace
WHERE nspname = 'public'
"""
RIGHTS = "SELECT nspacl::text, pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'public'"


@pytest.fixture
def passing(pg_server: Server) -> Server:
    """A server of which databases are used again, apart from those of other tests."""
    return Server(pg_server.dsn, passing=True)


async def test_a_database_is_used_again_as_new(passing: Server) -> None:
    """Its tables and functions are gone, the rights are those of a new one, and nobody is connected."""
    url = passing.create_database()
    rights = await postgres_session.run(url, RIGHTS)
    open_still = await asyncpg.connect(url)
    await open_still.execute("CREATE TABLE a (b int); CREATE FUNCTION f() RETURNS int LANGUAGE sql RETURN 1")
    await open_still.execute("BEGIN; INSERT INTO a VALUES (1)")
    passing.drop_database(url)
    assert passing.create_database() == url
    assert await postgres_session.run(url, OBJECTS) == []
    assert await postgres_session.run(url, RIGHTS) == rights
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await open_still.execute("SELECT 1")
    open_still.terminate()
    Server(passing.dsn).drop_database(url)


@pytest.mark.parametrize(
    "change",
    [
        'ALTER DATABASE "{name}" SET commit_delay = 1',
        'ALTER DATABASE "{name}" CONNECTION LIMIT 7',
        'GRANT CREATE ON DATABASE "{name}" TO PUBLIC',
        "CREATE SCHEMA another",
        "CREATE PUBLICATION all_of_it",
    ],
)
async def test_a_database_that_was_changed_itself_is_not_used_again(passing: Server, change: str) -> None:
    """A test that comes later gets another one."""
    url = passing.create_database()
    name = urlsplit(url).path.removeprefix("/")
    await postgres_session.run(url, change.format(name=name))
    passing.drop_database(url)
    found = await postgres_session.run(passing.dsn, "SELECT FROM pg_database WHERE datname = $1", name)
    assert found == []


def test_a_server_of_the_user_is_left_without_our_databases(
    pg_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that the environment names, databases are removed."""
    monkeypatch.setenv(DSN_VARIABLE, pg_server.dsn)
    server = shared_server(tmp_path)
    url = server.create_database()
    server.drop_database(url)
    other = server.create_database()
    assert other != url
    server.drop_database(other)
