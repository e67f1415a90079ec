"""Locks on storage that loses answers, goes away and comes back."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import DatabaseError, LockLost, OutcomeUnknown, Unavailable, ValidationError
from holdfast.handles.recipes import lock as module
from holdfast.handles.recipes.lock import news_of
from holdfast.testing.exact import refusal
from tests.unit.recipes.faults import Faulty, steps, until, waiting

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.engine import JournalPage
    from holdfast.handles.kv import KV
    from holdfast.store import Store


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a release that is repeated not wait."""
    monkeypatch.setattr(module, "RELEASE_PAUSES", (0, 0, 0))


@pytest.mark.parametrize("fault", ["lost", "vanished"])
async def test_taking_a_lock_whose_answer_is_lost(fault: str, kv: KV, engine: Faulty) -> None:
    """Whoever is not told whether they have the lock finds out, and has the token if they do."""
    engine.faults = [fault, "away", fault]
    async with kv.lock("a") as lock:
        assert (await kv.set("k", 1, fence=lock.fence)).version == lock.token + 1
    assert lock.token == 2
    assert await kv.get("lock/a") is None


async def test_taking_a_lock_from_storage_that_is_away(kv: KV, engine: Faulty) -> None:
    """Whoever can't reach the storage is told at once: nothing was taken."""
    engine.faults = ["away"]
    lock = kv.lock("a")
    with refusal(Unavailable):
        await lock.acquire()
    assert not lock.held
    assert await lock.acquire(timeout=0)
    assert await lock.release()


async def test_taking_a_lock_that_nobody_ever_confirms(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """An answer that comes after the lease is over is no lock: it may be somebody else's by then."""
    engine.always = "lost"
    lock = kv.lock("a", ttl=30)
    taking = asyncio.create_task(lock.acquire(timeout=0))
    await steps(20)
    clock.advance(30)
    with refusal(OutcomeUnknown):
        await taking
    assert not lock.held
    engine.always = ""
    assert await kv.lock("a").acquire(timeout=0)


async def test_an_old_answer_is_no_lock(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A success that is heard of after its time is over does not count: the lock is waited for anew."""
    engine.faults = ["late"]
    engine.late = partial(clock.advance, 30)
    async with kv.lock("a", ttl=30, timeout=20) as lock:
        assert engine.faults == []
        assert lock.held
        assert (await kv.set("k", 1, fence=lock.fence)).value == 1


async def test_a_renewal_whose_answer_is_lost(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A holder goes on from a renewal that it was not told of, and gives the lock back in the end."""
    async with kv.lock("a", ttl=30) as lock:
        for fault in ("lost", "vanished", "away"):
            engine.faults = [fault]
            clock.advance(11)
            await until(lambda: lock._lease is not None and lock._lease.due > 0)
            assert engine.faults == []
            assert lock.held
    assert await kv.get("lock/a") is None


async def test_a_renewal_that_is_answered_late(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A renewal counts from when it was sent: the holder stops no later than the entry expires."""
    lock = kv.lock("a", ttl=30)
    await lock.acquire()
    engine.late = partial(clock.advance, 15)
    engine.faults, engine.always = ["late"], "away"
    clock.advance(11)
    await until(lambda: not engine.faults)
    await steps(20)
    for seconds, held in ((14, True), (1, False)):
        clock.advance(seconds)
        assert (lock.held, await kv.get("lock/a") is not None) == (held, held)
    engine.always = ""
    assert await lock.release() is False


async def test_storage_that_stays_away(
    kv: KV, engine: Faulty, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a renewal the lock is lost at its deadline, by the holder's own clock; the log tells why."""
    with refusal(LockLost, says="the storage is away"):
        async with kv.lock("a", ttl=30) as lock:
            engine.always, asked = "away", engine.writes
            clock.advance(29)
            await until(lambda: engine.writes > asked)
            await steps(20)  # the refusal arrives
            assert lock.held
            clock.advance(1)
            await asyncio.Event().wait()
    (told,) = [text for text in caplog.messages if text.startswith("lock 'a' of kv/trivia was lost: ")]
    assert "the storage is away" in told


async def test_storage_that_goes_away_and_then_hangs(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A holder whose last attempt got no reply is told how the one before it failed, too."""
    says = "no reply came before the lease ended; the attempt before failed: the storage is away"
    with refusal(LockLost, says=says):
        async with kv.lock("a", ttl=30):
            engine.faults, asked = ["away"], engine.writes
            clock.advance(11)
            await until(lambda: not engine.faults)
            engine.gate.clear()
            await until(lambda: engine.writes > asked + 1)
            clock.advance(19)
            await asyncio.Event().wait()
    engine.gate.set()


async def test_a_holder_that_was_stopped_is_told_so(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A holder that did not run until its lease was over is not told that the storage gave no reply."""
    with refusal(LockLost, says="the lease of 30 s was over before the attempt: this process was stopped"):
        async with kv.lock("a", ttl=30):
            asked = engine.writes
            clock.advance(31)
            await asyncio.Event().wait()
    assert engine.writes == asked


async def test_storage_that_hangs(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A renewal that is never answered does not keep the holder from noticing its deadline."""
    with refusal(LockLost, says="no reply came before the lease ended"):
        async with kv.lock("a", ttl=30):
            engine.gate.clear()
            clock.advance(11)
            await steps(50)
            clock.advance(19)
            await asyncio.Event().wait()
    engine.gate.set()


@pytest.mark.parametrize("fault", ["lost", "vanished", "away"])
async def test_a_release_whose_answer_is_lost(fault: str, kv: KV, engine: Faulty) -> None:
    """A release is repeated until it is known to be done."""
    lock = kv.lock("a")
    await lock.acquire()
    engine.faults = [fault]
    assert await lock.release() is True
    assert await kv.get("lock/a") is None


async def test_a_release_that_can_not_be_done(
    kv: KV, engine: Faulty, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the storage stays away a release gives up with a warning, and the lock expires."""
    async with kv.lock("a", ttl=30):
        engine.always = "away"
    assert "lock 'a' of kv/trivia was not released and will expire" in caplog.text
    engine.always = ""
    assert not await kv.lock("a").acquire(timeout=0)
    clock.advance(30)
    assert await kv.lock("a").acquire(timeout=0)


async def test_a_waiter_outlasts_an_outage(kv: KV, engine: Faulty, clock: ManualClock) -> None:
    """A waiter keeps its place while the storage is away for less than its time."""
    holder, lock = kv.lock("a", ttl=60), kv.lock("a", ttl=60)
    await holder.acquire()
    waiter = asyncio.create_task(lock.acquire())
    await waiting(kv, 1)
    places = (await kv.list("lock/a/waiting/")).keys
    engine.faults = ["away", "vanished", "lost"] * 3
    clock.advance(25)
    await until(lambda: not engine.faults)
    assert (await kv.list("lock/a/waiting/")).keys == places
    await holder.release()
    async with asyncio.timeout(60):
        assert await waiter
    await lock.release()


async def test_a_waiter_that_lost_its_place(kv: KV, clock: ManualClock) -> None:
    """A waiter whose place has expired, as after a long sleep, gets a new one at the end of the line."""
    lock = kv.lock("a", ttl=600)
    await lock.acquire()
    late, other = kv.lock("a", ttl=30), kv.lock("a", ttl=600)
    sleeper = asyncio.create_task(late.acquire())
    await waiting(kv, 1)
    follower = asyncio.create_task(other.acquire())
    await waiting(kv, 2)
    last = (await kv.list("lock/a/waiting/")).keys[-1]
    await steps(50)
    clock.advance(30)
    await waiting(kv, 1)
    await waiting(kv, 2)
    assert (await kv.list("lock/a/waiting/")).keys[0] == last
    await lock.release()
    async with asyncio.timeout(60):
        await asyncio.wait({sleeper, follower}, return_when=asyncio.FIRST_COMPLETED)
        first, second = (late, other) if sleeper.done() else (other, late)
        await first.release()
        await asyncio.gather(sleeper, follower)
        await second.release()
    assert first is other
    assert (await kv.list()).keys == []


async def test_a_journal_that_does_not_reach_back(
    kv: KV, store: Store, engine: Faulty, clock: ManualClock
) -> None:
    """A waiter for a lock that is older than the journal waits in peace, and hears when it is free."""
    await kv.set("lock/a", {"holder": "long"}, ttl=10 * 86_400)
    clock.advance(86_400)
    await kv.set("other", 1)
    clock.advance(86_400)
    await store.upkeep()
    assert (await kv.changes(since=1)).gap
    lock = kv.lock("a", ttl=30)
    waiter = asyncio.create_task(lock.acquire())
    await waiting(kv, 1)
    await steps(200)
    looked = engine.walks
    await steps(200)
    assert engine.walks == looked
    await kv.delete("lock/a")
    async with asyncio.timeout(60):
        assert await waiter
    await lock.release()


async def test_a_lock_changes_hands_at_the_same_cost(store: Store, engine: Faulty) -> None:
    """A lock that is passed on costs as many writes, listings and looks with 40 who wait as with 4."""
    costs = []
    for crowd in (4, 40):
        kv = store.kv(f"crowd-{crowd}")
        locks = [kv.lock("a", ttl=600) for _ in range(crowd + 1)]
        await locks[0].acquire()
        tasks = []
        for number, lock in enumerate(locks[1:], start=1):
            tasks.append(asyncio.create_task(lock.acquire()))
            await waiting(kv, number)
        await steps(100)
        before = engine.writes, engine.walks, engine.looks
        for number in range(3):
            await locks[number].release()
            await tasks[number]
            await steps(100)
        after = engine.writes, engine.walks, engine.looks
        costs.append([now - then for now, then in zip(after, before, strict=True)])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await locks[3].release()
    assert costs[0] == costs[1]
    assert costs[0][:2] == [6, 6]


async def test_a_store_that_is_closed(kv: KV, store: Store) -> None:
    """Whoever waits for a lock of a store that is being closed is told."""
    await kv.lock("a", ttl=60).acquire()
    waiter = asyncio.create_task(kv.lock("a", ttl=60).acquire())
    await waiting(kv, 1)
    await steps(50)
    await store.aclose()
    async with asyncio.timeout(60):
        with refusal(Unavailable):
            await waiter


async def test_a_journal_that_fails(kv: KV, engine: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where following changes has stopped every waiter is told, and those who come later begin anew."""

    async def fail(query: object) -> JournalPage:
        raise DatabaseError("the journal can't be read")

    holder, last = kv.lock("a", ttl=60), kv.lock("a", ttl=60)
    await holder.acquire()
    waiters = [asyncio.create_task(kv.lock("a", ttl=60).acquire()) for _ in range(2)]
    await waiting(kv, 2)
    await steps(50)
    monkeypatch.setattr(engine, "journal", fail)
    await kv.set("other", 1)
    for end in await asyncio.gather(*waiters, return_exceptions=True):
        assert isinstance(end, DatabaseError)
    assert (await kv.list("lock/")).keys == ["lock/a"]
    monkeypatch.undo()
    waiter = asyncio.create_task(last.acquire())
    await waiting(kv, 1)
    await holder.release()
    async with asyncio.timeout(60):
        assert await waiter
    await last.release()


async def test_a_lock_that_somebody_removed(
    kv: KV, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A holder whose entry is gone learns that with the next renewal, though its time is not over."""
    lock = kv.lock("a", ttl=30)
    await lock.acquire()
    await kv.delete("lock/a")
    clock.advance(11)
    await until(lambda: any("was lost" in text for text in caplog.messages))
    assert not lock.held
    assert await lock.release() is False


async def test_a_gap_wakes_whoever_waits(kv: KV, engine: Faulty) -> None:
    """Where changes may have been missed, everybody who waits for one looks for themselves."""
    await kv.set("lock/a", 1)
    async with asyncio.timeout(60), news_of(kv, "lock/a", since=1) as news:
        left = news.leaving("lock/a")
        await steps(20)
        assert not left.done()
        engine._epoch = "another storage"
        await kv.set("other", 1)
        await left


async def test_shared_watch_reports_removals_before_anybody_listened(kv: KV) -> None:
    """A shared watch reports what was removed since the version it begins at, before anybody listened."""
    entry = await kv.set("lock/a", 1)
    await kv.delete("lock/a")
    async with asyncio.timeout(60), news_of(kv, "lock/a", since=entry.version) as news:
        await news.leaving("lock/a")


async def test_misuse(kv: KV) -> None:
    """An object holds its lock once; what it does not hold it can't give back, and has no token of."""
    lock = kv.lock("a")
    with pytest.raises(RuntimeError, match="has not been acquired"):
        assert lock.token
    with pytest.raises(RuntimeError, match="not held by this object"):
        await lock.release()
    async with lock:
        with pytest.raises(RuntimeError, match="held by this very object"):
            await lock.acquire()
    for wrong in (-1, "1", True, float("nan")):
        with refusal(ValidationError, field="timeout", about=wrong):
            await lock.acquire(timeout=wrong)  # type: ignore[arg-type]
