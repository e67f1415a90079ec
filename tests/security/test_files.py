"""What Holdfast leaves on disk is for its owner's eyes only, and no link leads it to another file."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.errors import Unavailable
from tests.edges.cli.conftest import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN_TO_ALL, CLOSED_TO_ALL = 0o000, 0o777
"""The two extremes of a umask: one takes nothing away, the other everything."""


@pytest.fixture(params=[OPEN_TO_ALL, CLOSED_TO_ALL], ids=["umask 000", "umask 777"])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run under one of the two."""
    before = os.umask(request.param)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The command line as a program, in whose folder nothing is yet."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "NATS_"))}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"  # else compiled modules would get the modes of this test
    return Program({**kept, "XDG_DATA_HOME": str(tmp_path / "home" / "share"), "HOLDFAST_PLUGIN": "p"})


def modes(folder: Path) -> dict[str, str]:
    """The mode of everything in a folder, which may be a folder itself."""
    return {path.name: oct(stat.S_IMODE(path.lstat().st_mode)) for path in sorted(folder.rglob("*"), key=str)}


async def written(path: Path) -> None:
    """Open a store, write, and close it."""
    async with holdfast.open(path) as store:
        await store.kv("p").set("k", 1)


@pytest.mark.usefixtures("any_umask")
async def test_every_file_of_a_store_is_private(tmp_path: Path) -> None:
    """Database, log, locks, ballast, the audit's key and a copy: nobody but the owner can get at one."""
    async with holdfast.open(tmp_path / "s.db") as store:
        await store.set_policy("kv/p", {"audit": True})
        await store.kv("p").set("k", 1)
        await store.rescue(str(tmp_path / "copy.db"))
        found = modes(tmp_path)
    suffixes = ("", "-shm", "-wal", ".audit-key", ".ballast", ".lock", ".turn", ".upkeep")
    names = ("copy.db", *(f"s.db{suffix}" for suffix in suffixes))
    assert found == dict.fromkeys(names, "0o600")


@pytest.mark.parametrize("umask", [OPEN_TO_ALL, CLOSED_TO_ALL])
def test_folders_and_exports_are_private(program: Program, tmp_path: Path, umask: int) -> None:
    """A folder that a command makes is for the owner alone, and so is what it exports."""
    assert program.run("set", "k", "1", umask=umask).returncode == 0
    assert program.run("export", "--out", tmp_path / "p.jsonl", umask=umask).returncode == 0
    found = modes(tmp_path)
    assert found.pop("home") == found.pop("share") == found.pop("holdfast") == "0o700"
    assert set(found.values()) == {"0o600"}
    assert "p.jsonl" in found


def exposed(folder: Path) -> None:
    """Open a store to others, as an earlier version would have left it."""
    (folder / "s.db-wal").touch()
    for path in (*folder.iterdir(), folder):
        path.chmod(0o755 if path.is_dir() else 0o644)


def elsewhere(path: Path, sql: str) -> str:
    """What another process hears that has SQLite do something to a file at once."""
    code = f"import sqlite3; print(sqlite3.connect({str(path)!r}, timeout=0).execute({sql!r}).fetchone())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


async def test_a_readable_store_of_an_older_version_is_made_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store of an earlier version that others could read is closed to them, and the log says so once."""
    await written(tmp_path / "s.db")
    exposed(tmp_path)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with holdfast.open(tmp_path / "s.db") as opened:
            await opened.kv("p").set("k", 2)
            found = modes(tmp_path)
        await written(tmp_path / "s.db")
    assert set(found.values()) == {"0o600"}
    [told] = [record.getMessage() for record in caplog.records]
    assert str(tmp_path / "s.db") in told
    assert modes(tmp_path.parent)[tmp_path.name] == "0o755", "a folder may be shared on purpose"


async def test_making_a_file_private_keeps_the_locks_of_sqlite(tmp_path: Path) -> None:
    """Closing a file to others does not drop the locks that this process has on it.

    Otherwise another process could take the log away under whoever reads.
    """
    await written(tmp_path / "s.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as reader:
        reader.execute("SELECT count(*) FROM plugin_kv_storage").fetchone()
        exposed(tmp_path)
        async with holdfast.open(tmp_path / "s.db"):
            assert "database is locked" in elsewhere(tmp_path / "s.db", "PRAGMA journal_mode = DELETE")


@pytest.mark.parametrize("name", ["s.db.lock", "s.db.ballast"])
@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
async def test_a_link_in_place_of_lock_or_ballast_is_refused(tmp_path: Path, name: str, there: bool) -> None:
    """A link in place of the lock or the ballast is refused, and what it leads to is left alone."""
    precious = tmp_path / "precious"
    if there:
        precious.write_text("precious")
        precious.chmod(0o644)
    (tmp_path / name).symlink_to(precious)
    with pytest.raises(Unavailable, match=f"{name}.*symbolic link"):
        await written(tmp_path / "s.db")
    assert precious.exists() is there
    if there:
        assert precious.read_text() == "precious"
        assert stat.S_IMODE(precious.stat().st_mode) == 0o644


async def test_a_link_to_the_store_itself_is_followed(tmp_path: Path) -> None:
    """A store may be reached by a link: the file that it leads to is made private."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "there" / "s.db")
    await written(tmp_path / "link.db")
    assert stat.S_IMODE((tmp_path / "there" / "s.db").stat().st_mode) == 0o600


async def test_a_link_that_replaces_the_ballast_is_not_followed(tmp_path: Path) -> None:
    """A link that takes the ballast's place while the store is open is not followed. Writing goes on."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    async with holdfast.open(tmp_path / "s.db") as store:
        await store.kv("p").set("k", 1)
        (tmp_path / "s.db.ballast").unlink()
        (tmp_path / "s.db.ballast").symlink_to(precious)
        for _ in range(40):  # more than the ballast was made for
            await store.kv("p").set("k", "x" * 60_000)
        assert await store.kv("p").get("k") is not None
    assert precious.read_text() == "precious"
