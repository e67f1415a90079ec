"""A wall clock that is set while a store is open, or between two openings, moves no deadline.

On every engine, through the calls that a program makes: entries neither go early nor come back, a ttl
lasts as long as it says, and reads and writes agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from holdfast.clock import UNREMEMBERED, SystemClock
from holdfast.engine import DurableStorage
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite.setup import reset_clock
from holdfast.errors import Unavailable, VersionConflict
from holdfast.pipeline import timekeeper
from holdfast.seams import this_machine
from holdfast.testing.exact import present, refusal
from tests.clocks.world import HOUR, Storage

if TYPE_CHECKING:
    from pathlib import Path

    import holdfast
    from holdfast.clock import KeptLine
    from tests.clocks.world import Machine, World


async def lasts_a_second(storage: Storage, kv: holdfast.KV) -> None:
    """A ttl of a second and a lock of a second are over after a second, and not before, for every verb."""
    await kv.set("brief", 1, ttl=1)
    lock = await kv.set("lock", 1, ttl=1, expected_version=0)
    await storage.passes(0.9)
    assert (await kv.list()).keys == ["brief", "lock"]
    with refusal(VersionConflict):
        await kv.set("lock", 2, expected_version=0)
    await storage.passes(0.1)
    assert await kv.get("brief") is None
    assert await kv.get("lock") is None
    assert (await kv.set("lock", 2, expected_version=0)).version > lock.version
    await kv.delete("lock")


async def test_entries_survive_a_wall_clock_an_hour_ahead_for_two_seconds(
    storage: Storage, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """100 entries with 30 minutes left survive a wall clock that is an hour ahead for two seconds."""
    machine = world.machine()
    async with storage.opened(machine) as store:
        kv = store.kv("a")
        await kv.set_many([{"key": f"k{n}", "value": n, "ttl": 1800} for n in range(100)])
        machine.off = HOUR
        await storage.passes(2)
        assert await store.sweep() == 0
        machine.off = 0
        await storage.passes(40)
        assert await store.sweep() == 0
        assert len((await kv.list(limit=1000)).keys) == 100
        assert await kv.get_ttl("k0") == 1800 - 42
        told = [record for record in caplog.records if "jumped" in record.getMessage()]
        assert [record.levelno for record in told] == [logging.WARNING] * 2
        assert ["+3600.0 s" in told[0].getMessage(), "-3600.0 s" in told[1].getMessage()] == [True] * 2
        assert store.pipeline.timekeeper.jumps == {"wall": 2, "database": 0}


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 4.0, -4.0])
async def test_a_second_stays_a_second_after_the_wall_clock_was_set(
    storage: Storage, world: World, jump: float
) -> None:
    """Whatever the wall clock says from now on, a second is a second, and what is gone stays gone."""
    machine = world.machine()
    async with storage.opened(machine) as store:
        kv = store.kv("a")
        await kv.set("gone", 1, ttl=5)
        await kv.set("there", 1, ttl=1800)
        await storage.passes(6)
        assert await kv.get("gone") is None
        machine.off = jump
        await storage.passes(1)
        assert await kv.get("gone") is None
        assert await kv.get_ttl("there") == 1800 - 7
        await kv.delete("there")
        await lasts_a_second(storage, kv)


async def test_a_slewed_wall_clock_is_no_jump(storage: Storage, world: World) -> None:
    """A time service that moves the wall clock little by little raises no alarm, and moves nothing either."""
    machine = world.machine()
    async with storage.opened(machine) as store:
        began = store.now()
        for _ in range(60):
            machine.off += 0.5
            await storage.passes(1)
        assert store.pipeline.timekeeper.jumps["wall"] == 0
        assert store.now() - began == pytest.approx(60_000, abs=1)


@pytest.mark.parametrize("read_only", [True, False])
async def test_expired_entries_stay_gone_when_reopened_with_the_clock_set_back(
    lasting: Storage, world: World, caplog: pytest.LogCaptureFixture, read_only: bool
) -> None:
    """What was shown to be gone stays gone, for reads and writes, and a second is a second."""
    machine = world.machine()
    async with lasting.opened(machine) as store:
        kv = store.kv("a")
        await kv.set("gone", 1, ttl=1800)
        await kv.set("there", 1, ttl=3 * 3600)
        await lasting.passes(1801)
        assert await kv.get("gone") is None
        if not read_only:
            await kv.set("other", 1, ttl=1)
            await lasting.passes(1)
        last = store.now()
    machine.off = world.database = -HOUR
    async with lasting.opened(machine) as store:
        kv = store.kv("a")
        assert store.now() >= last
        assert await kv.get("gone") is None
        assert (await kv.list()).keys == ["there"]
        assert (await kv.set("gone", 2, expected_version=0)).value == 2
        assert await kv.get_ttl("there") == pytest.approx(3 * 3600 - 1801, abs=1)
        await kv.delete_many(["there", "gone"])
        await lasts_a_second(lasting, kv)
        assert "ahead of the" in caplog.text
        assert "holdfast migrate --reset-clock" in caplog.text
        assert store.pipeline.timekeeper.ahead == pytest.approx(HOUR * 1000, abs=2000)


async def test_a_killed_store_has_stored_its_time_within_a_second(lasting: Storage, world: World) -> None:
    """A store that is not closed has remembered its time a second ago at the latest."""
    machine = world.machine()
    async with lasting.opened(machine) as store:
        await store.kv("a").set("k", 1, ttl=5)
        await lasting.passes(6.5)
        assert await store.kv("a").get("k") is None
        await lasting.passes(1)
        assert isinstance(store._engine, DurableStorage)
        remembered = await store._engine.remembered()
        assert store.now() - 1000 <= remembered <= store.now()


async def killed(file: Storage, machine: Machine, folder: Path) -> tuple[Storage, int]:
    """What is left of a store that was killed, and the last time that it answered with."""
    async with file.opened(machine) as store:
        kv = store.kv("a")
        await kv.set("k", 1)
        await kv.set("gone", 1, ttl=2)
        await file.passes(1.2)
        file.world.elapsed += 0.85
        assert await kv.get("gone") is None
        last = store.now()
        for suffix in ("", "-wal"):
            shutil.copy(folder / f"store.db{suffix}", folder / f"killed.db{suffix}")
    return Storage(lambda: SqliteEngine(folder / "killed.db"), file.world), last


async def test_reopening_after_a_kill_continues_the_time(file: Storage, world: World, tmp_path: Path) -> None:
    """A process that is started after a kill has the time that the killed one would have by now."""
    machine = world.machine()
    left, last = await killed(file, machine, tmp_path)
    machine.off = -HOUR
    world.elapsed += 7
    async with left.opened(machine) as store:
        assert store.now() == last + 7_000
        assert await store.kv("a").get("gone") is None
        assert store.pipeline.timekeeper.ahead == pytest.approx(HOUR * 1000, abs=1)
    async with left.opened(machine) as store:  # it was closed: its time stood still meanwhile
        assert store.now() == last + 7_000
    machine.off = 0
    async with left.opened(machine) as store:
        assert store.now() == last + 7_000


@pytest.mark.parametrize("ago", [5.0, 24 * HOUR])
@pytest.mark.parametrize("named", [True, False])
async def test_after_a_kill_and_a_reboot_the_time_continues_from_the_stored_one(
    file: Storage, world: World, tmp_path: Path, named: bool, ago: float
) -> None:
    """Where the ticks tell nothing, a store that was killed starts a little after the time it remembered."""
    machine = world.machine()
    left, last = await killed(file, machine, tmp_path)
    machine.start_again(ago=ago)
    machine.off = -HOUR
    if not named:
        machine.name = None
    for _ in range(2):
        async with left.opened(machine) as store:
            assert last <= store.now() <= last + UNREMEMBERED
            assert await store.kv("a").get("gone") is None
    machine.off = HOUR
    async with left.opened(machine) as store:
        assert store.now() == pytest.approx(last + HOUR * 1000, abs=1)


async def test_after_a_close_and_a_reboot_the_time_continues_exactly(file: Storage, world: World) -> None:
    """A store that was closed goes on from the very time at which it was closed."""
    machine = world.machine()
    async with file.opened(machine) as store:
        await store.kv("a").get("k")
        await file.passes(0.5)
        last = store.now()
    machine.start_again()
    machine.off = -HOUR
    async with file.opened(machine) as store:
        assert store.now() == last


@pytest.mark.parametrize("kept", [None, "of a later version"])
async def test_an_unreadable_clock_line_counts_as_a_kill(
    file: Storage, world: World, tmp_path: Path, kept: str | None
) -> None:
    """A file that another version of Holdfast left is taken for that of a store that was killed."""
    machine = world.machine()
    left, last = await killed(file, machine, tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "killed.db")) as connection, connection:
        if kept is None:
            connection.execute("DELETE FROM holdfast_meta WHERE name = 'clock_line'")
        else:
            connection.execute("UPDATE holdfast_meta SET value = ? WHERE name = 'clock_line'", [kept])
    machine.off = -HOUR
    async with left.opened(machine) as store:
        assert last <= store.now() <= last + UNREMEMBERED


async def test_ticks_that_went_back_are_ignored(file: Storage, world: World, tmp_path: Path) -> None:
    """A virtual machine that is put back to an earlier state keeps its name, but its ticks tell nothing."""
    machine = world.machine()
    left, last = await killed(file, machine, tmp_path)
    world.elapsed -= 60
    machine.off = -HOUR
    async with left.opened(machine) as store:
        assert last <= store.now() <= last + UNREMEMBERED


async def test_reset_clock_starts_from_the_wall_clock(file: Storage, world: World, tmp_path: Path) -> None:
    """After `holdfast migrate --reset-clock` a store that was killed starts from the wall clock."""
    machine = world.machine(off=HOUR)
    left, last = await killed(file, machine, tmp_path)
    machine.off = 0
    wall = machine.clock().now()
    before, after, _ = reset_clock(tmp_path / "killed.db", wall)
    assert wall + HOUR * 1000 - 2000 <= before <= last
    assert after == wall
    async with left.opened(machine) as store:
        assert store.now() == wall


async def test_processes_share_the_time_of_the_one_that_has_the_store_open(
    file: Storage, world: World
) -> None:
    """While a process has the store open, those that open it have its time, whatever the wall clock shows."""
    machine = world.machine()
    async with file.opened(machine) as first, file.opened(machine) as other:
        assert other.now() == first.now()
        await first.aclose()
        machine.off = 1.5
        async with file.opened(machine) as second:
            assert second.now() == other.now()
            await second.kv("a").set("gone", 1, ttl=1)
            world.elapsed += 1
            assert await second.kv("a").get("gone") is None
            assert await other.kv("a").get("gone") is None
        before = other.now()
    async with file.opened(machine) as third:
        assert third.now() == before + 1500


async def test_reader_and_writer_have_the_same_time(file: Storage, world: World) -> None:
    """A process that reads has the same time as the one that writes, whichever was opened first."""
    machine = world.machine()
    async with file.opened(machine) as first, file.opened(machine) as reader:
        machine.off = 1.5
        async with file.opened(machine) as late:
            assert late.now() == first.now() == reader.now()
        await first.aclose()
        async with file.opened(machine) as writer:
            await file.passes(1)
            assert writer.now() == reader.now()


async def test_a_process_that_could_not_agree_on_the_time_answers_nothing_until_it_has(
    file: Storage, world: World
) -> None:
    """A process that could not read the time of the others as it was opened does not go by its own clock."""
    machine = world.machine()
    async with file.opened(machine) as first:
        await first.kv("a").set("k", 1)
        machine.off = 1.5
        with pytest.MonkeyPatch.context() as patch:

            async def fail(engine: SqliteEngine, clock: SystemClock) -> None:
                raise Unavailable("the disk failed")

            patch.setattr(SqliteEngine, "agree_on_line", fail)
            opening = file.opened(machine)
            second = await opening.__aenter__()
            for call in (second.kv("a").get("k"), second.kv("a").set("k", 2)):
                with refusal(Unavailable, says="the store's time is not known: the disk failed"):
                    await call
        await file.passes(1)
        assert second.now() == first.now()
        await second.kv("a").set("k", 2)
        await opening.__aexit__(None, None, None)


async def test_a_store_that_can_not_keep_its_clock_line_answers_once_it_can(
    file: Storage, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is answered by a time that another process could not know."""
    machine = world.machine()
    async with file.opened(machine) as store:
        await store.kv("a").set("k", 1)
    with pytest.MonkeyPatch.context() as patch:

        def fail(engine: SqliteEngine, proposed: KeptLine) -> None:
            raise Unavailable("no room")

        patch.setattr(SqliteEngine, "_settle_line", fail)
        opening = file.opened(machine)
        store = await opening.__aenter__()
        await file.passes(2)
        with refusal(Unavailable, says="no room"):
            await store.kv("a").get("k")
    assert caplog.text.count("time is not known: no room") == 1
    await file.passes(1)
    assert present(await store.kv("a").get("k")).value == 1
    assert (await store._engine.kept_line()).open  # type: ignore[attr-defined]
    await opening.__aexit__(None, None, None)


def test_clocks_of_one_machine_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks of one machine have one name. They have none with other ticks, or if the system tells none."""
    assert SystemClock().machine == SystemClock(wall=lambda: 0).machine == this_machine()
    assert SystemClock(ticks=lambda: 0).machine is None

    def no_file(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_file)
    assert this_machine() is None


async def test_the_time_is_stored_at_most_once_a_second_and_only_if_asked(
    file: Storage, world: World, tmp_path: Path
) -> None:
    """The time is written at most once a second, and not at all while nobody asks."""
    async with file.opened(world.machine()) as store:
        times = set()
        for _ in range(5):
            await file.passes(1)
            times.add(_remembered(tmp_path))
        assert times == {None}
        for _ in range(5):
            await store.kv("a").get("k")
            await store.kv("a").get("k")
            await file.passes(1)
            times.add(_remembered(tmp_path))
        assert len(times) == 6
        await file.passes(20)
        assert _remembered(tmp_path) in times


async def test_a_process_with_a_slow_wall_clock_takes_the_shared_time(file: Storage, world: World) -> None:
    """A process has the time of the one that has the store open, also if its own wall clock is behind."""
    async with file.opened(world.machine(off=HOUR)) as first:
        await first.kv("a").set("k", 1, ttl=60)
        await file.passes(1)
        async with file.opened(world.machine()) as second:
            assert second.now() == first.now()
            await second.kv("a").set("l", 1, ttl=60)
            await file.passes(59)
            assert await first.kv("a").get("k") is None
            assert await second.kv("a").get("k") is None
            assert await first.kv("a").get("l") is not None
            await file.passes(1)
            assert await first.kv("a").get("l") is None


async def test_a_reader_follows_a_writer_with_a_fast_clock(file: Storage, world: World) -> None:
    """A reader that was opened before a writer with a fast clock goes on from the writer's time."""
    async with file.opened(world.machine()) as first, file.opened(world.machine()) as reader:
        await first.aclose()
        async with file.opened(world.machine(off=HOUR)) as writer:
            await writer.kv("a").set("k", 1, ttl=60)
            await file.passes(2)
            assert abs(reader.now() - writer.now()) <= 1500


async def test_a_failure_to_store_the_time_is_logged_once(
    file: Storage, world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A storage that takes no writes is read on: the failure is told once, until it has gone well again."""
    async with file.opened(world.machine()) as store:
        await store.kv("a").set("k", 1)
        engine = store._engine

        async def fail(now: int) -> int:
            raise Unavailable("no room")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "remember", fail)
            for _ in range(3):
                assert present(await store.kv("a").get("k")).value == 1
                await file.passes(1)
        assert caplog.text.count("could not be remembered: no room") == 1
        await file.passes(1)
        assert _remembered(tmp_path) is not None


async def test_an_error_in_one_clock_check_does_not_stop_the_next(
    file: Storage, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong in one look at the clocks, the next one takes place."""
    monkeypatch.setattr(timekeeper, "BEAT", 0.001)
    async with file.opened(world.machine()) as store:
        again, looks = asyncio.Event(), 0

        async def fail() -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                again.set()
            raise RuntimeError("a defect")

        monkeypatch.setattr(store.pipeline.timekeeper, "beat", fail)
        async with asyncio.timeout(60):
            await again.wait()
    assert "reading the clocks failed" in caplog.text


def _line(folder: Path) -> float:
    with contextlib.closing(sqlite3.connect(folder / "store.db")) as connection:
        [kept] = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'clock_line'").fetchone()
    return float(json.loads(kept)["line"])


def _remembered(folder: Path) -> int | None:
    with contextlib.closing(sqlite3.connect(folder / "store.db")) as connection:
        found = connection.execute("SELECT value FROM holdfast_meta WHERE name = 'clock'").fetchone()
    return None if found is None else int(found[0])
