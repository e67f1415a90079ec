"""The log has room at its end, and nobody notices but the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite.log import FRAME, ROOM, YOUNG, LogRoom

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a folder of its own."""
    return tmp_path / "store.db"


def log_of(path: Path) -> Path:
    """The log beside a file."""
    return path.with_name(f"{path.name}-wal")


async def test_few_commits_extend_the_log(path: Path) -> None:
    """Most commits overwrite room that the log has, so that a sync need not write the file's size as well."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        sizes = set()
        for number in range(COMMITS):
            await kv.set(f"k{number}", number)
            sizes.add(log_of(path).stat().st_size)
    assert len(sizes) < COMMITS / 20


async def test_a_program_that_writes_once_extends_the_log_by_what_it_writes(path: Path) -> None:
    """A log that is young gets no more room than it needs."""
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1)
        assert log_of(path).stat().st_size < YOUNG


async def test_a_log_that_begins_anew_keeps_its_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is given once: a log that was checkpointed and begun anew many times does not go on growing."""
    monkeypatch.setattr("holdfast.engines.sqlite.writer.CHECKPOINT_PAGES", 64)
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for number in range(COMMITS):
            await kv.set(f"k{number % 3}", number)
        assert log_of(path).stat().st_size < 4 * 64 * FRAME


@pytest.fixture(params=[512, 1024, 16_384, 65_536])
def other_path(request: pytest.FixtureRequest, path: Path) -> Path:
    """A file whose pages have another size, since another program has made it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {request.param}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE theirs (number INTEGER PRIMARY KEY)")
    return path


def frame_of(path: Path) -> int:
    """What a page takes in the log of a file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [size] = connection.execute("PRAGMA page_size").fetchone()
    return int(size) + 24


async def test_room_goes_by_the_size_of_pages(other_path: Path) -> None:
    """A log has room for the pages that its file has, and no more of it than another one."""
    frame = frame_of(other_path)
    async with holdfast.open(other_path, reap=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        assert engine._header is not None
        kv, log = store.kv("p"), log_of(other_path)
        extended = before = most = 0
        for number in range(COMMITS // 4):
            await kv.set(f"k{number}", number)
            if number > 40:
                extended += log.stat().st_size != before
            before = log.stat().st_size
            most = max(most, int.from_bytes(engine._header.read()[16:20], sys.byteorder) * frame)
            assert most <= before <= most + 32 * max(frame, FRAME) + ROOM
    assert extended < COMMITS / 20


async def test_a_log_of_large_pages_stays_as_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is checkpointed by its size, whatever the size of pages, and the ballast is as large."""
    monkeypatch.setattr("holdfast.engines.sqlite.writer.CHECKPOINT_PAGES", 512)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 65536")
        connection.execute("PRAGMA journal_mode = WAL")
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for number in range(COMMITS // 4):
            await kv.set(f"k{number}", number)
            if number == 4:
                assert path.with_name("store.db.ballast").stat().st_size > log_of(path).stat().st_size
        assert log_of(path).stat().st_size < 2 * 512 * FRAME


@pytest.mark.parametrize("size", [10, 30_000])
async def test_a_killed_process_leaves_every_commit_before_the_zeros(path: Path, size: int) -> None:
    """SQLite finds the end of the last commit, though zeros follow it, and goes on from there."""
    copy = path.with_name("copy.db")
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for number in range(COMMITS // 4):
            await kv.set(f"k{number}", "x" * size)
        assert log_of(path).read_bytes().endswith(bytes(FRAME))
        for suffix in ("", "-wal"):  # what is on the disk when a process is killed
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    async with holdfast.open(copy, reap=False) as store:
        kv = store.kv("p")
        assert [await kv.exists(f"k{number}") for number in range(COMMITS // 4)] == [True] * (COMMITS // 4)
        assert (await kv.set("more", 1)).version == COMMITS // 4 + 1


async def test_another_program_may_extend_the_log_at_any_time(path: Path) -> None:
    """What a program writes that knows nothing of the room is not overwritten."""

    def write_outside() -> None:
        with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as outside:
            outside.execute("CREATE TABLE theirs (number INTEGER PRIMARY KEY, text TEXT)")
            for number in range(COMMITS):
                outside.execute("INSERT INTO theirs VALUES (?, ?)", [number, "y" * (number * 40)])

    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        writing = asyncio.create_task(asyncio.to_thread(write_outside))
        count = 0
        while not writing.done():
            await kv.incr("n")
            count += 1
        await writing
        entry = await kv.get("n")
        assert entry is not None
        assert entry.value == count
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*), sum(length(text)) FROM theirs").fetchone() == (
            COMMITS,
            sum(number * 40 for number in range(COMMITS)),
        )
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_writes_go_on_where_the_log_can_not_be_extended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is a favour: if the disk refuses it, commits are as they would be without."""
    asked = []

    def refuse(file: int, data: bytes, offset: int) -> int:
        asked.append(offset)
        raise OSError(28, "No space left on device")

    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse)
            for number in range(50):
                await kv.set(f"k{number}", number)
        assert asked
        assert await kv.get("k49") is not None


def test_room_comes_in_steps(tmp_path: Path) -> None:
    """A log doubles at first, and later grows by a fixed step."""
    file = tmp_path / "log"
    file.touch()
    room = LogRoom(file)

    def size_after(frames: int) -> int:
        room.provide(
            bytes(14) + (4096).to_bytes(2, sys.byteorder) + frames.to_bytes(4, sys.byteorder) + bytes(28), 4
        )
        return file.stat().st_size

    assert size_after(31) == 0
    assert size_after(32) == (32 + 4 + 32) * FRAME
    assert size_after(64) == (32 + 4 + 32) * FRAME
    assert size_after(65) == (65 + 4 + 65) * FRAME
    assert size_after(1_000) == 1_004 * FRAME + ROOM
    room.close()


async def test_a_file_in_the_place_of_the_log_is_left_alone(path: Path, tmp_path: Path) -> None:
    """A file that somebody puts where the log was is not taken for the log."""
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        log_of(path).rename(tmp_path / "log")
        log_of(path).write_bytes(b"somebody else's")
        assert engine._writer.room is not None
        engine._writer.room._extend(1_000_000, 2_000_000)
        assert log_of(path).read_bytes() == b"somebody else's"
        (tmp_path / "log").rename(log_of(path))
