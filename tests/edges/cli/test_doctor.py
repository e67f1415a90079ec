"""The doctor: every check is one line with what to do, and nothing is changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.cli.commands import doctor
from holdfast.engines.sql.migrate import Need
from tests.vanishing import unlinked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


def levels(outcome: Any) -> dict[str, str]:
    """The level of each check."""
    return {finding["check"]: finding["level"] for finding in outcome.json["checks"]}


def test_a_healthy_store(cli: Cli) -> None:
    """All is well: one line for each check, all of them ok but for the open mode, exit code 0."""
    cli.did("set", "k", "1")
    outcome = cli.did("doctor")
    found = [line.split()[:2] for line in outcome.out.splitlines()]
    names = "libraries disk fsync files schema store time writing signing audit key"
    assert found == [["warn", "access"], *(["ok", name] for name in names.split())]


def test_nothing_is_created(cli: Cli, tmp_path: Path) -> None:
    """Of a store that is not there yet the doctor says so, and makes none."""
    outcome = cli.did("doctor", "--json")
    assert levels(outcome)["schema"] == "warn"
    assert "store" not in levels(outcome)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_migrated(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of an older revision is not opened, since that would migrate it."""
    cli.did("set", "k", "1")
    monkeypatch.setattr(doctor, "needed", lambda found: Need.MIGRATE)
    outcome = cli.did("doctor")
    assert "holdfast migrate up" in outcome.out
    assert "opens" not in outcome.out


def test_a_newer_store_fails(cli: Cli, url: str) -> None:
    """What can't be used is a failure, with exit code 1."""
    cli.did("set", "k", "1")
    with contextlib.closing(sqlite3.connect(url)) as connection, connection:
        connection.execute("UPDATE holdfast_alembic_version SET version_num = '9999'")
    outcome = cli("doctor", "--json")
    assert (outcome.code, levels(outcome)["store"]) == (1, "fail")


def test_a_store_that_another_process_writes_to(cli: Cli, url: str) -> None:
    """Several processes may write to one file, so another that has it open is nothing to warn about."""

    async def checked() -> Any:
        async with holdfast.open(url):
            return await asyncio.to_thread(cli, "doctor", "--json")

    outcome = asyncio.run(checked())
    assert (outcome.code, levels(outcome)["writing"]) == (0, "ok")


def test_a_store_that_another_process_has_lost(cli: Cli, url: str, tmp_path: Path) -> None:
    """Of a file that was removed under a process the doctor says who still has it, and makes no new one."""

    async def removed() -> Any:
        async with holdfast.open(url) as store:
            await store.kv("p").set("k", 1)
            unlinked(tmp_path / "state.db")
            return await asyncio.to_thread(cli, "doctor", "--json")

    outcome = asyncio.run(removed())
    assert (outcome.code, levels(outcome)["schema"]) == (1, "fail")
    assert "holdfast rescue" in outcome.out
    assert "store" not in levels(outcome)
    assert not (tmp_path / "state.db").exists()


@pytest.mark.parametrize("kind", ["memory", "postgresql"])
def test_other_engines(cli: Cli, kind: str, request: pytest.FixtureRequest) -> None:
    """A store that keeps nothing on this machine's disk is checked without it."""
    url = "memory://" if kind == "memory" else request.getfixturevalue("pg_url")
    cli.did("set", "k", "1", "--plugin", "jobs", "--url", url)
    outcome = cli("doctor", "--url", url, "--json")
    assert outcome.code == 0
    assert {"store", "time", "writing"} <= levels(outcome).keys()
    assert ("offset" in levels(outcome)) is (kind == "postgresql")
    assert "fsync" not in levels(outcome)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_whose_time_is_ahead(cli: Cli, url: str, kind: str, request: pytest.FixtureRequest) -> None:
    """A store that was written with a clock a year ahead is told apart, with the cure; nothing is changed."""
    db = url if kind == "sqlite" else str(request.getfixturevalue("pg_url"))
    asyncio.run(written_in_the_future(db, days=366))
    for _ in range(2):
        outcome = cli("doctor", "--url", db, "--json")
        [finding] = [found for found in outcome.json["checks"] if found["check"] == "time"]
        assert (outcome.code, finding["level"]) == (0, "warn")
        assert "36" in finding["message"]
        assert "holdfast migrate --reset-clock" in finding["advice"]
    cli.did("migrate", "--reset-clock", "--db", db, "--yes")
    outcome = cli("doctor", "--url", db, "--json")
    assert levels(outcome)["time"] == "ok"


def test_the_doctor_leaves_the_time_alone(cli: Cli, url: str) -> None:
    """Looking at a store has nothing remembered, so that a wrong clock of the one who looks does no harm."""
    cli.did("set", "k", "1")

    def remembered() -> Any:
        with contextlib.closing(sqlite3.connect(url)) as connection:
            return connection.execute("SELECT value FROM holdfast_meta WHERE name = 'clock'").fetchone()

    before = remembered()
    assert before is not None
    cli.did("doctor")
    assert remembered() == before


def test_a_password_is_not_shown(cli: Cli) -> None:
    """What is printed may be shown to others."""
    outcome = cli("doctor", "--url", "postgresql://me:secret@127.0.0.1:1/db")
    assert outcome.code == 1
    assert "fail  store" in outcome.out
    assert "secret" not in outcome.out + outcome.err


def found(outcome: Any, check: str) -> tuple[str, str]:
    """The level and the message of a check."""
    [finding] = [finding for finding in outcome.json["checks"] if finding["check"] == check]
    return finding["level"], finding["message"]


@pytest.mark.parametrize("name", [".", "state.db", "state.db.lock", "state.db.ballast"])
def test_files_that_others_can_read(cli: Cli, tmp_path: Path, name: str) -> None:
    """A folder or a file that others can get at is named with its mode. The folder is left as it is."""
    cli.did("set", "k", "1")
    before = (tmp_path / name).stat().st_mode
    (tmp_path / name).chmod(before | 0o050)
    level, message = found(cli.did("doctor", "--json"), "files")
    assert level == "warn"
    assert f"{(tmp_path / name).absolute()} (mode 0" in message
    assert message.count("mode") == 1
    assert name != "." or tmp_path.stat().st_mode == before | 0o050


def test_files_of_another_user(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that belongs to somebody else is told of."""
    cli.did("set", "k", "1")
    if os.geteuid() == 0:
        os.chown(tmp_path / "state.db.lock", 54321, -1)
    else:
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    level, message = found(cli.did("doctor", "--json"), "files")
    assert level == "warn"
    assert f"{tmp_path / 'state.db.lock'} belongs to" in message


def test_open_mode(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can do what to a service with the present settings is said plainly."""
    level, message = found(cli("doctor", "--json"), "access")
    assert level == "warn"
    for part in ("open mode", "any process on this machine", "read, write and administer", "take requests"):
        assert part in message
    monkeypatch.setenv("HOLDFAST_NATS", "nats://127.0.0.1:1")
    level, message = found(cli("doctor", "--json"), "access")
    assert (level, "everybody whom the NATS server lets in" in message) == ("warn", True)
    monkeypatch.setenv("HOLDFAST_REPLY_MODE", "accounts")
    assert found(cli("doctor", "--json"), "access")[0] == "ok"
    monkeypatch.delenv("HOLDFAST_NATS")
    assert found(cli("doctor", "--json"), "access")[0] == "warn", "a server without a configuration"


def test_a_service_without_nats(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that turn NATS off are named, and what others can do then is said without NATS."""
    monkeypatch.setenv("HOLDFAST_NO_NATS", "true")
    outcome = cli.did("doctor", "--json")
    assert found(outcome, "nats") == ("ok", "holdfast up serves HTTP alone: no_nats is set")
    level, message = found(outcome, "access")
    assert level == "warn"
    assert "any process on this machine can read, write and administer all data" in message
    assert "take requests" not in message


def test_the_audit_key(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that others can read is a warning; one that can't be used is a failure, since writes fail too."""
    cli.did("set", "k", "1")
    assert found(cli.did("doctor", "--json"), "key")[0] == "ok"
    key = tmp_path / "state.db.audit-key"
    key.write_text("0123456789abcdef\n")
    key.chmod(0o644)
    level, message = found(cli("doctor", "--json"), "key")
    assert (level, str(key) in message) == ("warn", True)
    key.chmod(0o600)
    assert found(cli.did("doctor", "--json"), "key")[0] == "ok"
    for content in (b"short", b"\xff" * 32):
        key.write_bytes(content)
        outcome = cli("doctor", "--json")
        assert (outcome.code, found(outcome, "key")[0]) == (1, "fail")
    monkeypatch.setenv("HOLDFAST_AUDIT_KEY_FILE", str(tmp_path / "nowhere"))
    outcome = cli("doctor", "--json")
    assert (outcome.code, found(outcome, "key")[0]) == (1, "fail")
    assert "no such file" in found(outcome, "key")[1]
    monkeypatch.delenv("HOLDFAST_AUDIT_KEY_FILE")
    monkeypatch.setenv("HOLDFAST_AUDIT_KEY", "short")
    assert found(cli("doctor", "--json"), "key")[0] == "fail"


async def test_nats_is_reached() -> None:
    """A server that greets as NATS does is found, also as the second of two addresses."""
    async with _server(b'INFO {"server_id":"x"} \r\n') as port:
        finding = await doctor.check_nats(f"nats://127.0.0.1:1,127.0.0.1:{port}")
        assert (finding.level, str(port) in finding.message) == ("ok", True)
    async with _server(b"HTTP/1.1 200 OK\r\n") as port:
        assert (await doctor.check_nats(f"nats://127.0.0.1:{port}")).level == "fail"
    assert (await doctor.check_nats("nats://me:secret@host:port")).message == "no server answers at host:port"


def test_nats_is_looked_for_when_configured(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is named but does not answer is a failure; one that is not named is not missed."""
    assert "nats" not in levels(cli("doctor", "--json"))
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    outcome = cli("doctor", "--json")
    assert (outcome.code, levels(outcome)["nats"]) == (1, "fail")


@pytest.mark.parametrize(("free", "level"), [(1024**4, "ok"), (500 * 1024**2, "warn"), (1024, "fail")])
def test_room_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    """Little room is a warning, hardly any is a failure."""
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(free))
    assert doctor.check_disk(tmp_path).level == level


def test_slow_and_forbidden_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes long to keep a write is a warning; a folder that takes none is a failure."""
    monkeypatch.setattr(doctor, "SLOW_SYNC", -1.0)
    assert doctor.check_sync(tmp_path).level == "warn"
    assert doctor.check_sync(tmp_path / "missing").level == "fail"
    assert list(tmp_path.iterdir()) == []


def test_clocks_that_disagree() -> None:
    """A storage whose clock differs from this machine's by more than a second is a warning."""
    assert [doctor.check_offset(milliseconds).level for milliseconds in (0, -5000)] == ["ok", "warn"]


def test_libraries_that_are_missing_or_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A required library that is missing or too old is a failure; one of an extra may be missing."""
    wanted = ["msgspec>=99.1", "no-such-library>=1", 'neither-this>=1; extra == "server"']
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    finding = doctor.check_libraries()
    assert finding.level == "fail"
    assert "no-such-library is missing" in finding.message
    assert "older than 99.1" in finding.message
    assert "neither-this" not in finding.message


def test_an_old_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite that can't hold a store is a failure."""
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 36, 0))
    finding = doctor.check_libraries()
    assert (finding.level, "is older than" in finding.message) == ("fail", True)
    assert "use a Python with SQLite" in str(finding.advice)


async def written_in_the_future(db: str, *, days: int) -> None:
    """Write to a store and read, by a clock that is far ahead."""
    clock = ManualClock(round(time.time() * 1000) + days * 86_400_000)
    async with holdfast.open(db, clock=clock, reap=False) as store:
        await store.kv("cli").set("k", 1, ttl=60)


@contextlib.asynccontextmanager
async def _server(greeting: bytes) -> Any:
    """The port of a server that says one thing to everybody."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1]
