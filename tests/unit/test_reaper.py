"""The reaper: how often it looks, what it says, and that it goes on.

Its sleep and its stopwatch are stand-ins that move by what it asks for, so that hours pass in no time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

import holdfast.upkeep.reaper
from holdfast import rules
from holdfast.clock import ManualClock
from holdfast.engine import Capabilities, Scanned
from holdfast.errors import Unavailable
from holdfast.handles.table_walks import tables_at
from holdfast.rows import Row
from holdfast.store import Store
from holdfast.upkeep.reaper import expired_items, purge
from holdfast.upkeep_commands import Expire, ExpireRun
from tests.unit.reaper_ground import Engine, Time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.commands import Command

MOST_LOOKS = 20


@pytest.fixture
def clock() -> ManualClock:
    """The store's time."""
    return ManualClock()


@pytest.fixture
def engine() -> Engine:
    """Where the rows are."""
    return Engine()


@pytest.fixture
def time(clock: ManualClock, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Time:
    """The reaper's time."""
    time = Time(clock)
    engine.time = time
    time.rule(monkeypatch)
    return time


@pytest.fixture
async def store(engine: Engine, clock: ManualClock) -> AsyncIterator[Store]:
    """A store that is swept by hand."""
    async with Store(engine, clock=clock, reap=False) as store:
        yield store


async def reap(store: Store, time: Time, turns: int) -> None:
    """Let the reaper of a store have so many turns."""
    time.most = turns
    task = asyncio.create_task(store._reaper.run())
    async with asyncio.timeout(60):
        await time.over.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What the reaper said at a level, but for its beginning and end."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level
        and record.name == "holdfast.reaper"
        and "cleanup of" not in record.getMessage()
    ]


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Down to DEBUG."""
    caplog.set_level(logging.DEBUG, logger="holdfast.reaper")


async def test_expiry_is_noticed_within_a_second(store: Store, time: Time) -> None:
    """The reaper looks every second, whatever the interval of its other chores."""
    kv = store.kv("a")
    await kv.set("k", 1, ttl=3, semantics={"purpose": "flag"})
    await reap(store, time, 5)
    assert time.slept == [1.0] * 5
    change = (await kv.history("k"))[0]
    assert change.op == "expired"
    assert change.lag_ms is not None
    assert change.lag_ms <= 1000


async def test_reaper_logs_one_line_for_each_interval(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """What was removed in an interval is told once, at INFO; that nothing was, at DEBUG."""
    for number in range(3):
        await store.kv("a").set(f"{number}", 1, ttl=10 + number)
    await reap(store, time, 601)
    assert [line.split(" in ")[0] for line in lines(caplog, logging.INFO)] == ["removed 3 expired entries"]
    assert [line.split(" in ")[0] for line in lines(caplog, logging.DEBUG)] == ["removed 0 expired entries"]


async def test_a_slow_sweep_is_a_warning(
    store: Store, engine: Engine, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep of more than a second is told at once, with how long it took and what it removed."""
    engine.slowness = 1.5
    await store.sweep()
    assert lines(caplog, logging.WARNING) == ["a sweep took 1.5 s for 0 expired entries"]
    engine.slowness = 1.0
    await store.sweep()
    assert len(lines(caplog, logging.WARNING)) == 1


@pytest.mark.parametrize("error", [Unavailable("storage is down"), RuntimeError("a surprise")])
async def test_reaper_continues_after_an_error(
    store: Store, engine: Engine, time: Time, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An error is logged with its trace; after a pause of at most a minute the sweeping goes on."""
    await store.kv("a").set("k", 1, ttl=1)
    engine.failures = [error]
    await reap(store, time, 4)
    assert time.slept == [1.0, 60.0, 1.0, 1.0]
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert str(error) in record.getMessage()
    assert record.exc_info is not None
    assert [change.op for change in await store.kv("a").history("k")] == ["expired", "set"]


async def test_the_pause_is_the_interval_if_that_is_shorter(
    engine: Engine, clock: ManualClock, time: Time
) -> None:
    """With a short interval the reaper sleeps as long as that, also after an error."""
    async with Store(engine, clock=clock, reap=False, sweep_interval=0.25) as store:
        engine.failures = [Unavailable("down")]
        await reap(store, time, 3)
    assert time.slept == [0.25, 0.25, 0.25]


@pytest.mark.unmeasured
async def test_upkeep_runs_once_an_interval(store: Store, time: Time) -> None:
    """The journal, the trash and the memory of requests are looked through every interval."""
    kv = store.kv("a")
    await kv.set("k", 1, request_id="r")
    time.clock.advance(86_400)
    await reap(store, time, 299)
    assert (await kv.changes()).gap is False
    time.over.clear()
    time.slept.clear()
    await reap(store, time, 301)
    assert (await kv.changes()).gap is True


async def test_reaper_is_idle_where_the_storage_reaps(engine: Engine, clock: ManualClock, time: Time) -> None:
    """Where the other side notices expiry by itself, the reaper does nothing."""
    engine.capabilities = Capabilities(durable=False, owns_reaper=True)
    async with Store(engine, clock=clock, reap=False) as store:
        await store.kv("a").set("k", 1, ttl=1)
        await reap(store, time, 10)
        assert len(await store.kv("a").history("k")) == 1


async def test_a_store_reaps_and_stops(engine: Engine, clock: ManualClock, time: Time, caplog: Any) -> None:
    """A store has its reaper from its opening to its closing, and the log says so."""
    time.most = 3
    async with Store(engine, clock=clock) as store:
        await store.kv("a").set("k", 1, ttl=1)
        async with asyncio.timeout(60):
            await time.over.wait()
        assert (await store.stats("kv/a")).version == 2
    said = [record.getMessage() for record in caplog.records if record.name == "holdfast.reaper"]
    assert (said[0], said[-1]) == (
        "cleanup of expired entries started",
        "cleanup of expired entries stopped",
    )


async def test_many_are_removed_bit_by_bit(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are due, a sweep removes all of them, a few at a time."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "LOOK", 7)
    monkeypatch.setattr(holdfast.upkeep.reaper, "CHUNK", 3)
    for plugin in ("a", "b"):
        await store.kv(plugin).set_many([{"key": f"{n}", "value": 1, "ttl": 1} for n in range(25)])
    groups: list[int] = []
    store.measure(grouped=groups.append, swept=lambda removed, seconds: None)
    clock.advance(1)
    assert await store.sweep() == 50
    assert len(groups) == 8
    assert await store.sweep() == 0


async def test_many_plain_entries_expire_in_runs(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many plain entries of a namespace go together; few, and those with semantics, go one by one."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "LOOK", 20)
    monkeypatch.setattr(holdfast.upkeep.reaper, "CROWD", 5)
    monkeypatch.setattr(holdfast.upkeep.reaper, "RUN", 4)
    crowd = [{"key": f"{n}", "value": 1, "ttl": 1} for n in range(10)]
    await store.kv("plain").set_many(crowd)
    meant = [{**one, "key": f"m{one['key']}", "semantics": {"purpose": "config"}} for one in crowd]
    await store.kv("mixed").set_many([*crowd, *meant])
    await store.kv("few").set_many(crowd[:3])
    asked: list[Command] = []
    store.measure(
        grouped=lambda size: None, swept=lambda *given: None, decided=lambda command, _: asked.append(command)
    )
    clock.advance(1)
    assert await store.sweep() == 33
    runs = [command.namespace for command in asked if isinstance(command, ExpireRun)]
    assert {name: runs.count(name) for name in set(runs)} == {"kv/plain": 3, "kv/mixed": 4}
    single = [key for command in asked if isinstance(command, Expire) for key in command.keys]
    assert sorted(single) == sorted([*(f"m{n}" for n in range(10)), "0", "1", "2"])
    assert await store.sweep() == 0


async def test_a_row_that_can_not_go_does_not_hold_the_sweep(
    store: Store, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When nothing of what is due can be removed, the sweep ends instead of asking for ever."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "LOOK", 1)
    await store.kv("a").set("k", 1, ttl=1)
    clock.advance(1)
    due = await engine.due("kv", clock.now(), limit=1)
    await store.sweep()
    looks = _stale(engine, "due", due, monkeypatch)
    assert await store.sweep() == 0
    assert not (await store._reaper.sweep_inline("kv/a")).freed
    assert not (await store._reaper.sweep_inline("kv/a", excess=1)).journal
    assert looks


async def test_a_namespace_that_can_not_be_swept_does_not_keep_the_others(
    store: Store,
    engine: Engine,
    time: Time,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its entries stay due and are the oldest of all at every look. Another program spoiled its policy."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "LOOK", 2)
    monkeypatch.setattr(rules, "MAX_JOURNAL", 2)
    for number in range(3):
        await store.kv("a").set(f"k{number}", 1, ttl=1)
    await store.kv("b").set("k", 1, ttl=2)
    for number in range(3):
        await store.kv("c").set("k", number)
    engine._namespaces["kv/a"].policy = '{"trash":'
    await reap(store, time, 12)
    assert time.slept.count(60.0) == 6
    assert [change.op for change in (await store.kv("b").changes()).changes] == ["set", "expired"]
    assert (await store.kv("c").changes()).gap
    assert "the upkeep of kv/a failed" in caplog.text


async def test_items_that_can_not_go_do_not_hold_a_write(
    store: Store, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that makes room goes on when the due items of a table stay, and so does one that purges."""
    tables = store.tables("a")
    await tables.create_table("t", partition_key=("id", "string"), ttl_attribute="until")
    await tables.put_item("t", {"id": "1", "until": clock.now() // 1000 + 1})
    clock.advance(2_000)
    [schema] = await tables_at(lambda query: engine.scan(query, clock.now()), "table/a")
    monkeypatch.setattr(holdfast.upkeep.reaper, "DUE", 1)
    due = await engine.due(schema.item_space, clock.now(), limit=1, namespace="table/a")
    assert due
    looks = _stale(engine, "due", due, monkeypatch)
    assert len([one async for one in expired_items(engine, "table/a", clock.now)]) == 1
    assert looks
    left = AsyncMock(return_value=(b"key",))
    row = Row(value="", size=0, version=1, created_at=0, updated_at=0)
    marked = Scanned(keys=[b"space"], rows=[row], more=False)
    monkeypatch.setattr(engine, "scan", AsyncMock(return_value=marked))
    monkeypatch.setattr(holdfast.upkeep.reaper, "_left", left)
    ask = AsyncMock(side_effect=[None] * MOST_LOOKS)
    await purge(engine, "table/a", clock.now, ask)
    assert ask.await_count == 1


def _stale(engine: Engine, name: str, found: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have a look into the engine find the same for ever. Returns the looks; many of them fail the test."""
    looks: list[Any] = []

    async def look(*given: Any, **more: Any) -> Any:
        looks.append(given)
        assert len(looks) < MOST_LOOKS, "it looks for ever, and no other task gets a turn"
        return found

    monkeypatch.setattr(engine, name, look)
    return looks


async def test_failed_sweep_raises(
    store: Store, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for a sweep is told if what is due could not be removed, whatever else was."""
    for plugin in ("a", "b"):
        await store.kv(plugin).set("k", 1, ttl=1)
    clock.advance(1)
    transact = engine.transact

    async def fail(commands: Any, now: Any) -> Any:
        if any(command.namespace == "kv/a" for command in commands):
            raise Unavailable("the disk is away")
        return await transact(commands, now)

    with monkeypatch.context() as away:
        away.setattr(engine, "transact", fail)
        with pytest.raises(Unavailable):
            await store.sweep()
    assert await store.sweep() >= 1
    assert [namespace.keys for namespace in await store.namespaces()] == [0, 0]


async def test_remembered_requests_are_limited(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace remembers its last requests up to a number; the oldest are forgotten first."""
    monkeypatch.setattr(rules, "MAX_REQUESTS", 3)
    monkeypatch.setattr(holdfast.upkeep.reaper, "LOOK", 2)
    kv, other = store.kv("a"), store.kv("b")
    for number in range(10):
        await kv.incr("n", request_id=f"r{number}")
        clock.advance(1)
    await other.incr("n", request_id="r0")
    await store.upkeep()
    for number in (7, 8, 9):
        assert (await kv.incr("n", request_id=f"r{number}")).value == number + 1
    assert (await other.incr("n", request_id="r0")).value == 1
    assert (await kv.incr("n", request_id="r6")).value == 11


async def test_journal_length_is_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal holds the last changes up to a number, also when they are all of today."""
    monkeypatch.setattr(rules, "MAX_JOURNAL", 5)
    monkeypatch.setattr(holdfast.upkeep.reaper, "LOOK", 4)
    kv = store.kv("a")
    for number in range(12):
        await kv.set("k", number)
    await store.upkeep()
    page = await kv.changes()
    assert [change.version for change in page.changes] == [8, 9, 10, 11, 12]
    assert (page.gap, page.oldest) == (True, 8)


async def test_wrong_request_count_does_not_trap_upkeep(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that is too high for what is there does not keep upkeep going for ever."""
    monkeypatch.setattr(rules, "MAX_REQUESTS", 1)
    await store.kv("a").set("k", 1, request_id="r")
    engine._namespaces["kv/a"].requests = 50
    async with asyncio.timeout(60):
        await store.upkeep()
