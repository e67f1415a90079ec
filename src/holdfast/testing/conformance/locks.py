"""Locks: who holds one, who is next, and what happens when a holder dies.

Law: a lock is observed through its object, the fence and the journal. The tests write its entries, whose keys
are documented, only in place of holders and waiters that have died.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import Busy, Fenced, LockLost, ValidationError
from holdfast.rules import MAX_SEMANTIC_KEY_CHARACTERS
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.watching import PATIENCE, collect
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.handles.recipes.lock import Lock
    from holdfast.store import Store


async def waiting(kv: KV, number: int) -> None:
    """Wait until the lock `a` has this number of waiters."""
    async with asyncio.timeout(PATIENCE):
        while len((await kv.list("lock/a/waiting/")).keys) != number:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.002)


async def dead(kv: KV, key: str, value: object = None) -> None:
    """Leave an entry of a lock behind, as a holder or waiter that died would."""
    await kv.set(key, value, ttl=30, semantics={"purpose": "lock"}, writer="gone")


async def held_for_ever(lock: Lock) -> None:
    """Hold a lock until cancelled."""
    async with asyncio.timeout(PATIENCE), lock:
        await asyncio.Event().wait()


class LockRules(Fixtures):
    """The rules of locks."""

    async def test_one_holder_at_a_time(self, store: Store) -> None:
        """A lock has one holder at a time; each holding has a greater token, and nothing is left behind."""
        inside: list[int] = []
        tokens: list[int] = []

        async def work(kv: KV) -> None:
            async with asyncio.timeout(PATIENCE), kv.lock("a", ttl=60) as lock:
                inside.append(lock.token)
                await kv.set("k", lock.token, fence=lock.fence)
                assert inside == [lock.token]
                tokens.append(inside.pop())

        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            await asyncio.gather(*(work(kv) for _ in range(5)))
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 5
            assert present(await kv.get("k")).value == tokens[-1]
            assert len((await kv.list()).keys) == 1
            tokens.clear()

    async def test_first_come_first_served(self, kv: KV) -> None:
        """Waiters get the lock in the order in which they arrived."""
        served: list[int] = []

        async def work(number: int) -> None:
            async with asyncio.timeout(PATIENCE), kv.lock("a", ttl=60):
                served.append(number)

        async with kv.lock("a", ttl=60):
            tasks = []
            for number in range(4):
                tasks.append(asyncio.create_task(work(number)))
                await waiting(kv, number + 1)
        assert not await kv.lock("a").acquire(timeout=0)  # a waiter is ahead
        await asyncio.gather(*tasks)
        assert served == [0, 1, 2, 3]
        assert (await kv.list()).keys == []
        assert {change.purpose for change in (await kv.changes()).changes} == {"lock"}

    async def test_locks_do_not_meet(self, store: Store, kv: KV) -> None:
        """Locks of different names, and of different namespaces, are independent."""
        names = ("a", "a/b", "a-b", "a.b", "aa", "b")
        locks = [kv.lock(name) for name in names]
        for lock in locks:
            assert await lock.acquire(timeout=0)
        elsewhere = store.kv("elsewhere").lock("a")
        assert await elsewhere.acquire(timeout=0)
        for lock in (*locks, elsewhere):
            assert await lock.release()

    async def test_a_lock_that_is_not_free(self, kv: KV) -> None:
        """A wait that times out reports that the lock was not free, and leaves nothing behind."""
        lock = kv.lock("a")
        async with lock:
            assert lock.held is True
            assert not await kv.lock("a").acquire(timeout=0)
            assert not await kv.lock("a").acquire(timeout=0.02)
            with refusal(Busy, says="'a' was not free within 0.02 s"):
                async with kv.lock("a", timeout=0.02):
                    pass
            assert (await kv.list()).keys == ["lock/a"]
        assert [lock.held] == [False]
        async with kv.lock("a", timeout=0) as again:
            assert again.token > lock.token

    async def test_what_is_told_of_a_lock(self, kv: KV) -> None:
        """The entry of a lock shows its purpose and its owner, and never goes to the trash."""
        async with kv.lock("a", ttl=60, owner="agent:sync"):
            entry = present(await kv.get("lock/a"))
            assert entry.semantics is not None
            assert (entry.semantics.purpose, entry.semantics.producer) == ("lock", "agent:sync")
            assert entry.last_writer == "agent:sync"
        assert [(change.op, change.purpose) for change in await kv.history("lock/a")] == [
            ("deleted", "lock"),
            ("set", "lock"),
        ]

    async def test_a_held_lock_is_renewed(self, kv: KV, clock: ManualClock) -> None:
        """A holder keeps the lock for longer than its ttl, with the same token."""
        async with kv.lock("a", ttl=30) as lock:
            taken = present(await kv.get("lock/a"))
            for _ in range(2):
                clock.advance(20)
                [renewal] = await collect(kv, 1, "lock/a", since=present(await kv.get("lock/a")).version)
                assert renewal.op == "set"
                assert not await kv.lock("a").acquire(timeout=0)
            renewed = present(await kv.get("lock/a"))
            assert (renewed.value, renewed.created_at) == (taken.value, taken.created_at)
            assert lock.held
            await kv.set("k", 1, fence=lock.fence)

    async def test_a_lease_that_was_not_renewed(self, kv: KV, clock: ManualClock) -> None:
        """When its lease ends, the holder is cancelled with an error, and the next holder fences it off."""
        lock = kv.lock("a", ttl=30)
        with refusal(LockLost, says="'a'"):
            async with asyncio.timeout(PATIENCE), lock:
                clock.advance(30)
                assert [lock.held] == [False]
                await asyncio.Event().wait()
        async with kv.lock("a", timeout=0) as newer:
            with refusal(Fenced, field="fence", says="'a'"):
                await kv.set("k", "old", fence=lock.fence)
            await kv.set("k", "new", fence=newer.fence)
        with refusal(Fenced, field="fence", says="'a'"):
            await kv.set("k", "old", fence=lock.fence)
        assert present(await kv.get("k")).value == "new"

    async def test_a_lock_that_was_taken_away(self, kv: KV, clock: ManualClock) -> None:
        """A refused renewal raises an error in the holder; its release leaves the new lock alone."""
        lock = kv.lock("a", ttl=30)
        holder = asyncio.create_task(held_for_ever(lock))
        await collect(kv, 1, "lock/a", since=0)
        await kv.delete("lock/a")
        async with kv.lock("a", ttl=60, timeout=0) as other:
            clock.advance(11)
            with refusal(LockLost, says="'a'"):
                await holder
            assert other.held
            assert present(await kv.get("lock/a")).semantics is not None

    async def test_a_release_that_comes_too_late(self, kv: KV) -> None:
        """A holder that lost the lock unnoticed learns it at release, which leaves the new lock alone."""
        lock = kv.lock("a", ttl=60)
        assert await lock.acquire()
        await kv.delete("lock/a")
        async with kv.lock("a", ttl=60, timeout=0):
            assert await lock.release() is False
            assert await kv.get("lock/a") is not None
        with refusal(LockLost, says="'a'"):
            async with lock:
                await kv.delete("lock/a")

    async def test_a_holder_that_died(self, kv: KV, clock: ManualClock) -> None:
        """A waiter succeeds a dead holder at its deadline; the journal records whose lock expired."""
        await dead(kv, "lock/a", {"holder": "gone"})
        lock = kv.lock("a", ttl=60)
        waiter = asyncio.create_task(lock.acquire())
        await waiting(kv, 1)
        clock.advance(29.999)
        assert not waiter.done()
        clock.advance(0.001)
        async with asyncio.timeout(PATIENCE):
            assert await waiter
        taken, expired, *_ = await kv.history("lock/a")
        assert (expired.op, expired.purpose, expired.last_writer) == ("expired", "lock", "gone")
        assert (expired.lag_ms, taken.op) == (0, "set")
        await lock.release()

    async def test_a_waiter_that_died(self, kv: KV, clock: ManualClock) -> None:
        """A dead waiter delays those behind it no longer than its own ttl."""
        await dead(kv, "lock/a/waiting/0000000000000000")
        waiter = asyncio.create_task(held_for_ever(kv.lock("a", ttl=60)))
        await waiting(kv, 2)
        assert await kv.get("lock/a") is None
        clock.advance(30)
        async with asyncio.timeout(PATIENCE):
            while (await kv.list()).keys != ["lock/a"]:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.002)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert (await kv.list()).keys == []

    async def test_a_waiter_keeps_its_place(self, kv: KV, clock: ManualClock) -> None:
        """A waiter that waits longer than the ttl stays ahead of later ones."""
        served: list[int] = []

        async def work(number: int) -> None:
            async with asyncio.timeout(PATIENCE), kv.lock("a", ttl=30):
                served.append(number)

        async with kv.lock("a", ttl=90):
            tasks = [asyncio.create_task(work(0))]
            await waiting(kv, 1)
            for _ in range(2):
                [key] = (await kv.list("lock/a/waiting/")).keys
                place = present(await kv.get(key))
                clock.advance(20)
                await collect(kv, 1, place.key, since=place.version)
            tasks.append(asyncio.create_task(work(1)))
            await waiting(kv, 2)
        await asyncio.gather(*tasks)
        assert served == [0, 1]

    async def test_a_holder_that_is_cancelled(self, kv: KV) -> None:
        """Cancelling a holder or a waiter raises CancelledError, and its lock or place is freed at once."""
        for state in ("holds", "waits"):
            other = kv.lock("a")
            if state == "waits":
                await other.acquire()
            task = asyncio.create_task(held_for_ever(kv.lock("a", ttl=60)))
            if state == "waits":
                await waiting(kv, 1)
            else:
                await collect(kv, 1, "lock/a", since=0)
            task.cancel()
            [end] = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError)
            if state == "waits":
                assert await other.release()
            assert (await kv.list()).keys == []

    async def test_names_of_recipes(self, store: Store) -> None:
        """The name of a recipe is valid in both families or refused in both, with the field and the rule."""
        wrongs: tuple[Any, ...] = ("", "A", "a b", "/a", "a/", "a//b", "-a", "é", None, 5, "x" * 200)
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            flag: Callable[..., Any] = partial(kv.flag, default=1)
            makers: tuple[Callable[..., Any], ...] = (kv.lock, kv.checkpoint, kv.cursor, kv.counter, flag)
            for wrong in wrongs:
                for make in makers[:-1] if wrong in ("A", "-a") else makers:  # a flag may be called that
                    with refusal(ValidationError, field="name", about=wrong):
                        make(wrong)
            with refusal(ValidationError, field="name", says="'waiting'"):
                kv.lock("a/waiting/b")
            longest = MAX_SEMANTIC_KEY_CHARACTERS - len("lock//waiting/0123456789abcdef")
            longest -= 0 if kv.namespace.startswith("kv/") else len("tenant/acme/project/web/")
            assert kv.lock("x" * longest).name == "x" * longest
            with refusal(ValidationError, field="name", says=f"at most {longest} are allowed"):
                kv.lock("x" * (longest + 1))
            for ttl in (0, 1.5, None):
                with refusal(ValidationError, field="ttl", about=ttl):
                    kv.lock("a", ttl=ttl)  # type: ignore[arg-type]
