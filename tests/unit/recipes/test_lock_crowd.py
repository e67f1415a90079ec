"""A crowd at a lock: what a join and a hand-over cost does not depend on how many wait or come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import Unavailable
from holdfast.testing.exact import refusal
from tests.unit.recipes.faults import steps, until, waiting

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store
    from tests.unit.recipes.faults import Faulty


def asked(engine: Faulty) -> int:
    """How much the storage was asked for: commands, listings and looks at the journal."""
    return engine.writes + engine.walks + engine.looks


async def ended(tasks: list[asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def crowd_of(kv: KV, number: int) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(kv.lock("a", ttl=600).acquire()) for _ in range(number)]


@pytest.mark.parametrize("number", [32, 256])
async def test_a_crowd_joins_in_groups(store: Store, engine: Faulty, number: int) -> None:
    """Those who come at once take two writes for every 32, and as many looks at the line."""
    kv = store.kv("crowd")
    await kv.lock("a", ttl=600).acquire()
    [first] = crowd_of(kv, 1)
    await waiting(kv, 1)
    await steps(50)
    writes, walks = engine.writes, engine.walks
    tasks = crowd_of(kv, number)
    await until(lambda: engine.writes >= writes + number // 16)
    await steps(200)
    assert engine.writes == writes + number // 16
    assert engine.walks - walks <= number // 16
    await waiting(kv, number + 1)
    await ended([first, *tasks])


async def test_a_lock_changes_hands_amid_a_crowd(store: Store, engine: Faulty) -> None:
    """While others come, a hand-over waits for as much of their work as fits a few groups, and no more."""
    costs = []
    for number in (128, 512):
        kv = store.kv(f"amid-{number}")
        holder = kv.lock("a", ttl=600)
        await holder.acquire()
        [following] = crowd_of(kv, 1)
        await waiting(kv, 1)
        await steps(50)
        tasks = crowd_of(kv, number)
        await steps(1)
        before = asked(engine)
        await holder.release()
        await following
        costs.append(asked(engine) - before)
        await ended(tasks)
    assert costs[0] <= 40
    assert costs[1] <= costs[0] + 4


async def test_a_crowd_is_served_in_the_order_of_its_coming(store: Store) -> None:
    """Whoever comes first is served first, also within a group and from one group to the next."""
    kv, order = store.kv("order"), []

    async def hold(number: int) -> None:
        async with kv.lock("a", ttl=600, owner="odd" if number % 30 == 7 else None):
            order.append(number)

    async with kv.lock("a", ttl=600):
        tasks = [asyncio.create_task(hold(number)) for number in range(80)]
        await waiting(kv, len(tasks))
    await asyncio.gather(*tasks)
    assert order == sorted(order)


async def test_one_of_a_group_goes_away(store: Store, engine: Faulty) -> None:
    """A waiter that is cancelled at any step of joining leaves no place behind, and the others are served."""
    for number in range(50):
        kv = store.kv(f"away-{number}")
        holder = kv.lock("a", ttl=600)
        await holder.acquire()
        locks = [kv.lock("a", ttl=600) for _ in range(3)]
        tasks = [asyncio.create_task(lock.acquire()) for lock in locks]
        await steps(number)
        tasks[1].cancel()
        await asyncio.wait({tasks[1]})
        await holder.release()
        for position in (0, 2):
            async with asyncio.timeout(60):
                assert await tasks[position]
            assert await locks[position].release()
        assert (await kv.list()).keys == []


async def test_a_crowd_is_told_at_once_that_the_storage_is_away(kv: KV, engine: Faulty) -> None:
    """Whoever only begins to acquire gets the error at once, also where others of the process wait."""
    await kv.lock("a", ttl=600).acquire()
    [first] = crowd_of(kv, 1)
    await waiting(kv, 1)
    await steps(50)
    engine.always = "away"
    for task in crowd_of(kv, 3):
        async with asyncio.timeout(60):
            with refusal(Unavailable):
                await task
    assert not first.done()
    engine.always = ""
    await ended([first])


async def test_storage_that_goes_away_while_a_group_joins(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """Whoever has drawn a ticket keeps trying; when the time is over everybody of the group is told."""
    await kv.lock("a", ttl=600).acquire()
    [first] = crowd_of(kv, 1)
    await waiting(kv, 1)
    await steps(50)
    engine.faults, engine.always = [""], "away"
    tasks = [asyncio.create_task(kv.lock("a", ttl=30).acquire()) for _ in range(3)]
    await steps(50)
    assert not any(task.done() for task in tasks)
    clock.advance(31)
    for task in tasks:
        async with asyncio.timeout(60):
            with refusal(Unavailable):
                await task
    engine.always = ""
    await ended([first])


async def test_answers_of_a_group_that_are_lost(kv: KV, engine: Faulty) -> None:
    """Where nobody knows whether a group was served it is asked for again, and everybody stands once."""
    await kv.lock("a", ttl=600).acquire()
    [first] = crowd_of(kv, 1)
    await waiting(kv, 1)
    engine.faults = ["lost", "", "lost", ""]
    tasks = crowd_of(kv, 3)
    await waiting(kv, 4)
    await ended([first, *tasks])
    assert (await kv.list()).keys == ["lock/a"]


async def test_group_without_waiters_stops_joining(kv: KV, engine: Faulty) -> None:
    """When the last waiter of a group has left, nothing joins the queue on its behalf any more."""
    await kv.lock("a", ttl=600).acquire()
    [first] = crowd_of(kv, 1)
    await waiting(kv, 1)
    engine.faults, engine.always = [""], "away"
    tasks = crowd_of(kv, 3)
    await steps(20)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast joins")]
    await ended(tasks)
    await steps(20)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast joins")]
    engine.always = ""
    await ended([first])


@pytest.mark.unmeasured
async def test_waiters_keep_their_places_one_after_the_other(
    kv: KV, engine: Faulty, clock: ManualClock
) -> None:
    """A crowd does not write all at once to keep its places, and nobody loses one."""
    holder = kv.lock("a", ttl=600)
    await holder.acquire()
    tasks = [asyncio.create_task(kv.lock("a", ttl=60).acquire()) for _ in range(20)]
    await waiting(kv, 20)
    await steps(50)
    places = (await kv.list("lock/a/waiting/")).keys
    most = 0
    for _ in range(60):
        before = engine.writes
        clock.advance(1)
        await steps(60)
        most = max(most, engine.writes - before)
    assert (await kv.list("lock/a/waiting/")).keys == places
    assert 0 < most <= 10
    await ended(tasks)
    assert await holder.release()
