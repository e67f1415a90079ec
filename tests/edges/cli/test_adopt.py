"""A database with another program's `plugin_kv_storage`: it is named, left alone, and adopted on demand."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import holdfast
from holdfast.engines.sql import adopting
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli

TABLE = """
CREATE TABLE plugin_kv_storage (
    plugin_name VARCHAR(100) NOT NULL,
    key VARCHAR(255) NOT NULL,
    {value} TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (plugin_name, key)
)
"""
INDEX = "CREATE INDEX idx_kv_expires_at ON plugin_kv_storage (expires_at)"
ADD = (
    "INSERT INTO plugin_kv_storage (plugin_name, key, {value}, expires_at, created_at, updated_at) VALUES "
    "('trivia', 'plain', '{{\"a\": 1}}', NULL, '2024-01-02 03:04:05', '2024-01-02 03:04:06.5'), "
    "('quote-db', 'kept', '[1, 2]', '2099-01-01 00:00:00+00:00', '2024-01-02 03:04:05', '2024-01-02'), "
    "('trivia', 'gone', '1', '2020-01-01 00:00:00', '2019-01-01 00:00:00', '2019-01-01 00:00:00'), "
    "('Bad Name', 'k', '1', NULL, '2024-01-02 03:04:05', '2024-01-02 03:04:05'), "
    "('Bad Name', 'l', '1', NULL, '2024-01-02 03:04:05', '2024-01-02 03:04:05'), "
    "('trivia', '', '1', NULL, '2024-01-02 03:04:05', '2024-01-02 03:04:05'), "
    "('trivia', 'broken', 'not json', NULL, '2024-01-02 03:04:05', '2024-01-02 03:04:05')"
)


def run(db: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as another program does, and return what the last one found."""

    async def on_postgres() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(db, server_settings={"timezone": "UTC"})
        for statement in statements:
            found = await connection.fetch(statement)
        await connection.close()
        return [tuple(row) for row in found]

    if db.startswith("postgresql"):
        return asyncio.run(on_postgres())
    with contextlib.closing(sqlite3.connect(db)) as connection, connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request: pytest.FixtureRequest, url: str) -> str:
    """A place for a store, empty."""
    return url if request.param == "sqlite" else str(request.getfixturevalue("pg_url"))


@pytest.fixture(params=["value", "value_json"])
def old(request: pytest.FixtureRequest, db: str) -> str:
    """A database with the table and the rows of a bot, and an index with a name that the store's has."""
    run(db, TABLE.format(value=request.param), INDEX, ADD.format(value=request.param))
    return db


def test_opening_names_the_table_and_the_command(cli: Cli, old: str) -> None:
    """No door opens such a database: each says what is there and what to do, and changes nothing."""
    if not old.startswith("postgresql"):
        Path(old).chmod(0o664)
    before = run(old, "SELECT * FROM plugin_kv_storage ORDER BY plugin_name, key")
    for command in (["get", "k"], ["set", "k", "1"], ["migrate", "up"]):
        refused = cli(*command, "--url", old)
        assert refused.code != 0
        assert "a table plugin_kv_storage with 7 rows that another program made" in refused.err
        assert "holdfast adopt" in refused.err

    async def opened() -> None:
        async with holdfast.open(old):
            pass

    with pytest.raises(Unsupported, match="run holdfast adopt"):
        asyncio.run(opened())
    checks = cli("doctor", "--url", old, "--json")
    [found] = [one for one in checks.json["checks"] if one["check"] == "schema"]
    assert checks.code == 1
    assert "plugin_kv_storage with 7 rows" in found["message"]
    assert "holdfast adopt" in found["advice"]
    assert run(old, "SELECT * FROM plugin_kv_storage ORDER BY plugin_name, key") == before
    if not old.startswith("postgresql"):
        assert stat.S_IMODE(Path(old).stat().st_mode) == 0o664
        assert [one.name for one in Path(old).parent.iterdir() if one.name.startswith(Path(old).name)] == [
            Path(old).name
        ]


def test_rows_times_and_deadlines_are_brought(cli: Cli, old: str) -> None:
    """One command makes a store of it: legal rows come whole, and the others are listed and counted."""
    dry = cli.did("adopt", "--db", old, "--dry-run", "--json").json
    assert (dry["dry_run"], dry["rows"], dry["adopted"]) == (True, 7, 2)
    assert cli("get", "plain", "--plugin", "trivia", "--url", old).code != 0
    report = cli.did("adopt", "--db", old, "--json").json
    assert report == dry | {"dry_run": False}
    assert cli.did("get", "kept", "--plugin", "quote-db", "--url", old).json == [1, 2]
    assert (report["expired"], report["skipped"]) == (1, 4)
    assert report["plugins"] == {"Bad Name": 2, "trivia": 2}
    assert {(one["plugin"], one["key"]) for one in report["left_out"]} == {
        *(("Bad Name", "k"), ("Bad Name", "l"), ("trivia", ""), ("trivia", "broken"))
    }

    async def looked() -> None:
        async with holdfast.open(old) as store:
            plain = await store.kv("trivia").get("plain")
            assert plain is not None
            assert plain.value == {"a": 1}
            assert plain.created_at == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
            assert plain.updated_at == datetime(2024, 1, 2, 3, 4, 6, 500_000, tzinfo=UTC)
            kept = await store.kv("quote-db").get("kept")
            assert kept is not None
            assert (kept.value, kept.expires_at) == ([1, 2], datetime(2099, 1, 1, tzinfo=UTC))
            written = await store.kv("trivia").set("plain", 2, expected_version=plain.version)
            assert written.version > plain.version
            held = {one.namespace: one.keys for one in await store.namespaces()}
            assert held == {"kv/quote-db": 1, "kv/trivia": 1}
            for name in held:
                assert await store.recount(name) == 0

    asyncio.run(looked())
    assert run(old, "SELECT count(*) FROM holdfast_adopted") == [(7,)]


def test_it_is_safe_to_run_twice(cli: Cli, old: str) -> None:
    """A second run finds nothing to do, and so does one on a store, an empty database or no file."""
    first = cli("adopt", "--db", old)
    assert first.code == 0
    assert "of 7 rows 2 were adopted, 4 left out because they break a rule" in first.err
    assert "the old table is kept as holdfast_adopted" in first.err
    assert first.out.splitlines()[0].startswith("Bad Name\tk\t")
    cli.did("set", "plain", "5", "--plugin", "trivia", "--url", old)
    again = cli("adopt", "--db", old)
    assert again.code == 0
    assert "there was nothing to do" in again.err
    assert cli.did("adopt", "--db", old, "--json").json["found"] is False
    assert cli.did("get", "plain", "--plugin", "trivia", "--url", old).out == "5\n"


def test_nothing_to_adopt_makes_nothing(cli: Cli, db: str) -> None:
    """An empty database stays empty, and no file is made."""
    assert "there was nothing to do" in cli("adopt", "--db", db).err
    assert cli.did("migrate", "current", "--db", db).out == "base\n"


def test_nothing_is_half_done(cli: Cli, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adoption that ends half way leaves the database as it was, and the next one does all of it."""
    judge = adopting.judged

    def fail(report: adopting.Report, *rest: Any) -> Any:
        if report.rows == 3:
            raise KeyboardInterrupt
        return judge(report, *rest)

    monkeypatch.setattr(adopting, "judged", fail)
    with pytest.raises(SystemExit):
        cli("adopt", "--db", old)
    assert run(old, "SELECT count(*) FROM plugin_kv_storage") == [(7,)]
    assert cli.did("migrate", "current", "--db", old).out == "base\n"
    monkeypatch.undo()
    assert cli.did("adopt", "--db", old, "--json").json["adopted"] == 2


def test_a_table_of_another_shape_is_not_adopted(cli: Cli, db: str) -> None:
    """A table that only has the name is left alone, and not taken for a bot's."""
    run(db, "CREATE TABLE plugin_kv_storage (id INTEGER, note TEXT)")
    assert cli.did("adopt", "--db", db, "--json").json["found"] is False
    refused = cli("set", "k", "1", "--url", db)
    assert refused.code != 0
    assert run(db, "SELECT * FROM plugin_kv_storage") == []
