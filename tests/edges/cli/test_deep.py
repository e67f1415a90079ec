"""`holdfast doctor --deep`: what is corrupt, missing or miscounted in a store is found."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.cli.commands import doctor
from holdfast.edges.cli.schema import schema_of
from holdfast.registry import engine_for
from holdfast.store import Store
from tests.vanishing import entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.edges.cli.conftest import Cli, Outcome

TRIALS = int(os.environ.get("HOLDFAST_CORRUPTION_TRIALS", "25"))
ENTRIES = 1_000
PAGE = 4096
SECRET = "a-secret-of-these-tests"
SOUND = ["pages", "values", "counters", "audit"]


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the disk for a moment only."""
    monkeypatch.setattr(doctor, "SYNCS", 1)


def found(outcome: Outcome) -> list[tuple[str, str]]:
    """What was found deep down: checks and levels."""
    return [(one["check"], one["level"]) for one in outcome.json["checks"] if one["check"] in SOUND]


async def fill(url: str, audit_key: str | None = None) -> None:
    """A bit of everything that a store can hold."""
    async with holdfast.open(url, audit_key=audit_key) as store:
        kv, project, tables = store.kv("jobs"), store.semantic("acme", "web"), store.tables("jobs")
        await kv.set("plain", {"a": [1, 2.5, None]})
        await kv.set("expired", 1, ttl=1)
        await kv.incr("n", request_id="r1")
        await store.set_policy("kv/jobs", {"audit": True, "trash": True})
        await kv.set("kept", "x" * 30_000, semantics={"purpose": "config"})
        await kv.delete("kept")
        await project.set("k", 1)
        async with kv.lock("door"):
            pass
        await tables.create_table("t", partition_key=("user", "string"), ttl_attribute="ends")
        await tables.create_index("t", "by_n", key=("n", "number"))
        for number in range(5):
            await tables.put_item("t", {"user": f"u{number}", "n": number, "ends": number % 2})
        await tables.create_table("gone", partition_key=("user", "string"))
        await tables.put_item("gone", {"user": "a"})
        await tables.drop_table("gone")
        blobs = store.blobs("jobs")
        await store.set_policy("blob/jobs", {"trash": True})
        for name in ("one", "two", "trashed", "replaced", "replaced"):
            await blobs.put(name, name.encode() * 100_000)
        await blobs.put("empty", b"")
        await blobs.copy("one", "copy")
        await blobs.delete("trashed")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has been filled."""
    folder = tmp_path_factory.mktemp("template")
    asyncio.run(fill(str(folder / "state.db")))
    return folder


@pytest.fixture
def filled(template: Path, url: str) -> None:
    """A bit of everything in the store of a test."""
    shutil.copytree(template, Path(url).parent, dirs_exist_ok=True)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_sound_store(
    cli: Cli, kind: str, url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is found where nothing is wrong, whatever a store holds, be it expired or dropped."""
    address = url if kind == "sqlite" else request.getfixturevalue("pg_url")
    monkeypatch.setenv("HOLDFAST_AUDIT_KEY", SECRET)
    asyncio.run(fill(address, SECRET))
    outcome = cli("doctor", "--deep", "--json", "--url", address)
    assert found(outcome) == [(check, "ok") for check in SOUND]
    assert outcome.code == 0
    assert "pages" not in cli("doctor", "--url", address).out


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ("DELETE FROM holdfast_rows WHERE space LIKE 'item/%' AND instr(key, x'7531')", "counters"),
        ("UPDATE holdfast_namespaces SET bytes = bytes + 1 WHERE name = 'semantic/acme/web'", "counters"),
        ("UPDATE plugin_kv_storage SET value_json = '{' WHERE key = 'n'", "values"),
        ("UPDATE plugin_kv_storage SET semantics = 'no' WHERE key = 'plain'", "values"),
        ("UPDATE holdfast_rows SET value = '{' WHERE space = 'table'", "values"),
        (
            "UPDATE holdfast_rows SET value = replace(value, 'embedded', 'nobody') WHERE space = 'audit'",
            "audit",
        ),
        ("DELETE FROM holdfast_namespaces WHERE name = 'kv/jobs'", "pages"),
        ("DELETE FROM holdfast_namespaces WHERE name = 'semantic/acme/web'", "audit"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_a_deep_check_tells_kinds_of_damage_apart(cli: Cli, url: str, change: str, check: str) -> None:
    """Missing rows, unreadable values, wrong counters, broken audits and lost namespaces are told apart."""
    with contextlib.closing(sqlite3.connect(url)) as connection, connection:
        assert connection.execute(change).rowcount
    outcome = cli("doctor", "--deep", "--json")
    assert outcome.code == 1
    assert (check, "fail") in found(outcome)


@pytest.mark.usefixtures("filled")
def test_a_corrupt_page(cli: Cli, url: str) -> None:
    """A page that SQLite finds fault with fails, also one that no value is read from."""
    with contextlib.closing(sqlite3.connect(url)) as connection:
        [root] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'idx_rows_expires_at'"
        ).fetchone()
    with open(url, "r+b") as file:
        file.seek((root - 1) * PAGE + 8)
        file.write(bytes(200))
    outcome = cli("doctor", "--deep", "--json")
    assert (outcome.code, ("pages", "fail") in found(outcome)) == (1, True)


def test_a_store_that_is_elsewhere_or_nowhere(cli: Cli) -> None:
    """What has no pages to look at is said to be unchecked."""
    outcome = cli("doctor", "--deep", "--json", "--url", "memory://")
    assert (outcome.code, found(outcome)[0]) == (0, ("pages", "warn"))


async def test_a_namespace_that_changes_all_the_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that can't be compared with rows of the same instant are not said to be wrong."""
    async with holdfast.open(url) as writer:
        await writer.kv("jobs").set("k", 1)
        engine = engine_for(url)
        async with Store(engine, reap=False) as store:
            scan = engine.scan

            async def scan_and_write(*arguments: Any) -> Any:
                page = await scan(*arguments)
                await writer.kv("jobs").incr("n")
                return page

            monkeypatch.setattr(engine, "scan", scan_and_write)
            levels = {finding.check: finding.level for finding in await doctor.check_contents(store)}
    assert levels == {"pages": "ok", "values": "ok", "counters": "warn", "audit": "ok"}


def _random_page(chance: random.Random, page: bytes, pages: Callable[[], bytes]) -> bytes:
    return chance.randbytes(PAGE)


def _zeros(chance: random.Random, page: bytes, pages: Callable[[], bytes]) -> bytes:
    return bytes(PAGE)


def _another(chance: random.Random, page: bytes, pages: Callable[[], bytes]) -> bytes:
    """What belongs elsewhere, as from a disk that writes to the wrong place."""
    return pages()


def _part(chance: random.Random, page: bytes, pages: Callable[[], bytes]) -> bytes:
    """A sector of it is lost."""
    start = chance.randrange(PAGE // 512) * 512
    return page[:start] + chance.randbytes(512) + page[start + 512 :]


SPOILING = (_random_page, _zeros, _another, _part)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store with a thousand entries, and what was written."""
    path = tmp_path_factory.mktemp("sound") / "store.db"

    async def write() -> dict[str, Any]:
        chance = random.Random(7)
        async with holdfast.open(path) as store:
            items = [
                {"key": f"k{number:05}", "value": "v" * chance.choice([5, 50, 500])}
                for number in range(ENTRIES)
            ]
            items[50]["value"] = "large " * 5_000
            for start in range(0, ENTRIES, 500):
                await store.kv("p").set_many(items[start : start + 500])
        return {item["key"]: item["value"] for item in items}

    return path, asyncio.run(write())


async def test_corrupt_pages_are_found(sound: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Whenever overwritten pages make an entry vanish or change, the deep check reports something."""
    original, written = sound
    harmed, silent = 0, 0
    for trial in range(TRIALS):
        path, chance = tmp_path / f"{trial}.db", random.Random(trial)
        shutil.copy(original, path)
        _spoil(path, chance)
        reads, told = await _read(path), await _told(path)
        harmed += reads != written
        silent += isinstance(reads, dict) and reads != written
        assert told or reads == written, f"trial {trial}: {SPOILING[trial % len(SPOILING)].__name__}"
    print(f"trials {TRIALS}, with harm {harmed}, of which reads said nothing {silent}, all found")
    assert harmed > TRIALS / 4


def _spoil(path: Path, chance: random.Random) -> None:
    """Overwrite one to three pages, but not the first: without that there is no database."""
    data = path.read_bytes()
    count = len(data) // PAGE

    def another() -> bytes:
        number = chance.randrange(1, count)
        return data[number * PAGE : (number + 1) * PAGE]

    spoil = SPOILING[int(path.stem) % len(SPOILING)]
    with path.open("r+b") as file:
        for number in chance.sample(range(1, count), chance.randint(1, 3)):
            file.seek(number * PAGE)
            file.write(spoil(chance, data[number * PAGE : (number + 1) * PAGE], another))


async def _read(path: Path) -> dict[str, Any] | None:
    """What a caller who lists everything is given; None if that is an error."""
    try:
        async with holdfast.open(path, reap=False) as store:
            return await entries(store)
    except Exception:  # a corrupt page may lead to anything, but not to silence
        return None


async def _told(path: Path) -> list[str]:
    """What the deep check complains about."""
    assert schema_of(str(path)).file == path
    engine = engine_for(path)
    try:
        async with Store(engine, reap=False) as store:
            return [
                finding.message for finding in await doctor.check_contents(store) if finding.level == "fail"
            ]
    except holdfast.HoldfastError as error:  # it does not even open, which the doctor tells as well
        return [error.message]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE holdfast_parts SET data = zeroblob(length(data)) WHERE key = x'00000001'", "were changed"),
        ("DELETE FROM holdfast_parts WHERE key = x'00000000'", "bytes"),
        ("DELETE FROM holdfast_rows WHERE space = 'upload'", "are missing"),
        (
            "UPDATE plugin_kv_storage SET value_json = replace(value_json, '\"size\":', '\"size\":1') "
            "WHERE plugin_name = 'blob/jobs'",
            "bytes",
        ),
        ("UPDATE plugin_kv_storage SET value_json = '{}' WHERE plugin_name = 'blob/jobs'", "manifest"),
        ("DELETE FROM plugin_kv_storage WHERE key = 'copy'", "too often"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_blobs_that_are_not_what_was_put(cli: Cli, url: str, sql: str, told: str) -> None:
    """Bytes, manifests and references that SQL has changed are found, and the blob is named."""
    with contextlib.closing(sqlite3.connect(url)) as file, file:
        file.execute(sql)
    outcome = cli("doctor", "--deep", "--json", "--url", url)
    failed = [one["message"] for one in outcome.json["checks"] if one["level"] == "fail"]
    assert any(told in message and "blob/jobs" in message for message in failed), failed
    assert outcome.code != 0


def test_a_file_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    """A check of a store that does not exist has checked nothing, which is a failure; none is made."""
    found = cli("doctor", "--deep", "--url", tmp_path / "missing.db", "--json")
    [schema] = [one for one in found.json["checks"] if one["check"] == "schema"]
    assert (found.code, schema["level"], "there is no store" in schema["message"]) == (1, "fail", True)
    assert not (tmp_path / "missing.db").exists()
    assert cli("doctor", "--url", tmp_path / "missing.db").code == 0
