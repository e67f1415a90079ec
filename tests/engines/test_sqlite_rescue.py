"""Copying a whole store while it is in use."""

# ruff: noqa: ASYNC240 - what is done to the files here takes no time

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite import examiner as examiners
from tests.vanishing import entries

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's file."""
    return tmp_path / "data" / "store.db"


@pytest.fixture
def store(path: Path) -> holdfast.Store:
    """A store in a folder of its own."""
    path.parent.mkdir()
    return holdfast.open(path, reap=False)


async def test_a_copy_is_of_one_instant_and_nobody_waits_for_it(
    store: holdfast.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a copy is made writes and lists go on; it has what was there when it began, and no more."""
    monkeypatch.setattr(examiners, "COPY_PAGES", 1)
    async with store:
        kv = store.kv("p")
        for number in range(20):
            await kv.set(f"k{number}", "x" * 5_000)
        before = await entries(store)
        begun, goes_on = asyncio.Event(), asyncio.Event()
        examiner, loop = _engine(store)._examiner, asyncio.get_running_loop()
        look = examiner._go_on

        def hold() -> None:
            if not begun.is_set():
                loop.call_soon_threadsafe(begun.set)
                asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result()
            look()

        monkeypatch.setattr(examiner, "_go_on", hold)
        rescue = asyncio.create_task(store.rescue("copy.db"))
        await begun.wait()
        for number in range(20):
            await kv.set(f"k{number}", "later")
        assert len((await kv.list()).keys) == 20
        with pytest.raises(holdfast.Busy):
            await store.rescue("another.db")
        goes_on.set()
        assert (await rescue).path == str(path.with_name("copy.db"))
    async with holdfast.open(path.with_name("copy.db")) as copy:
        assert await entries(copy) == before


async def test_a_copy_overwrites_no_file(store: holdfast.Store, path: Path, tmp_path: Path) -> None:
    """A copy goes to a new file in a folder that is there, and never under a name of the running store."""
    async with store:
        await store.kv("p").set("k", 1)
        (tmp_path / "there").write_text("precious")
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        for taken in ("../there", tmp_path / "there", tmp_path / "dangling"):
            with pytest.raises(holdfast.ValidationError, match="already exists") as refused:
                await store.rescue(taken)
            assert refused.value.field == "path"
        for own in ("store.db", "store.db-wal", "../data/store.db.lock", path):
            with pytest.raises(holdfast.ValidationError, match="of the running store"):
                await store.rescue(own)
        for wrong in ("", "\0", "\ud800", "x" * 5_000):
            with pytest.raises(holdfast.ValidationError, match="name of a file"):
                await store.rescue(wrong)
        for nowhere in ("no/folder/copy.db", "x" * 300 + "/copy.db"):
            with pytest.raises(holdfast.ValidationError, match="does not exist"):
                await store.rescue(nowhere)
        with pytest.raises(holdfast.ValidationError, match="can't be written"):
            await store.rescue("x" * 300)
        assert (tmp_path / "there").read_text() == "precious"
        assert {file.name for file in path.parent.iterdir()} == {
            f"store.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock", ".turn", ".ballast")
        }


async def test_a_killed_copy_keeps_no_later_one_from_being_made(store: holdfast.Store, path: Path) -> None:
    """A process that has the id of one that was killed in a copy, as in a container, can copy."""
    (path.parent / f".copy.db.{os.getpid()}").write_text("half of a copy")
    async with store:
        await store.kv("p").set("k", 1)
        assert (await store.rescue("copy.db")).trouble is None


@pytest.mark.parametrize("links", [True, False])
async def test_a_file_that_appears_meanwhile_is_not_overwritten(
    store: holdfast.Store, path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """Also where the file system has no links, and nothing is left of the copy."""
    target = path.with_name("copy.db")
    if not links:
        monkeypatch.setattr("os.link", _refuse)
    async with store:
        await store.kv("p").set("k", 1)
        monkeypatch.setattr(_engine(store)._examiner, "_go_on", lambda: target.write_text("precious"))
        with pytest.raises(holdfast.ValidationError, match="already exists"):
            await store.rescue(target)
        assert target.read_text() == "precious"
        assert not [file for file in path.parent.iterdir() if file.name.startswith(".")]
        monkeypatch.undo()
        if not links:
            monkeypatch.setattr("os.link", _refuse)
        assert (await store.rescue("another.db")).path == str(path.with_name("another.db"))


def _refuse(*arguments: Any) -> None:
    raise PermissionError(errno.EPERM, "no links here")


async def test_a_full_disk_fails_the_copy_and_not_the_store(
    store: holdfast.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is told as such, and the store goes on."""

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    async with store:
        await store.kv("p").set("k", 1)
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(holdfast.StorageFull, match="no room for a copy"):
            await store.rescue("copy.db")
        assert not path.with_name("copy.db").exists()


async def test_closing_cancels_a_copy_and_removes_it(
    store: holdfast.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is closed does not wait for a copy to be complete, and leaves nothing of it."""
    monkeypatch.setattr(examiners, "COPY_PAGES", 1)
    async with store:
        await store.kv("p").set("k", "x" * 60_000)
        examiner, loop = _engine(store)._examiner, asyncio.get_running_loop()
        look, begun = examiner._go_on, asyncio.Event()

        def slowly() -> None:
            loop.call_soon_threadsafe(begun.set)
            while not examiner._closing:
                os.sched_yield()
            look()

        monkeypatch.setattr(examiner, "_go_on", slowly)
        rescue = asyncio.create_task(store.rescue("copy.db"))
        await begun.wait()
    with pytest.raises(holdfast.Unavailable, match="closed"):
        await rescue
    assert [file.name for file in path.parent.iterdir() if "copy" in file.name] == []


async def test_a_corrupt_store_is_copied_as_it_is(store: holdfast.Store, path: Path) -> None:
    """What can be had is had: the copy is made, and what is wrong with it is told."""
    async with store:
        for number in range(50):
            await store.kv("p").set(f"k{number:02}", "x" * 3_000)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(os.urandom(4096))
    async with holdfast.open(path, reap=False) as again:
        rescued = await again.rescue("copy.db")
        assert rescued.trouble is not None
        assert rescued.bytes == path.stat().st_size
    copied = sqlite3.connect(path.with_name("copy.db"))
    assert copied.execute("PRAGMA quick_check(1)").fetchone() != ("ok",)
    copied.close()


@pytest.mark.parametrize("kind", ["memory", "postgresql"])
async def test_other_engines_refuse_a_rescue(kind: str, request: pytest.FixtureRequest) -> None:
    """What an engine can't do it says, and does nothing weaker instead."""
    url = "memory://" if kind == "memory" else request.getfixturevalue("pg_store_url")
    async with holdfast.open(url) as store:
        with pytest.raises(holdfast.Unsupported, match="SQLite"):
            await store.rescue("/tmp/never-made.db")


def _engine(store: holdfast.Store) -> SqliteEngine:
    engine = store._engine
    assert isinstance(engine, SqliteEngine)
    return engine
