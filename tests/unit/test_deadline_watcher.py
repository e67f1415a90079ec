"""Entries with semantics are noticed within a second of their deadline, whatever else goes on.

What a user sees is the lag in the record of an expiry.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

import holdfast.upkeep.deadline_watcher
from holdfast.clock import ManualClock
from holdfast.engine import Capabilities
from holdfast.errors import Unavailable
from holdfast.store import Store
from holdfast.upkeep.deadline_watcher import GATHERING, HORIZON
from tests.unit.reaper_ground import Engine, Time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.handles.kv import KV

MEANT = {"purpose": "session"}


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
    engine.time = Time(clock)
    engine.time.rule(monkeypatch)
    return engine.time


@pytest.fixture
async def store(engine: Engine, clock: ManualClock) -> AsyncIterator[Store]:
    """A store whose reaper is run by the test."""
    async with Store(engine, clock=clock, reap=False) as store:
        yield store


async def reap(store: Store, time: Time, seconds: float) -> None:
    """Let the reaper of a store run for so long."""
    time.most = 10**6
    task = asyncio.create_task(store._reaper.run())
    await time.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def lags(kv: KV) -> list[int]:
    """How late each expiry was noticed, in milliseconds."""
    changes = (await kv.changes(limit=1000)).changes
    return [change.lag_ms for change in changes if change.op == "expired" and change.lag_ms is not None]


async def write(store: Store, time: Time, number: int, *, every: float) -> None:
    """Write entries of both families that expire within seconds, one after the other."""
    for n in range(number):
        await store.kv("a").set(f"k{n}", n, ttl=1 + n % 3, semantics=MEANT)
        await store.semantic("acme", "shop").set(f"k{n}", n, ttl=1 + n % 3)
        await time.sleep(every)


async def test_entries_are_noticed_within_a_second_while_looks_take_long(
    store: Store, engine: Engine, time: Time
) -> None:
    """An entry with semantics, or of the semantic family, is noticed within a second on slow storage too."""
    engine.look_takes = 0.35
    writing = asyncio.create_task(write(store, time, 40, every=0.137))
    await reap(store, time, 40)
    await writing
    for kv in (store.kv("a"), store.semantic("acme", "shop")):
        found = await lags(kv)
        assert len(found) == 40
        assert max(found) <= 1000


@pytest.mark.unmeasured
async def test_a_crowd_of_plain_entries_does_not_delay_them(
    store: Store, engine: Engine, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a sweep of plain entries goes on and on, those with semantics are noticed within a second."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "RUN", 4)
    engine.run_takes = 0.2
    await store.kv("crowd").set_many([{"key": f"{n}", "value": 1, "ttl": 1} for n in range(1000)])
    writing = asyncio.create_task(write(store, time, 40, every=0.3))
    await reap(store, time, 45)
    await writing
    left = await engine.due("kv", time.clock.now(), limit=1000, namespace="kv/crowd")
    assert 0 < len(left) < 1000  # the sweep took longer than all the rest
    found = await lags(store.kv("a")) + await lags(store.semantic("acme", "shop"))
    assert len(found) == 80
    assert max(found) <= 1000


async def test_entries_of_another_process_are_noticed_within_a_second(
    store: Store, engine: Engine, clock: ManualClock, time: Time
) -> None:
    """An entry that another process writes right after a look is noticed within a second of its deadline."""
    async with Store(engine, clock=clock, reap=False) as other:

        async def wait_and_write() -> None:
            await time.sleep(0.001)
            await other.kv("a").set("k", 1, ttl=1, semantics=MEANT)

        writing = asyncio.create_task(wait_and_write())
        await reap(store, time, 3)
        await writing
    [lag] = await lags(store.kv("a"))
    assert lag <= GATHERING * 1000


async def test_watcher_sleeps_until_the_next_deadline(store: Store, time: Time) -> None:
    """Without a deadline ahead the watcher looks every second; otherwise it wakes at the deadline, and no
    more often than needed.
    """
    await store.kv("plain").set("k", 1, ttl=1)
    await store.kv("a").set("k", 1, ttl=4, semantics=MEANT)
    await time.sleep(0.6)
    await reap(store, time, 6)
    assert time.looked[:5] == pytest.approx([HORIZON, HORIZON, HORIZON, 0.4, HORIZON])
    assert await lags(store.kv("a")) == [0]


async def test_a_stream_of_deadlines_costs_four_looks_a_second(store: Store, time: Time) -> None:
    """However many entries fall due one after the other, the storage is asked a bounded number of times."""
    for n in range(400):
        await store.kv("a").set(f"k{n}", n, ttl=5, semantics=MEANT)
        time.pass_by(0.01)
    await reap(store, time, 6)
    assert len(await lags(store.kv("a"))) == 400
    assert len(time.looked) <= 6 / GATHERING


async def test_all_due_entries_are_noticed_page_by_page(
    store: Store, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that are due at the same time are noticed, a part at a time, without a pause between the parts."""
    monkeypatch.setattr(holdfast.upkeep.deadline_watcher, "LOOK", 7)
    for n in range(50):
        await store.kv("a").set(f"k{n}", n, ttl=2, semantics=MEANT)
    await reap(store, time, 2.5)
    assert await lags(store.kv("a")) == [0] * 50


async def test_entries_that_can_not_expire_do_not_hide_others(
    store: Store, engine: Engine, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page full of them is left to the sweep. Another program has spoiled the policy of their namespace."""
    monkeypatch.setattr(holdfast.upkeep.deadline_watcher, "LOOK", 2)
    for n in range(5):
        await store.kv("a").set(f"k{n}", n, ttl=1, semantics=MEANT)
    await store.kv("b").set("k", 1, ttl=8, semantics=MEANT)
    engine._namespaces["kv/a"].policy = '{"trash":'
    engine.failures = [Unavailable("the sweep is down")] * 100
    await reap(store, time, 10)
    assert await lags(store.kv("b")) == [0]


async def test_watcher_continues_after_failures(
    store: Store, engine: Engine, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure is told once, and every second it tries again; nothing that fell due meanwhile is missed."""
    await store.kv("a").set("k", 1, ttl=1, semantics=MEANT)
    engine.failures = [Unavailable("down")] * 2
    engine.missed = [Unavailable("the storage is down")] * 4
    await reap(store, time, 5)
    [lag] = await lags(store.kv("a"))
    assert lag == 3000
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == ["detecting expired semantic entries failed; retrying: the storage is down"]


async def test_somebody_else_notices(store: Store, engine: Engine, time: Time) -> None:
    """Where the other side notices expiry by itself, nothing is asked."""
    engine.capabilities = Capabilities(durable=False, owns_reaper=True)
    await store.kv("a").set("k", 1, ttl=1, semantics=MEANT)
    await reap(store, time, 5)
    assert await lags(store.kv("a")) == []
    assert set(time.looked) == {HORIZON}


async def test_watcher_waits_while_the_time_is_unknown(store: Store, time: Time) -> None:
    """While an instance is not sure of its time it lets nothing expire; afterwards it misses nothing."""
    kv = store.kv("a")
    await kv.set("k", 1, ttl=1, semantics=MEANT)
    store._reaper.steady = lambda: False
    await reap(store, time, 10)
    assert await lags(kv) == []
    store._reaper.steady = lambda: True
    await reap(store, time, 2)
    assert len(await lags(kv)) == 1
