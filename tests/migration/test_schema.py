"""The schema is one thing said three times: by the model, by the rendered scripts and by the migrations.

What the databases themselves say of their tables is compared here, never what SQLAlchemy says of them.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast.engines.sql import layout, migrate
from tools.pages import schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TABLES = [
    *("holdfast_journal", "holdfast_meta", "holdfast_namespaces", "holdfast_parts", "holdfast_rows"),
    "plugin_kv_storage",
]

KEYS = ["Z", "a", "B", "é", "z", "Å", "\U0001f600", "_", "%", "zz", "a-b", "aB", "\uffff", "0"]

PG_CATALOG = {
    "columns": """
        SELECT table_name, ordinal_position, column_name, data_type, character_maximum_length, is_nullable,
               column_default, collation_name
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 2",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2
    """,
    "triggers": """
        SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1
    """,
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace ORDER BY 1
    """,
    "options": """
        SELECT relname, relkind::text, reloptions FROM pg_class
        WHERE relnamespace = 'public'::regnamespace ORDER BY 1
    """,
}


@pytest.fixture
def created() -> Iterator[sqlite3.Connection]:
    """A SQLite database made by the rendered script."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(layout.ddl("sqlite"))
        yield connection


@pytest.fixture
async def pg_created(pg_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A PostgreSQL database made by the rendered script, its session in a timezone that is not UTC."""
    connection = await asyncpg.connect(pg_url, server_settings={"timezone": "Asia/Kolkata"})
    await connection.execute(layout.ddl("postgresql"))
    yield connection
    await connection.close()


def sqlite_catalog(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return {(kind, name, " ".join(sql.split())) for kind, name, sql in found}


async def pg_catalog(connection: asyncpg.Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {part: [tuple(row) for row in await connection.fetch(query)] for part, query in PG_CATALOG.items()}


def without_alembic(catalog: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    return {part: [row for row in rows if "alembic" not in row[0]] for part, rows in catalog.items()}


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_rendered_scripts_are_current(dialect: str) -> None:
    """A store is created from the rendered script, so it must be what the schema says today."""
    assert layout.ddl(dialect) == schema.render(dialect), "run ./dev pages"


def test_sqlite_script_migrations_and_model_agree(created: sqlite3.Connection) -> None:
    """In SQLite a created store, a migrated store and the model are the same, to the letter."""
    with closing(sqlite3.connect(":memory:")) as migrated:
        migrate.upgrade_sqlite(migrated)
        assert sqlite_catalog(migrated) == sqlite_catalog(created)
        version = "SELECT version_num FROM holdfast_alembic_version"
        assert migrated.execute(version).fetchall() == created.execute(version).fetchall() == [("0007",)]
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        schema.metadata.create_all(connection)
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        ours = {row for row in sqlite_catalog(created) if "alembic" not in row[1]}
        assert sqlite_catalog(raw) == ours
    engine.dispose()


async def test_postgres_script_migrations_and_model_agree(
    pg_created: asyncpg.Connection, pg_url: str
) -> None:
    """In PostgreSQL a created store, a migrated store and the model have the same catalogue."""
    created = await pg_catalog(pg_created)
    version = "SELECT version_num FROM holdfast_alembic_version"
    assert await pg_created.fetchval(version) == "0007"

    await empty(pg_created)
    await migrate.upgrade_postgres(pg_url)
    assert await pg_catalog(pg_created) == created
    assert await pg_created.fetchval(version) == "0007"

    await empty(pg_created)
    engine = create_async_engine("postgresql+asyncpg://", connect_args={"dsn": pg_url})
    async with engine.begin() as transaction:
        await transaction.run_sync(schema.metadata.create_all)
    await engine.dispose()
    assert await pg_catalog(pg_created) == without_alembic(created)


async def empty(connection: asyncpg.Connection) -> None:
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def test_sqlite_tables_are_strict_and_without_rowid(created: sqlite3.Connection) -> None:
    """Every table of ours checks its types and is stored by its primary key, but for large rows."""
    listed = created.execute("SELECT name, wr, strict FROM pragma_table_list WHERE type = 'table'").fetchall()
    ours = {name: (without_rowid, strict) for name, without_rowid, strict in listed if name in TABLES}
    assert ours == dict.fromkeys(TABLES, (1, 1)) | {"holdfast_parts": (0, 1)}


def test_sqlite_types_are_plain(created: sqlite3.Connection) -> None:
    """Columns have one of three types, none of which limits a length."""
    query = "SELECT DISTINCT type FROM pragma_table_info(?)"
    types = {kind for table in TABLES for (kind,) in created.execute(query, (table,))}
    assert types == {"INTEGER", "TEXT", "BLOB"}


def test_sqlite_refuses_text_for_a_number(created: sqlite3.Connection) -> None:
    """A column of numbers holds numbers: text in it is refused by the database itself."""
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value in INTEGER column"):
        created.execute(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json, expires_at) "
            "VALUES ('trivia', 'k', '1', '2030-01-01 00:00:00')"
        )


def test_only_the_deadlines_have_an_index(created: sqlite3.Connection) -> None:
    """A write touches no index but the primary key and, for a row with a deadline, that of the deadlines."""
    query = "SELECT name, partial FROM pragma_index_list(?) WHERE origin = 'c'"
    found = {table: created.execute(query, (table,)).fetchall() for table in TABLES}
    assert {table: indexes for table, indexes in found.items() if indexes} == {
        "plugin_kv_storage": [("idx_kv_expires_at", 1)],
        "holdfast_rows": [("idx_rows_expires_at", 1)],
    }


def test_sqlite_defaults_complete_a_row(created: sqlite3.Connection) -> None:
    """A row written past Holdfast gets its times in milliseconds, a version and the outside writer."""
    before = time.time_ns() // 1_000_000
    created.execute(
        "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', 'k', '1')"
    )
    after = time.time_ns() // 1_000_000
    row = created.execute(
        "SELECT created_at, updated_at, version, last_writer, expires_at FROM plugin_kv_storage"
    ).fetchone()
    assert before <= row[0] == row[1] <= after
    assert row[2:] == (1, layout.OUTSIDE_WRITER, None)


async def test_postgres_defaults_complete_a_row(pg_created: asyncpg.Connection) -> None:
    """A row written past Holdfast gets the database's time, a version and the outside writer."""
    async with pg_created.transaction():
        await pg_created.execute(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', 'k', '1')"
        )
        (row,) = await pg_created.fetch(
            "SELECT created_at = now(), updated_at = now(), version, last_writer, expires_at "
            "FROM plugin_kv_storage"
        )
    assert tuple(row) == (True, True, 1, layout.OUTSIDE_WRITER, None)


def test_sqlite_keys_are_ordered_by_bytes(created: sqlite3.Connection) -> None:
    """Keys come in the order of their UTF-8 bytes from SQLite."""
    created.executemany(
        "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', ?, '1')",
        [(key,) for key in KEYS],
    )
    found = [key for (key,) in created.execute("SELECT key FROM plugin_kv_storage ORDER BY key")]
    assert found == sorted(KEYS, key=str.encode)


async def test_postgres_keys_are_ordered_by_bytes(pg_created: asyncpg.Connection) -> None:
    """Keys come in the order of their UTF-8 bytes from PostgreSQL, whatever the database's own order is."""
    await pg_created.executemany(
        "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', $1, '1')",
        [(key,) for key in KEYS],
    )
    found = [key for (key,) in await pg_created.fetch("SELECT key FROM plugin_kv_storage ORDER BY key")]
    assert found == sorted(KEYS, key=str.encode)
    collated = await pg_created.fetch(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND collation_name = 'C' AND table_name != 'plugin_kv' ORDER BY 1, 2"
    )
    assert [tuple(row) for row in collated] == [
        ("holdfast_journal", "key"),
        ("holdfast_journal", "namespace"),
        ("holdfast_meta", "name"),
        ("holdfast_namespaces", "name"),
        ("holdfast_parts", "namespace"),
        ("holdfast_parts", "space"),
        ("holdfast_rows", "namespace"),
        ("holdfast_rows", "space"),
        ("plugin_kv_storage", "key"),
        ("plugin_kv_storage", "plugin_name"),
    ]


async def test_postgres_namespaces_leave_room_in_their_pages(pg_created: asyncpg.Connection) -> None:
    """The row of a namespace changes with every group, and finds room in its page for that."""
    options = await pg_created.fetchval(
        "SELECT reloptions FROM pg_class WHERE relname = 'holdfast_namespaces'"
    )
    assert options == ["fillfactor=20"]


async def test_view_has_the_columns_of_the_table(
    created: sqlite3.Connection, pg_created: asyncpg.Connection
) -> None:
    """The view shows every column of the table, in the table's order, and no time where there is none."""
    created.execute(
        "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', 'k', '1')"
    )
    table, view = (created.execute(f"SELECT * FROM {name}") for name in ("plugin_kv_storage", "plugin_kv"))
    assert [column[0] for column in view.description] == [column[0] for column in table.description]
    assert created.execute("SELECT expires_at FROM plugin_kv").fetchone() == (None,)

    columns = [
        [attribute.name for attribute in (await pg_created.prepare(f"SELECT * FROM {name}")).get_attributes()]
        for name in ("plugin_kv_storage", "plugin_kv")
    ]
    assert columns[0] == columns[1]
