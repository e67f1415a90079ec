"""The file of a store is removed, moved or replaced while it is open: no write is said to be kept."""

# ruff: noqa: ASYNC240 - what is done to the files here takes no time

from __future__ import annotations

import asyncio
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.engine import LATER
from holdfast.engines.sqlite import SqliteEngine, files
from holdfast.engines.sqlite.files import Presence
from holdfast.rows import KV, Address
from tests.vanishing import (
    WAYS,
    Way,
    entries,
    folder_moved,
    index_replaced,
    index_unlinked,
    log_replaced,
    log_unlinked,
    replaced,
    unlinked,
)

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast import Store

BEFORE = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's file."""
    return tmp_path / "store.db"


async def _fill(store: Store) -> dict[str, object]:
    kv = store.kv("p")
    for number in range(BEFORE):
        await kv.set(f"k{number:03}", number)
    return await entries(store)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_writes_are_refused_after_the_file_vanished(
    way: Way, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write is refused with what happened and what to do; reads go on; ready says the same."""
    async with holdfast.open(path, reap=False) as store:
        kv, written = store.kv("p"), await _fill(store)
        gone = way(path)
        told = f"{gone}.* while it was open.*process {os.getpid()} has open.*holdfast rescue NEW_PATH"
        with monkeypatch.context() as under_way:  # as if it had gone while a commit was under way
            under_way.setattr(Presence, "require", lambda presence: None)
            with pytest.raises(holdfast.OutcomeUnknown, match=told):
                await kv.set("late", 1)
        for _ in range(5):
            with pytest.raises(holdfast.DatabaseError, match=told):
                await kv.set("later", 1)
        with pytest.raises(holdfast.DatabaseError):
            await kv.delete("no such key")
        with pytest.raises(holdfast.DatabaseError, match=told):
            await store.ready()
        assert await kv.get("later") is None
        assert {key: value for key, value in (await entries(store)).items() if key != "late"} == written


@pytest.mark.parametrize("way", [*WAYS, folder_moved], ids=lambda way: way.__name__)
@pytest.mark.parametrize("written", [0, 1, BEFORE])
async def test_the_first_write_after_the_file_vanished_is_refused(
    way: Way, written: int, tmp_path: Path
) -> None:
    """However short a time ago the files were seen, no write that begins after they vanished succeeds."""
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "store.db"
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for number in range(written):
            await kv.set(f"k{number}", number)
        way(path)
        later = [kv.set("z", 1), kv.set_many([{"key": f"{n}", "value": "x" * 1024} for n in range(120)])]
        later += [kv.incr("n"), kv.delete("k0"), kv.set("k0", 1, expected_version=9_999)]
        results = await asyncio.gather(*later, return_exceptions=True)
        assert {type(result) for result in results} <= {holdfast.OutcomeUnknown, holdfast.DatabaseError}


async def test_a_vanished_file_is_noticed_without_statx(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule holds without the C library's statx, and with one that the system refuses to execute."""
    monkeypatch.setattr(Presence, "require", lambda presence: None)  # as if it went while a commit ran
    for looks in (None, lambda *_: -1):
        monkeypatch.setattr(files, "_statx", lambda looks=looks: looks)
        async with holdfast.open(path, reap=False) as store:
            await _fill(store)
            away = path.rename(path.with_name("away"))
            with pytest.raises(holdfast.OutcomeUnknown):
                await store.kv("p").set("late", 1)
            away.rename(path)
            await store.kv("p").set("more", 1)


@pytest.mark.parametrize("way", [unlinked, replaced], ids=lambda way: way.__name__)
async def test_threads_that_first_read_later_read_the_open_file(way: Way, path: Path) -> None:
    """A thread that first reads after the file has vanished asks the store, which has the file open."""
    async with holdfast.open(path, reap=False, cache_bytes=0) as store:
        await _fill(store)
        way(path)
        there = path.exists() and path.read_bytes()
        address = Address("kv/p", KV, "k000")
        found = await asyncio.to_thread(store._engine.peek, address, store.now())  # type: ignore[attr-defined]
        assert found is LATER
        assert (path.exists() and path.read_bytes()) == there


@pytest.mark.parametrize("way", [unlinked, replaced], ids=lambda way: way.__name__)
async def test_backup_and_load_refuse_a_store_whose_file_vanished(way: Way, path: Path) -> None:
    """A backup and a load refuse a store whose file has vanished, rather than use what is at its path now."""
    async with holdfast.open(path, reap=False) as store:
        await _fill(store)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        loading = engine.loading()
        loader = await loading.__aenter__()
        await loader.drop_namespaces(["kv/p"])
        way(path)
        there = path.exists() and path.read_bytes()
        with pytest.raises(holdfast.OutcomeUnknown):
            await loading.__aexit__(None, None, None)
        with pytest.raises(holdfast.DatabaseError):
            async with engine.loading():
                pass
        with pytest.raises(holdfast.DatabaseError):
            async with engine.snapshot():
                pass
        with pytest.raises(holdfast.DatabaseError):
            await engine.close_to_writes("moved", instead_of=None)
        assert (path.exists() and path.read_bytes()) == there


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_rescue_has_everything_acknowledged(way: Way, path: Path, tmp_path: Path) -> None:
    """A rescue copies what was acknowledged out of the open file; a store opened there has all of it."""
    copy = tmp_path / "rescued.db"
    async with holdfast.open(path, reap=False) as store:
        written = await _fill(store)
        way(path)
        rescued = await store.rescue(copy)
        assert (rescued.path, rescued.entries, rescued.namespaces) == (str(copy), BEFORE, 1)
        assert (rescued.bytes, rescued.trouble) == (copy.stat().st_size, None)
        assert rescued.pages * 4096 == rescued.bytes
    async with holdfast.open(copy) as again:
        assert await entries(again) == written
        assert (await again.kv("p").set("k000", "goes on")).version == BEFORE + 1


async def test_the_file_is_checked_before_a_write_after_idling(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that finds the file gone before it begins is refused as such: nothing of it is kept."""
    async with holdfast.open(path, reap=False) as store:
        await _fill(store)
        monkeypatch.setattr("holdfast.engines.sqlite.files.CHECK_SECONDS", -1.0)
        path.unlink()
        with pytest.raises(holdfast.DatabaseError):
            await store.kv("p").set("late", 1)
        assert await store.kv("p").get("late") is None


async def test_a_file_that_is_put_back_is_written_to_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Moved away and back it is the file that is open; both are logged once, and nothing is lost."""
    async with holdfast.open(path, reap=False) as store:
        written = await _fill(store)
        away = path.rename(path.with_name("away"))
        for _ in range(3):
            with pytest.raises(holdfast.DatabaseError):
                await store.ready()
        away.rename(path)
        await store.kv("p").set("more", 1)
    assert [record.levelname for record in caplog.records] == ["CRITICAL", "WARNING"]
    async with holdfast.open(path) as again:
        assert await entries(again) == written | {"more": 1}


async def test_checkpoints_and_other_programs_are_no_vanished_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checkpoints, other programs and another working folder are no reason to refuse a write."""
    monkeypatch.chdir(tmp_path)
    async with holdfast.open(path.name, reap=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        await _fill(store)
        await engine._writer.run(lambda: engine._writer.checkpoint("TRUNCATE"))
        with sqlite3.connect(path) as outside:
            outside.execute(
                "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('p', 'o', '7')"
            )
        outside.close()
        with sqlite3.connect(path, isolation_level=None) as outside:
            outside.execute("VACUUM")
        outside.close()
        path.chmod(0o600)
        os.link(path, tmp_path / "second name")
        monkeypatch.chdir("/")
        await store.ready()
        assert (await store.kv("p").set("k", 1)).version == BEFORE + 2  # one for the other program's row


async def test_a_store_opened_through_a_link_has_its_log_beside_the_target(
    path: Path, tmp_path: Path
) -> None:
    """A store that is opened through a symbolic link has its log beside the file that the link leads to."""
    (tmp_path / "data").mkdir()
    path.symlink_to(tmp_path / "data" / "real.db")
    async with holdfast.open(path, reap=False) as store:
        await _fill(store)
        (tmp_path / "data" / "real.db-wal").unlink()
        with pytest.raises(holdfast.DatabaseError, match=r"real\.db-wal"):
            await store.ready()


async def test_a_reader_does_not_become_the_writer_of_another_file(path: Path) -> None:
    """Who opened the file while another wrote to it reads that one, and may not write to another."""
    async with holdfast.open(path, reap=False) as writer:
        await _fill(writer)
        async with holdfast.open(path, reap=False) as reader:
            await writer.aclose()
            path.unlink()
            with pytest.raises(holdfast.DatabaseError, match="removed or moved away"):
                await reader.kv("p").set("k", 1)
            with pytest.raises(holdfast.DatabaseError):
                await reader.ready()
            assert not path.exists()


@pytest.mark.parametrize(
    "way", [log_unlinked, log_replaced, index_unlinked, index_replaced], ids=lambda way: way.__name__
)
async def test_closing_checkpoints_an_open_log_that_vanished(way: Way, path: Path) -> None:
    """While the database itself is in its place, a regular end moves into it what the open log holds."""
    async with holdfast.open(path, reap=False) as store:
        written = await _fill(store)
        way(path)
    async with holdfast.open(path) as again:
        assert await entries(again) == written


async def test_a_vanished_temporary_file_refuses_writes(tmp_path: Path) -> None:
    """A store that keeps nothing follows the same rule: somebody may tidy the folder of temporary files."""
    async with holdfast.open("sqlite://", reap=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        written = await _fill(store)
        engine.path.unlink()
        with pytest.raises(holdfast.DatabaseError):
            await store.ready()
        with pytest.raises(holdfast.ValidationError, match="absolute"):
            await store.rescue("copy.db")
        await store.rescue(tmp_path / "copy.db")
    async with holdfast.open(tmp_path / "copy.db") as copy:
        assert await entries(copy) == written
