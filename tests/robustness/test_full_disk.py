"""A full disk is said so; reading and deleting go on, and writing resumes when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
import holdfast.sync
from holdfast.commands import Set
from holdfast.engines.sqlite.files import BALLAST_STEP
from tests.disks import DISK_MIB, fill, mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, of this test's own."""
    with mounted(tmp_path / "disk") as folder:
        yield folder


async def test_a_full_disk_refuses_writes_and_allows_gets_and_deletes(small_disk: Path) -> None:
    """STORAGE_FULL refuses a write; gets and deletes work; writing resumes; nothing acknowledged is lost."""
    path = small_disk / "store.db"
    value = "x" * 20_000
    kept: dict[str, int] = {}
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        full = await _set_until_refused(kv, kept, value)
        assert full.retryable
        assert len(kept) > 100

        assert [key for key in kept if await kv.get(key) is None] == []
        for number in range(0, len(kept), 2):
            assert await kv.delete(f"k{number}")
            del kept[f"k{number}"]

        again = {f"n{number}": (await kv.set(f"n{number}", value)).version for number in range(20)}
        kept |= again

    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        found = {key: entry.version for key in kept if (entry := await kv.get(key)) is not None}
        assert found == kept
        assert (await store.stats("kv/p")).keys == len(kept)


async def test_on_a_full_disk_a_group_does_its_deletes_only(small_disk: Path) -> None:
    """When the disk is full, the deletes of a group are done and its sets alone are refused."""
    async with holdfast.open(small_disk / "store.db", reap=False) as store:
        kv = store.kv("p")
        await kv.set("old", 1)
        filler = small_disk / "filler"
        fill(filler)
        await _set_until_refused(kv, {}, "x" * 60_000)
        refused, deleted = await _both(kv)
        assert isinstance(refused, holdfast.StorageFull)
        assert deleted is True
        assert await kv.get("old") is None
        filler.unlink()
        await kv.set("new", 1)


async def test_letters_can_be_dropped_on_a_full_disk(small_disk: Path) -> None:
    """A full disk does not keep an operator from dropping dead letters, which may be what fills it."""
    async with holdfast.open(small_disk / "store.db", reap=False) as store:
        verbs = store.kv("p").verbs
        request = verbs.command(Set, key="k", value=1, request_id="r")
        await store.pipeline.call(verbs.escalate(request, error_code="BUSY", message="", attempts=5))
        fill(small_disk / "filler")
        for size in (60_000, 1):
            await _set_until_refused(store.kv("p"), {}, "x" * size)
        assert await store.letters("kv/p").drop(1) is True


async def test_ballast_is_reserved_again_when_there_is_room(small_disk: Path) -> None:
    """The room that was given up for deleting is taken again once the disk has plenty."""
    path = small_disk / "store.db"
    ballast = path.with_name("store.db.ballast")
    async with holdfast.open(path, reap=False):
        assert ballast.stat().st_blocks * 512 >= BALLAST_STEP
    ballast.unlink()
    async with holdfast.open(path, reap=False):
        assert ballast.exists()


@pytest.mark.parametrize("first", ["get", "set"])
async def test_a_store_opens_on_a_full_disk(small_disk: Path, first: str) -> None:
    """The ballast is also for opening: what is there can be read and deleted after a restart, several times.

    A program that reads first opens the file for reading, and begins to write to it later.
    """
    path, filler = small_disk / "store.db", small_disk / "filler"
    async with holdfast.open(path, reap=False) as store:
        for number in range(6):
            await store.kv("p").set(f"k{number}", "x" * 60_000)
    fill(filler, 4096)
    for _ in range(2):
        store = holdfast.open(path, reap=False)
        if first == "get":
            store._engine.open_read_only()  # type: ignore[attr-defined]
        async with store:
            kv = store.kv("p")
            assert await kv.get("k0") is not None
            if first == "get":
                await store.ready()
            await _set_until_refused(kv, {}, "y" * 60_000)
    async with holdfast.open(path, reap=False) as store:
        assert await store.kv("p").delete("k0") is True
        assert await store.kv("p").get("k0") is None
    filler.unlink()
    async with holdfast.open(path, reap=False) as store:
        assert await store.kv("p").get("k5") is not None
        assert path.with_name("store.db.ballast").stat().st_blocks * 512 >= 2 * BALLAST_STEP


@pytest.mark.parametrize("restarts", [False, True])
async def test_deletes_work_as_long_as_the_disk_is_full(small_disk: Path, restarts: bool) -> None:
    """New data does not take the room that was freed for deletes, but it takes that of what was deleted."""
    path, filler, value = small_disk / "store.db", small_disk / "filler", "x" * 60_000
    store = holdfast.open(path, reap=False)
    await store.start()
    for number in range(9):
        await store.kv("p").set(f"k{number}", value)
    fill(filler, 4096)
    new = 0
    for number in range(9):
        if restarts:
            await store.aclose()
            store = holdfast.open(path, reap=False)
            await store.start()
        with contextlib.suppress(holdfast.StorageFull):
            for _ in range(60):
                await store.kv("p").set(f"n{new}", value)
                new += 1
        assert await store.kv("p").delete(f"k{number}") is True
    assert 4 <= new <= 14
    filler.unlink()
    for number in range(60):
        await store.kv("p").set(f"k{number}", value)
    assert path.with_name("store.db.ballast").stat().st_blocks * 512 >= 2 * BALLAST_STEP
    await store.aclose()


def test_opening_on_a_full_disk_of_small_blocks_kills_nobody(tmp_path: Path) -> None:
    """SQLite maps a file, and whoever writes to a mapped page that has no block on the disk is killed."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_MIB * 1024 * 1024)
    commands: list[list[str | Path]] = [
        ["mkfs.ext4", "-q", "-b", "1024", image],
        ["mount", "-o", "loop", image, folder],
    ]
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("a small ext4 can't be made and mounted here (needs root)")
    try:
        path = folder / "store.db"
        with holdfast.sync.open(path) as store:
            store.kv("p").set("k", 1)
        filler = folder / "filler"
        fill(filler, 1024)
        os.truncate(filler, filler.stat().st_size - 20 * 1024)
        opening = (
            f"import holdfast.sync\nwith holdfast.sync.open({str(path)!r}) as s: assert s.kv('p').delete('k')"
        )
        done = subprocess.run([sys.executable, "-c", opening], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


async def test_a_full_disk_without_a_ballast_is_named(small_disk: Path) -> None:
    """A store that can't be opened because the disk is full says so, and not that the disk failed."""
    path = small_disk / "store.db"
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1)
    path.with_name("store.db.ballast").unlink()
    fill(small_disk / "filler", 4096)
    with pytest.raises(holdfast.StorageFull, match="is full"):
        async with holdfast.open(path, reap=False):
            pass


async def _set_until_refused(kv: holdfast.KV, kept: dict[str, int], value: str) -> holdfast.StorageFull:
    """Fill the disk; `kept` gets the version of each key that was taken."""
    for number in range(DISK_MIB * 60):
        try:
            kept[f"k{number}"] = (await kv.set(f"k{number}", value)).version
        except holdfast.StorageFull as full:
            return full
    pytest.fail("the disk was never full")


async def _both(kv: holdfast.KV) -> tuple[object, object]:
    return await asyncio.gather(kv.set("new", "x" * 60_000), kv.delete("old"), return_exceptions=True)
