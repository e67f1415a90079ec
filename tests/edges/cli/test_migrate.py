"""Revisions of the schema: looking changes nothing, going up is safe, going down asks first."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.engines.sql.layout import KNOWN_REVISIONS, SCHEMA_REVISION
from tests.edges.cli.test_doctor import written_in_the_future

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request: pytest.FixtureRequest, url: str) -> str:
    """A place for a store, empty."""
    return url if request.param == "sqlite" else str(request.getfixturevalue("pg_url"))


def test_up_and_down_and_up_again(cli: Cli, db: str) -> None:
    """A store is made, known by its revision, taken back to an empty database, and made again."""
    assert cli.did("migrate", "current", "--db", db).out == "base\n"
    checked = cli.did("migrate", "current", "--db", db, "--json").json
    assert checked == {"revision": "base", "newest": SCHEMA_REVISION}
    assert cli("migrate", "check", "--db", db).code == 1
    made = cli("migrate", "up", "--db", db)
    assert (made.code, made.out, made.err) == (0, f"{SCHEMA_REVISION}\n", "holdfast: migrated from base\n")
    assert cli("migrate", "up", "--db", db).err == "holdfast: there was nothing to do\n"
    assert cli.did("migrate", "check", "--db", db).out == f"{SCHEMA_REVISION} is up to date\n"
    cli.did("set", "k", "1", "--url", db)
    assert cli("migrate", "down", "base", "--db", db).code == 2
    assert cli.did("get", "k", "--url", db).out == "1\n"
    down = cli.did("migrate", "down", "base", "--db", db, "--yes", "--json").json
    assert down == {"before": SCHEMA_REVISION, "revision": "base"}
    assert cli.did("migrate", "current", "--url", db).out == "base\n"
    up = cli.did("migrate", "up", "--db", db, "--json").json
    assert up == {"before": "base", "revision": SCHEMA_REVISION}
    assert cli("get", "k", "--url", db).code == 3


def test_looking_creates_nothing(cli: Cli, url: str, tmp_path: Path) -> None:
    """To ask for the revision of a file that is not there makes no file."""
    cli.did("migrate", "current")
    assert cli("migrate", "check", "--json").json == {
        "revision": "base",
        "newest": SCHEMA_REVISION,
        "needed": "create",
    }
    assert list(tmp_path.iterdir()) == []


def test_going_down_must_lead_down(cli: Cli, url: str) -> None:
    """One step back is the default; where there is nothing older, or no such revision, it is refused."""
    assert cli("migrate", "down", "--yes").code == 2
    cli("migrate", "up")
    for revision in (SCHEMA_REVISION, "9999"):
        refused = cli("migrate", "down", revision, "--yes")
        assert (refused.code, "older revisions are: base" in refused.err) == (2, True)
    asked = cli("migrate", "down")
    assert (asked.code, "loses data" in asked.err, "--yes" in asked.err) == (2, True, True)
    assert cli.did("migrate", "down", "--yes").out == f"{KNOWN_REVISIONS[-2]}\n"
    asked = cli("migrate", "down", "base")
    assert (asked.code, "every entry" in asked.err, "--yes" in asked.err) == (2, True, True)
    assert cli.did("migrate", "down", "base", "--yes").out == "base\n"


def test_a_newer_store_is_left_alone(cli: Cli, url: str) -> None:
    """A store of a later Holdfast is neither migrated nor taken back."""
    cli("migrate", "up")
    with contextlib.closing(sqlite3.connect(url)) as connection, connection:
        connection.execute("UPDATE holdfast_alembic_version SET version_num = '9999'")
    assert cli.did("migrate", "current").out == "9999\n"
    for command in (["check"], ["up"], ["down", "--yes"]):
        refused = cli("migrate", *command)
        assert (refused.code, "newer Holdfast" in refused.err) == (1, True)


def test_no_migration_under_a_writer(cli: Cli, url: str) -> None:
    """While a process writes to a file, its schema is not taken back."""

    async def refused() -> int:
        async with holdfast.open(url):
            return (await asyncio.to_thread(cli, "migrate", "down", "--yes")).code

    assert asyncio.run(refused()) == 5


def test_a_file_of_another_kind_is_no_empty_store(cli: Cli, tmp_path: Path) -> None:
    """A file of another kind is told from an empty place."""
    (tmp_path / "state.db").write_text("not a database, but quite a long text about something else entirely")
    refused = cli("migrate", "current")
    assert (refused.code, "is not a database" in refused.err) == (1, True)


@pytest.mark.parametrize("db", ["memory://", "sqlite://", "sqlite:///:memory:"])
def test_stores_without_a_schema(cli: Cli, db: str) -> None:
    """A store that keeps nothing has nothing to migrate."""
    assert cli("migrate", "up", "--db", db).code == 1


def test_an_unreachable_database(cli: Cli) -> None:
    """A server that is not there is worth another try later."""
    address = "postgresql://nobody@127.0.0.1:1/x"
    assert cli("migrate", "current", "--db", address).code == 5
    assert cli("migrate", "down", "--yes", "--db", address).code == 5


def test_resetting_the_clock(cli: Cli, db: str) -> None:
    """A store that was written a year ahead goes on from the present, and so do its versions."""
    asyncio.run(written_in_the_future(db, days=366))
    refused = cli("migrate", "--reset-clock", "--db", db)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    done = cli.did("migrate", "--reset-clock", "--db", db, "--yes", "--json").json
    before, after = (datetime.fromisoformat(done[name]) for name in ("before", "after"))
    assert timedelta(days=365) < before - after < timedelta(days=367)
    assert abs(datetime.now(UTC) - after) < timedelta(minutes=5)
    assert done["namespaces"] == 1
    written = asyncio.run(_written(db))
    assert written.version == 2
    assert abs(datetime.now(UTC) - written.updated_at) < timedelta(minutes=5)
    again = cli.did("migrate", "--reset-clock", "--db", db, "--yes")
    assert again.out.endswith("namespaces whose last change was later: 0\n")


def test_resetting_the_clock_of_a_store_in_use(cli: Cli, db: str) -> None:
    """Whoever has the store open would have the old time remembered again: it is refused."""

    async def refused() -> Any:
        async with holdfast.open(db) as store:
            await store.kv("a").set("k", 1)
            return await asyncio.to_thread(cli, "migrate", "--reset-clock", "--db", db, "--yes")

    outcome = asyncio.run(refused())
    assert (outcome.code, "stop" in outcome.err) == (5, True)


def test_resetting_the_clock_of_nothing(cli: Cli, db: str) -> None:
    """A database that holds no store is left as it is."""
    assert cli("migrate", "--reset-clock", "--db", db, "--yes").code == 2
    assert cli.did("migrate", "current", "--db", db).out == "base\n"


async def _written(db: str) -> holdfast.Entry:
    async with holdfast.open(db, reap=False) as store:
        return await store.kv("cli").set("k", 2, expected_version=1)
