"""Checkpoints, cursors, counters, flags, the keys of long identifiers, and locks.

A recipe is observed through its object, the fence and the journal. Its entries are read only where their
envelope is documented, and written only in place of holders and waiters of a lock that have died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import ManualClock, moment
from holdfast.errors import Busy, Fenced, KeyNotFound, LockLost, Unavailable, ValidationError, VersionConflict
from holdfast.handles.kv import KV
from holdfast.rules import MAX_SEMANTIC_KEY_CHARACTERS
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.journal import PATIENCE, collect
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from holdfast.handles.recipes.flag import CachedFlag
    from holdfast.handles.recipes.lock import Lock


async def seen(flag: CachedFlag[Any], value: object) -> None:
    """Wait until a cached flag has a value."""
    async with asyncio.timeout(PATIENCE):
        while flag.value != value:  # noqa: ASYNC110 - the cache is read, not awaited
            await asyncio.sleep(0.002)


class RecipeRules(Fixtures):
    """The rules of recipes other than locks."""

    async def test_updates_of_one_key(self, kv: KV) -> None:
        """Concurrent updates of a key all take effect, each computed from the result of the one before."""

        async def add(number: int) -> None:
            await kv.update("cart", lambda items: [*items, number], default=[])

        await asyncio.gather(*map(add, range(12)))
        assert sorted(present(await kv.get("cart")).value) == list(range(12))

    async def test_an_update_keeps_the_envelope(self, kv: KV, clock: ManualClock) -> None:
        """An update gets the value or the default, and keeps deadline and semantics."""
        semantics = {"purpose": "counter"}
        made = await kv.update(
            "n", lambda value: value + 1, default=0, ttl=60, semantics=semantics, writer="a:b"
        )
        assert (made.value, made.last_writer) == (1, "a:b")
        clock.advance(1)

        async def later(value: int) -> int:
            return value + 1

        again = await kv.update("n", later, ttl=999)
        assert (again.value, again.expires_at, again.semantics) == (2, made.expires_at, made.semantics)
        assert (await kv.update("m", lambda value: value)).value is None
        with pytest.raises(ZeroDivisionError):
            await kv.update("n", lambda value: value / 0)
        assert present(await kv.get("n")).value == 2

    async def test_a_checkpoint_advances(self, store: Store) -> None:
        """A checkpoint advances from the last entry loaded or written, and keeps purpose and owner."""
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            for purpose in ("checkpoint", "cursor"):
                progress = getattr(kv, purpose)("docs/delta", owner="agent:sync")
                assert await progress.load() is None
                first = await progress.advance({"page": 1})
                second = await progress.advance({"page": 2}, request_id=purpose)
                assert second.version > first.version
                again = getattr(kv, purpose)("docs/delta")
                assert await again.load() == second == await kv.get(f"{purpose}/docs/delta")
                assert second.semantics is not None
                assert (second.semantics.purpose, second.semantics.producer) == (purpose, "agent:sync")
                assert (second.last_writer, second.request_id) == ("agent:sync", purpose)

    async def test_two_who_advance(self, kv: KV) -> None:
        """Of two workers with the same loaded entry, one advances; the other gets a conflict and reloads."""
        one, two = kv.checkpoint("c"), kv.checkpoint("c")
        made = await one.advance(1)
        for _ in range(2):
            with refusal(VersionConflict) as caught:
                await two.advance(5)
            assert caught.value.current == made
        await two.load()
        assert (await two.advance(2)).value == 2

    async def test_a_checkpoint_that_would_go_back(self, kv: KV) -> None:
        """With an order, a value before the loaded one is refused; an equal one is not."""
        progress = kv.checkpoint("c", order=lambda value: value["page"])
        await progress.advance({"page": 5})
        with refusal(ValidationError, field="value", says="'c' would go back"):
            await progress.advance({"page": 4})
        assert (await progress.advance({"page": 5})).value == {"page": 5}
        assert present(await kv.checkpoint("c").load()).value == {"page": 5}

    async def test_ten_harvesters(self, kv: KV) -> None:
        """Each unit of work is done by exactly one of ten competing workers, in order."""
        done: list[tuple[int, int]] = []

        async def harvest(number: int) -> None:
            progress = kv.checkpoint("units", order=int)
            while (unit := 0 if (at := await progress.load()) is None else at.value) < 20:
                try:
                    claimed = await progress.advance(unit + 1)
                except VersionConflict:
                    continue
                done.append((claimed.version, unit))

        await asyncio.gather(*(harvest(number) for number in range(10)))
        assert [unit for _, unit in sorted(done)] == list(range(20))

    async def test_a_counter(self, kv: KV, clock: ManualClock) -> None:
        """No addition is lost, and a counter with a ttl starts again when it expires."""
        counter = kv.counter("visits", ttl=60)
        assert await counter.value() == 0
        await asyncio.gather(*(kv.counter("visits", ttl=60).add(2) for _ in range(10)))
        assert await counter.add(-5) == 15
        assert await counter.add(0.5) == await counter.value() == 15.5
        assert await counter.add(request_id="r") == await counter.add(request_id="r")
        clock.advance(60)
        assert await counter.value() == 0
        assert await counter.add() == 1
        await kv.set("counter/visits", True)
        with refusal(ValidationError, field="value", says="'visits'"):
            await counter.value()

    async def test_a_flag_has_a_type(self, kv: KV) -> None:
        """A flag takes and returns values of its default's type; a value of another type counts as absent."""
        cases: tuple[tuple[Any, list[Any], list[Any]], ...] = (
            (False, [True, False], [1, "x", None]),
            (5, [0, -7, 2**70], [True, 1.0, "5"]),
            (0.5, [1.5, 2], [False, "1"]),
            ("blue", ["", "é"], [1, None, ["blue"]]),
            ({"a": 1}, [{"b": 2}, 1, None, [True]], []),
            (None, ["x", {"a": [1]}], []),
        )
        for number, (default, rights, wrongs) in enumerate(cases):
            flag = kv.flag(f"f{number}", default)
            assert await flag.get() == default
            for right in rights:
                await flag.set(right)
                found = await flag.get()
                assert (found, type(found)) == (right, float if default == 0.5 else type(right))
            for wrong in wrongs:
                with refusal(ValidationError, field="value", says=f"'f{number}'", about=wrong):
                    await flag.set(wrong)
                await kv.set(f"flag/f{number}", wrong)
                assert await flag.get() == default, wrong

    async def test_names_of_flags(self, store: Store) -> None:
        """A flag may have capitals and dots in its name, in both families, and no two names are one flag."""
        names = (
            "dark",
            "Dark",
            "_dark",
            "DARK_MODE",
            "dark_mode",
            "checkout.newUI",
            ".hidden",
            "a/B-c",
            "x_d",
        )
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            for number, name in enumerate(names):
                await kv.flag(name, 0).set(number)
            assert [await kv.flag(name, -1).get() for name in names] == list(range(len(names)))
            assert await kv.flags().list() == {name: number for number, name in enumerate(names)}
            for wrong in ("", "a b", "/a", "a//b", "é", "a\x00"):
                with refusal(ValidationError, field="name", says="letters, digits", about=wrong):
                    kv.flag(wrong, 0)
            with refusal(ValidationError, field="name", says="at most"):
                kv.flag("X" * 70, 0)

    async def test_a_missing_flag_and_one_of_another_type(self, kv: KV) -> None:
        """`state` says why a flag has its default."""
        flag = kv.flag("limit", 5)
        assert (await flag.state()).reason == "missing"
        entry = await kv.set(flag.key, "many")
        state = await flag.state()
        assert (state.value, state.reason, state.entry) == (5, "wrong_type", entry)
        entry = await flag.set(7)
        state = await flag.state()
        assert (state.value, state.reason, state.variant, state.entry) == (7, "set", None, entry)
        assert (state.metadata, state.variants) == ({}, {})

    async def test_variants_and_metadata(self, kv: KV, clock: ManualClock) -> None:
        """A flag can be switched between values with names; deadline and metadata stay as they were."""
        theme = kv.flag("theme", "light", owner="team:ui")
        with refusal(KeyNotFound, field="name"):
            await theme.use("night")
        defined = await theme.define(
            {"day": "light", "night": "dark"}, use="day", metadata={"team": "ui"}, ttl=60
        )
        used = await theme.use("night")
        assert (used.expires_at, used.last_writer) == (defined.expires_at, "team:ui")
        state = await theme.state()
        assert (state.value, state.variant, state.metadata) == ("dark", "night", {"team": "ui"})
        assert (await theme.get(), await kv.flags().list()) == ("dark", {"theme": "dark"})
        with refusal(ValidationError, field="variant", says="day, night"):
            await theme.use("noon")
        wrong: Any = {"day": 1}
        with refusal(ValidationError, field="value"):
            await theme.define(wrong, use="day")
        await theme.set("dim", variant="custom", metadata={"why": "test"})
        state = await theme.state()
        assert (state.value, state.variant, state.variants) == ("dim", "custom", {})
        await theme.set("plain")
        assert (await kv.get(theme.key) or used).value == "plain"

    async def test_a_value_that_looks_like_a_flags_own(self, kv: KV) -> None:
        """A flag of any JSON keeps an object that looks like the one in which variants are kept."""
        default: Any = None
        values: list[Any] = [{"$flag": {"value": 1, "variant": "x"}}, {"$flag": 1}, {"$flag": {}}, {}, []]
        flag = kv.flag("any", default)
        for value in values:
            await flag.set(value)
            assert (await flag.get(), (await flag.state()).variant) == (value, None)

    async def test_all_flags_are_followed(self, kv: KV) -> None:
        """A set of flags has every flag that is set and no other key, and follows what is set and cleared."""
        await kv.flag("dark", default=False).set(True, variant="on")
        for other in ("flagship", "flag/Dark", "flag/a b", "flag.cased/dark", "flag.cased/x_"):
            await kv.set(other, 1)
        told: list[str] = []
        async with (
            asyncio.timeout(20),
            kv.flags().all(on_change=lambda name, entry: told.append(name)) as flags,
        ):
            assert dict(flags) == {"dark": True}
            assert (flags.value("dark", default=False), flags.value("none", 3)) == (True, 3)
            assert flags.state("dark", default=False).variant == "on"
            assert flags.state("dark", 5).reason == "wrong_type"
            await kv.flag("New.UI", "old").set("new")
            await kv.flag("dark", default=False).clear()
            while dict(flags) != {"New.UI": "new"}:  # noqa: ASYNC110 - the set is read, not awaited
                await asyncio.sleep(0)
            assert (flags.value("New.UI", "old"), flags.value("dark", default=False)) == ("new", False)
            assert (len(flags), "dark" in flags, flags.stale_for < 20) == (1, False, True)
            assert sorted(told) == ["New.UI", "dark"]
        with refusal(Unavailable):
            flags.value("dark", default=False)

    async def test_a_flag_for_a_while(self, kv: KV, clock: ManualClock) -> None:
        """A flag keeps owner and purpose, and returns to its default when it expires or is cleared."""
        flag = kv.flag("dark", default=False, owner="team:ui")
        entry = await flag.set(True, ttl=60)
        assert entry.semantics is not None
        assert (entry.semantics.purpose, entry.semantics.producer) == ("feature_flag", "team:ui")
        assert entry.last_writer == "team:ui"
        clock.advance(60)
        assert await flag.get() is False
        await flag.set(True)
        assert await flag.clear() is True
        assert await flag.clear() is False
        assert await flag.get() is False

    async def test_a_cached_flag(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A cached flag follows changes by others and never shows an expired value."""
        flag, other = kv.flag("dark", 0), store.kv("trivia").flag("dark", 0)
        await other.set(1)
        async with flag.cached() as cached:
            assert cached.value == 1
            await other.set(2, ttl=60)
            await seen(cached, 2)
            clock.advance(59.999)
            assert cached.value == 2
            clock.advance(0.001)
            assert cached.value == 0
            await other.set(3)
            await seen(cached, 3)
            await other.clear()
            await seen(cached, 0)
            await kv.set("flag/dark", "of another type")
            await other.set(4)
            await seen(cached, 4)
        with refusal(Unavailable, says="'dark'"):
            assert cached.value

    async def test_a_cached_flag_and_a_closed_store(self, kv: KV, store: Store) -> None:
        """A cache that can no longer follow changes raises an error instead of showing an old value."""
        async with kv.flag("dark", default=True).cached() as cached:
            assert cached.value is True
            await store.aclose()
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        assert cached.value is True
                    except Unavailable:
                        break
                    await asyncio.sleep(0.002)

    async def test_keys_of_long_identifiers(self, store: Store) -> None:
        """Every identifier has a valid key, always the same, from which it can be looked up."""
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            for identifier in ("x" * 5_000, "Ä/Ö Ü", "\x00", "plain"):
                key = await kv.hashed_key("docs/onedrive/", identifier)
                assert await kv.hashed_key("docs/onedrive/", identifier) == key
                assert (await kv.set(key, 1)).key == key
                assert await kv.original_of(key) == identifier
            assert len((await kv.list("hashed/")).keys) == 4
            assert len((await kv.list("docs/onedrive/")).keys) == 4
            entry = present(await kv.get((await kv.list("hashed/")).keys[0]))
            assert entry.semantics is not None
            assert entry.semantics.purpose == "config"
            assert await kv.original_of("docs/onedrive/delta") is None
            with refusal(ValidationError, field="identifier"):
                await kv.hashed_key("docs/", "")


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

    async def test_a_lock_for_a_fraction_of_a_second(self, kv: KV, clock: ManualClock) -> None:
        """The ttl of a lock may have a fraction, and the lock is renewed like any other."""
        async with kv.lock("a", ttl=30.5):
            taken = present(await kv.get("lock/a"))
            assert taken.expires_at == moment(clock.now() + 30_500)
            clock.advance(20)
            [renewal] = await collect(kv, 1, "lock/a", since=taken.version)
            renewed = present(await kv.get("lock/a"))
            assert (renewal.op, renewed.value) == ("set", taken.value)
            assert renewed.created_at == taken.created_at
        for wrong in (0, 0.09, -1.0, True, float("nan"), float("inf"), "1"):
            with refusal(ValidationError, field="ttl", says="of a lock must be a number", about=wrong):
                kv.lock("a", ttl=wrong)  # type: ignore[arg-type]
        with refusal(ValidationError, field="ttl"):
            await kv.set("k", 1, ttl=0.5)  # type: ignore[arg-type]

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
            for ttl in (0, 0.05, None):
                with refusal(ValidationError, field="ttl", about=ttl):
                    kv.lock("a", ttl=ttl)  # type: ignore[arg-type]
