"""A database with an empty store is used again, and nobody can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

import holdfast
from holdfast.testing import AUDIT_KEY
from tests import postgres_session
from tests.postgres import DSN_VARIABLE, Server, shared_server
from tests.postgres_stores import OBJECTS, Stores

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = "SELECT value FROM holdfast_meta WHERE name = 'epoch'"
SHAPE = """
SELECT table_name::text, column_name::text, data_type::text, is_nullable::text, column_default::text
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid), '', '' FROM pg_constraint
WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2, 3
"""


@pytest.fixture
def server(pg_server: Server) -> Server:
    """A server of which databases are used again, apart from those of other tests."""
    return Server(pg_server.dsn, passing=True)


async def test_a_store_is_used_again_as_new(server: Server) -> None:
    """Nothing of the life before is left, nobody is connected, and the tables are those of a new store."""
    stores = Stores(server)
    url = stores.take()
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY) as store:
        await store.kv("trivia").set("k", 1)
        await store.blobs("trivia").put("b", b"much")
    [before] = await postgres_session.run(url, EPOCH)
    open_still = await asyncpg.connect(url)
    await open_still.execute("BEGIN; UPDATE holdfast_meta SET value = value")
    stores.give_back(url)
    assert stores.take() == url
    for table in ("plugin_kv_storage", "holdfast_rows", "holdfast_parts", "holdfast_namespaces"):
        assert await postgres_session.run(url, f"SELECT FROM {table}") == []
    for table in ("holdfast_journal", "holdfast_meta"):
        assert await postgres_session.run(url, f"SELECT FROM {table}") == []
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await open_still.execute("SELECT 1")
    open_still.terminate()
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY) as store:
        assert await store.namespaces() == []
    assert await postgres_session.run(url, EPOCH) not in ([], [before])
    new = server.create_database()
    async with holdfast.open(new, reap=False, audit_key=AUDIT_KEY):
        pass
    assert await postgres_session.run(url, SHAPE) == await postgres_session.run(new, SHAPE)
    for made in (url, new):
        Server(server.dsn).drop_database(made)


CHANGES = (
    "UPDATE holdfast_alembic_version SET version_num = 'another'",
    "ALTER TABLE holdfast_rows ADD COLUMN more int",
    "ALTER TABLE holdfast_rows ALTER COLUMN created_at SET DEFAULT now()",
    "ALTER TABLE holdfast_meta SET (fillfactor = 50)",
    "DROP INDEX idx_rows_expires_at",
    "DROP VIEW plugin_kv",
    "CREATE INDEX another ON holdfast_meta (value)",
    "CREATE TABLE another ()",
    "GRANT SELECT ON holdfast_meta TO PUBLIC",
    "GRANT CREATE ON SCHEMA public TO PUBLIC",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql RETURN 1",
    "CREATE RULE r AS ON DELETE TO holdfast_meta DO INSTEAD NOTHING",
)


async def test_each_change_of_the_tables_is_seen(pg_store_url: str) -> None:
    """Whatever is changed beside rows gives another digest; rows do not."""
    connection = await asyncpg.connect(pg_store_url)
    before = await connection.fetchval(OBJECTS)
    for change in CHANGES:
        await connection.execute(f"BEGIN; {change}")
        assert await connection.fetchval(OBJECTS) != before, change
        await connection.execute("ROLLBACK")
    await connection.execute("INSERT INTO holdfast_meta VALUES ('more', 'x')")
    assert await connection.fetchval(OBJECTS) == before
    await connection.close()


@pytest.mark.parametrize("change", [CHANGES[0], "CREATE SCHEMA another"])
async def test_a_store_whose_tables_were_changed_is_not_used_again(server: Server, change: str) -> None:
    """A test that comes later gets another one."""
    stores = Stores(server)
    url = stores.take()
    await postgres_session.run(url, change)
    stores.give_back(url)
    assert stores._unused == []


def test_a_server_of_the_user_has_new_databases(
    pg_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that the environment names, a database is empty, and removed at the end."""
    monkeypatch.setenv(DSN_VARIABLE, pg_server.dsn)
    stores = Stores(shared_server(tmp_path))
    url = stores.take()
    assert postgres_session.run_now(url, "SELECT FROM pg_tables WHERE schemaname = 'public'") == []
    stores.give_back(url)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        postgres_session.run_now(url, "SELECT 1")
