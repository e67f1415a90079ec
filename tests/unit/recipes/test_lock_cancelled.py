"""Cancelling whoever takes, keeps, gives back or waits for a lock, at every step that the loop can see.

Each test goes through all steps until the call is done before it can be cancelled, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import LockLost
from tests.unit.recipes.faults import steps, until, waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.handles.recipes.lock import Lock
    from holdfast.store import Store

MOST = 400
"""More steps than any of the calls takes."""


async def hold(lock: Lock) -> None:
    """Hold a lock until cancelled."""
    async with lock:
        await asyncio.Event().wait()


async def waiting_for_holder(lock: Lock) -> None:
    """Wait until a lock is held."""
    await until(lambda: lock.held)


async def cancelled_after(task: asyncio.Task[object], number: int) -> bool:
    """Cancel a task after so many steps; whether it was still at work, and ended by that."""
    await steps(number)
    if not task.cancel():
        return False
    await asyncio.wait({task})
    return task.cancelled()


async def at_every_step(attempt: Callable[[KV, int], Awaitable[bool]], store: Store) -> int:
    """Go on with one step more, each time in a namespace of its own, until the call is no longer stopped."""
    for number in range(MOST):
        if not await attempt(store.kv(f"step-{number}"), number):
            return number
    raise AssertionError("the call never comes to its end")


async def free_at_once(kv: KV) -> None:
    """Nothing of the lock `a` is left, and the next one gets it."""
    assert (await kv.list()).keys == []
    lock = kv.lock("a")
    assert await lock.acquire(timeout=0)
    assert await lock.release()


async def test_taking_a_free_lock(store: Store) -> None:
    """Whoever is cancelled while taking a lock does not have it, and nobody has to wait for its ttl."""

    async def attempt(kv: KV, number: int) -> bool:
        lock = kv.lock("a", ttl=60)
        task = asyncio.create_task(lock.acquire())
        stopped = await cancelled_after(task, number)
        assert lock.held is not stopped
        if not stopped:
            assert await task
            await lock.release()
        await free_at_once(kv)
        return stopped

    assert await at_every_step(attempt, store) > 4


async def test_waiting_for_a_lock(store: Store) -> None:
    """Whoever is cancelled while getting into the line leaves it, and the holder is not disturbed."""

    async def attempt(kv: KV, number: int) -> bool:
        async with kv.lock("a", ttl=60) as lock:
            task = asyncio.create_task(kv.lock("a", ttl=60).acquire())
            assert await cancelled_after(task, number)
            assert lock.held
            assert (await kv.list()).keys == ["lock/a"]
        await free_at_once(kv)
        return number < 60

    assert await at_every_step(attempt, store) == 60


async def test_taking_a_lock_when_it_is_ones_turn(store: Store) -> None:
    """Whoever is cancelled while the lock is passed on to them does not have it, and the next one gets it."""

    async def attempt(kv: KV, number: int) -> bool:
        first, second, third = (kv.lock("a", ttl=60) for _ in range(3))
        await first.acquire()
        task = asyncio.create_task(second.acquire())
        await waiting(kv, 1)
        after = asyncio.create_task(third.acquire())
        await waiting(kv, 2)
        await first.release()
        stopped = await cancelled_after(task, number)
        if not stopped:
            assert second.token > first.token
            await second.release()
        async with asyncio.timeout(60):
            assert await after
        await third.release()
        await free_at_once(kv)
        return stopped

    assert await at_every_step(attempt, store) > 4


async def test_giving_a_lock_back(store: Store, clock: ManualClock) -> None:
    """A release that is cancelled has happened, or leaves the lock to its ttl: nobody renews it any more."""

    async def attempt(kv: KV, number: int) -> bool:
        lock = kv.lock("a", ttl=30)
        await lock.acquire()
        stopped = await cancelled_after(asyncio.create_task(lock.release()), number + 1)
        clock.advance(20)
        await steps(30)
        clock.advance(10)
        await steps(30)
        await free_at_once(kv)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast keeps")]
        return stopped

    assert await at_every_step(attempt, store) > 2


async def test_holding_a_lock_that_is_being_renewed(store: Store, clock: ManualClock) -> None:
    """A holder that is cancelled in the middle of a renewal gives the lock back all the same."""

    async def attempt(kv: KV, number: int) -> bool:
        lock = kv.lock("a", ttl=30)
        task = asyncio.create_task(hold(lock))
        await waiting_for_holder(lock)
        taken = await kv.get("lock/a")
        clock.advance(11)
        await steps(number)
        renewed = await kv.get("lock/a") != taken
        assert task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await free_at_once(kv)
        return not renewed or number < 40

    assert await at_every_step(attempt, store) >= 40


async def test_ending_while_a_renewal_is_refused(store: Store, clock: ManualClock) -> None:
    """A holder that ends while it learns that its lock is lost leaves no error behind for the loop to log."""
    left: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: left.append(context))
    for number in range(40):
        kv = store.kv(f"step-{number}")
        lock = kv.lock("a", ttl=30)
        task = asyncio.create_task(hold(lock))
        await waiting_for_holder(lock)
        await kv.delete("lock/a")
        clock.advance(11)
        await cancelled_after(task, number)
        assert task.cancelled() or isinstance(task.exception(), LockLost)
    gc.collect()
    assert left == []


async def test_losing_a_lock_and_being_cancelled(store: Store, clock: ManualClock) -> None:
    """Whoever cancels a holder gets that, though the lock is lost meanwhile; else the holder learns of it."""
    ends = set()
    for number in range(20):
        lock = store.kv(f"step-{number}").lock("a", ttl=30)
        task = asyncio.create_task(hold(lock))
        await waiting_for_holder(lock)
        clock.advance(30)
        await steps(number)
        asked = task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() is asked
        if not asked:
            assert isinstance(task.exception(), LockLost)
        ends.add(asked)
    assert ends == {True, False}


async def test_a_timeout_around_a_lost_lock(kv: KV, clock: ManualClock) -> None:
    """The loss of a lock leaves no trace of its cancellation: timeouts and groups around it work on."""
    async with asyncio.timeout(60) as limit:
        with contextlib.suppress(LockLost):
            async with kv.lock("a", ttl=30):
                clock.advance(30)
                await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
    assert not limit.expired()


async def test_a_holder_that_ignores_the_loss(kv: KV, clock: ManualClock) -> None:
    """A block that swallows its cancellation is told at its end; an error of its own goes first."""

    async def ignore(error: Exception | None) -> None:
        async with kv.lock("a", ttl=30):
            clock.advance(30)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if error is not None:
                    raise error from None

    with pytest.raises(LockLost):
        await ignore(None)
    with pytest.raises(ZeroDivisionError):
        await ignore(ZeroDivisionError())
