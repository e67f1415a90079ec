"""The policy of a namespace, and the upkeep of a store: stats, the order of commands, and closing.

A policy is set as an operator does it, wherever the store is, and applies to every verb. Counts are compared
with what a caller can list. Upkeep is judged by what it must not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from holdfast.clock import ManualClock, moment
from holdfast.errors import (
    HoldfastError,
    KeyNotFound,
    RateLimited,
    Unavailable,
    ValidationError,
    ValueTooLarge,
)
from holdfast.handles.kv import KV
from holdfast.model import KEEP, Parts, Policy, Stats
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, on_key
from holdfast.testing.exact import present, refusal

NAME = "kv/trivia"
MEANT = {"purpose": "config"}


class PolicyRules(Fixtures):
    """The rules of policies; those of quotas are in the engines' own tests."""

    async def test_a_default_lifetime(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """An entry written without a ttl gets the default, by every verb; a given ttl is kept."""
        await store.set_policy(NAME, {"ttl_default": 60})
        await kv.set("set", 1)
        await kv.set_many([{"key": "many", "value": 1}])
        await kv.batch(writes=[{"key": "batch", "value": 1}, {"key": "counted", "incr": 1}])
        await kv.incr("incr")
        await kv.set("kept", 1, ttl=KEEP)
        await kv.set("back", 1, semantics=MEANT)
        await kv.delete("back")
        await kv.restore("back")
        expected = moment(clock.now() + 60_000)
        for key in ("set", "many", "batch", "counted", "incr", "kept", "back"):
            assert present(await kv.get(key)).expires_at == expected, key
        assert (await kv.set("given", 1, ttl=5)).expires_at == moment(clock.now() + 5_000)
        clock.advance(1)
        assert (await kv.set("given", 2, ttl=KEEP)).expires_at == moment(clock.now() + 4_000)
        assert (await kv.incr("incr")).expires_at == expected
        assert (await kv.remove_ttl("given")).expires_at is None

    async def test_a_raised_limit_for_values(self, kv: KV, store: Store) -> None:
        """A policy raises the size that every verb accepts; other namespaces keep the default."""
        large, limit = "x" * (200_000 - 2), "x" * (524_288 - 2)
        usual = "Value size (200000 bytes) exceeds 64KB limit (65536 bytes)"
        with refusal(ValueTooLarge, field="value", says=usual):
            await kv.set("k", large)
        await store.set_policy(NAME, {"max_value_bytes": 200_000})
        for key, write in {
            "set": kv.set("set", large),
            "many": kv.set_many([{"key": "many", "value": large}]),
            "batch": kv.batch(writes=[{"key": "batch", "value": large}]),
        }.items():
            await write
            assert present(await kv.get(key)).value == large
        with refusal(
            ValueTooLarge, field="value", says="Value size (200001 bytes) exceeds 195KB limit (200000 bytes)"
        ):
            await kv.set("set", large + "x")
        with refusal(ValueTooLarge, field="value", says=usual):
            await store.kv("other").set("k", large)
        await store.set_policy(NAME, {"max_value_bytes": 524_288})
        await kv.set("set", limit)
        assert present(await kv.get("set")).value == limit
        [listed] = (await kv.list("set", values=True)).entries or []
        assert listed.value == limit
        raised = "Value size (524289 bytes) exceeds 512KB limit (524288 bytes)"
        for write in (
            kv.set("set", limit + "x"),
            kv.batch(writes=[{"key": "batch", "value": limit + "x"}]),
        ):
            with refusal(ValueTooLarge, field="value", says=raised):
                await write
        await store.set_policy(NAME, {})
        assert present(await kv.get("set")).value == limit
        assert (await kv.set_ttl("set", 60)).version > 0
        for size in (200_000, 600_000, 2_000_000):
            usual = f"Value size ({size} bytes) exceeds 64KB limit (65536 bytes)"
            with refusal(ValueTooLarge, field="value", says=usual):
                await kv.set("set", "x" * (size - 2))

    async def test_illegal_limits_for_values(self, store: Store) -> None:
        """A policy can't lower the limit for values, and can't raise it beyond 524,288 bytes."""
        for wrong in (65_535, 524_289, 0, True, "65536"):
            with refusal(ValidationError, field="max_value_bytes"):
                await store.set_policy(NAME, {"max_value_bytes": wrong})

    async def test_the_shortest_and_longest_lifetime(self, kv: KV, store: Store) -> None:
        """Every verb that takes a ttl refuses one out of bounds, and writes nothing."""
        await kv.set("there", 1, ttl=60)
        await kv.set("gone", 1, semantics=MEANT)
        await kv.delete("gone")
        await store.set_policy(NAME, {"ttl_min": 10, "ttl_max": 100})
        version = (await store.stats(NAME)).version
        for ttl in (9, 101):
            calls: dict[str, Callable[[int], Awaitable[Any]]] = {
                "set": lambda ttl: kv.set("k", 1, ttl=ttl),
                "meant": lambda ttl: kv.set("k", 1, semantics={"ttl_seconds": ttl}),
                "incr": lambda ttl: kv.incr("k", ttl=ttl),
                "batch": lambda ttl: kv.batch(writes=[{"key": "k", "value": 1, "ttl": ttl}]),
                "set_ttl": lambda ttl: kv.set_ttl("there", ttl),
                "restore": lambda ttl: kv.restore("gone", ttl=ttl),
            }
            for name, call in calls.items():
                with refusal(ValidationError, field="ttl", says=f"ttl is {ttl} s", about=name):
                    await call(ttl)
            [one] = await kv.set_many([{"key": "k", "value": 1, "ttl": ttl}])
            assert isinstance(one, ValidationError)
        assert (await store.stats(NAME)).version == version
        for ttl in (10, 100):
            await kv.set("k", 1, ttl=ttl)
            await kv.set_ttl("k", ttl)
        assert (await kv.set("endless", 1)).expires_at is None

    async def test_a_required_lifetime(self, kv: KV, store: Store) -> None:
        """If a deadline is required, no verb writes an entry without one or removes one."""
        await kv.set("endless", 1)
        await kv.set("ends", 1, ttl=60)
        await kv.set("gone", 1, semantics=MEANT)
        await kv.delete("gone")
        await store.set_policy(NAME, {"ttl_required": True})
        endless = {"key": "k", "value": 1}
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "set": lambda: kv.set("k", 1),
            "keep": lambda: kv.set("endless", 1, ttl=KEEP),
            "incr": lambda: kv.incr("k"),
            "batch": lambda: kv.batch(writes=[{"key": "ends", "value": 2, "ttl": 5}, endless]),
            "remove_ttl": lambda: kv.remove_ttl("ends"),
            "restore": lambda: kv.restore("gone"),
        }
        for name, call in calls.items():
            with refusal(ValidationError, field="ttl", says="requires a ttl", about=name):
                await call()
        assert isinstance((await kv.set_many([{"key": "k", "value": 1}]))[0], HoldfastError)
        assert present(await kv.get("ends")).value == 1
        assert (await kv.set("ends", 2, ttl=KEEP)).expires_at is not None
        assert (await kv.restore("gone", ttl=5)).value == 1
        assert (await kv.incr("k", ttl=5)).value == 1
        assert (await kv.incr("endless")).expires_at is None, "what was there before may stay"

    async def test_lifetimes_that_no_entry_could_have(self, store: Store) -> None:
        """A policy that contradicts itself is refused, and the previous one stays."""
        await store.set_policy(NAME, {"ttl_max": 10})
        for wrong in ({"ttl_min": 5, "ttl_max": 4}, {"ttl_default": 9, "ttl_max": 8}, {"ttl_min": 0}):
            with refusal(ValidationError, field=next(iter(wrong))):
                await store.set_policy(NAME, wrong)
        assert await store.policy(NAME) == Policy(ttl_max=10)

    async def test_the_trash(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A policy can keep plain entries in the trash, or no entries at all, and sets the retention."""
        await store.set_policy(NAME, {"trash": True, "trash_retention": 60})
        await kv.set("deleted", 1)
        await kv.set("expired", 2, ttl=1)
        await kv.delete("deleted")
        clock.advance(1)
        await store.sweep()
        assert [(await kv.restore(key)).value for key in ("deleted", "expired")] == [1, 2]
        await kv.delete("deleted")
        clock.advance(60)
        with refusal(KeyNotFound, field="key"):
            await kv.restore("deleted")
        await store.set_policy("semantic/acme/web", {"trash": False})
        web = store.semantic("acme", "web")
        await web.set("k", 1, semantics=MEANT)
        await web.delete("k")
        with refusal(KeyNotFound, field="key"):
            await web.restore("k")

    async def test_how_long_the_journal_tells(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """The journal keeps changes for as long as the policy says, or for a day without one."""
        await store.set_policy(NAME, {"journal_retention": 60})
        other = store.kv("other")
        for one in (kv, other):
            await one.set("k", 1)
        clock.advance(60)
        await kv.set("k", 2)
        await store.upkeep()
        page = await kv.changes()
        assert ([change.version for change in page.changes], page.gap) == ([2], True)
        assert len((await other.changes()).changes) == 1
        clock.advance(DAY)
        await store.upkeep()
        assert (await other.changes()).changes == []

    async def test_a_rate(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Every verb over the rate is refused with a retry_after; other namespaces are not affected."""
        await store.set_policy(NAME, {"rate_limit": 2})
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "set": lambda: kv.set("k", 1),
            "get": lambda: kv.get("k"),
            "list": kv.list,
            "get_many": lambda: kv.get_many(["k"]),
            "changes": kv.changes,
            "history": lambda: kv.history("k"),
            "batch": lambda: kv.batch(writes=[{"key": "k", "value": 1}]),
            "get_ttl": lambda: kv.get_ttl("k"),
        }
        for name, call in calls.items():
            await call()
            await call()
            version = (await store.stats(NAME)).version
            with refusal(RateLimited, says="2 requests per second", about=name) as caught:
                await call()
            assert (caught.value.retry_after, caught.value.retryable) == (0.5, True), name
            assert (await store.stats(NAME)).version == version
            await store.kv("other").set("k", 1)
            clock.advance(0.5)
            await call()
            clock.advance(1)
        await store.set_policy(NAME, {})
        for _ in range(5):
            await kv.get("k")

    async def test_a_policy_survives_opening_again(self, kv: KV, store: Store, reopen: Reopen) -> None:
        """A policy is part of the storage."""
        policy = Policy(ttl_default=60, quota_keys=5, audit=True, trash=True, rate_limit=1_000)
        assert await store.set_policy(NAME, policy) == policy
        again = await reopen()
        if again is None:
            return
        assert await again.policy(NAME) == policy
        assert (await again.kv("trivia").set("k", 1)).expires_at is not None


async def counted(kv: KV) -> tuple[int, int]:
    """Return the number of keys and bytes that a listing shows."""
    entries = (await kv.list(values=True, limit=10_000)).entries or []
    size = sum(len(entry.key.encode()) + len(compact(entry.value)) for entry in entries)
    return len(entries), size


def compact(value: object) -> bytes:
    """Return the compact form of a value that has only one."""
    assert value is None or isinstance(value, str)
    return b"null" if value is None else f'"{value}"'.encode()


class UpkeepRules(Fixtures):
    """The rules of stats, upkeep, order and closing."""

    async def test_stats_of_nothing(self, store: Store) -> None:
        """A namespace that was never written to is empty, and asking for it does not create it."""
        stats = await store.stats("kv/nobody")
        assert (stats.keys, stats.bytes, stats.version) == (0, 0, 0)
        assert await store.namespaces() == []

    async def test_stats_follow_every_change(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Counts of keys and bytes follow every change to live entries at once."""

        async def check() -> None:
            stats = await store.stats("kv/trivia")
            assert (stats.keys, stats.bytes) == await counted(kv)

        await kv.set("é", "🎉")
        await check()
        await kv.set("é", "longer than before", ttl=60)
        await kv.set("b", None, ttl=5)
        await check()
        await kv.batch(writes=[{"key": "c", "value": "x"}, {"key": "é", "delete": True}])
        await check()
        await kv.set_many([{"key": "d", "value": "y" * 100, "ttl": 5}, {"key": "c", "value": ""}])
        await check()
        clock.advance(5)
        await check()
        await kv.set("b", "again")
        await check()
        await store.sweep()
        await check()
        await kv.set("s", "semantic", semantics={"purpose": "flag"})
        await kv.delete("s")
        await check()
        await kv.restore("s")
        await check()
        await kv.set_ttl("s", 1)
        clock.advance(1)
        await check()

    async def test_stats_tell_version_and_time(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Stats show the last version and its time; reading does not change them."""
        await kv.set("k", "v")
        at = clock.now()
        clock.advance(5)
        await kv.get("k")
        expected = Stats(namespace="kv/trivia", keys=1, bytes=4, version=1, changed_at=moment(at))
        found = await store.stats("kv/trivia")
        assert structs.replace(found, kept_bytes=0, parts=Parts()) == expected
        assert await store.namespaces() == [found]

    async def test_all_that_is_kept_is_counted(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Removal is counted as exactly as writing, in runs and one by one: a recount finds no error."""
        many = [{"key": f"ключ {number}", "value": number, "ttl": 1} for number in range(70)]
        await kv.set_many(many, spec_ref="§")
        for value in ("longer", "v"):
            await kv.set("k", value, semantics={"purpose": "config"}, request_id=value)
            await kv.delete("k")
        await kv.batch(writes=[{"guard": "lock"}])
        before = (await store.stats("kv/trivia")).parts
        assert min(before.entries, before.journal, before.trash, before.requests, before.other) > 128
        assert await store.recount("kv/trivia") == 0
        clock.advance(1)
        assert await store.sweep() == 70
        assert await store.recount("kv/trivia") == 0
        clock.advance(30 * DAY)
        await store.upkeep()
        assert await store.recount("kv/trivia") == 0
        stats = await store.stats("kv/trivia")
        assert (stats.kept_bytes, stats.parts) == (before.other, Parts(other=before.other))

    async def test_namespaces_are_listed_by_name(self, store: Store) -> None:
        """Every namespace that was written to is listed, of every family, even if it is empty again."""
        for kv in (
            store.kv("b"),
            store.semantic("acme", "web"),
            store.kv("a"),
            store.kv("a-b"),
            store.kv("a0"),
        ):
            await kv.set("k", "v")
        await store.kv("a").delete("k")
        found = await store.namespaces()
        assert [stats.namespace for stats in found] == [
            "kv/a",
            "kv/a-b",
            "kv/a0",
            "kv/b",
            "semantic/acme/web",
        ]
        assert [stats.keys for stats in found] == [0, 1, 1, 1, 1]
        assert found[3] == await store.stats("kv/b")

    async def test_stats_survive_opening_again(self, kv: KV, store: Store, reopen: Reopen) -> None:
        """Counts are stored with the entries they count."""
        await kv.set("a", "1")
        await kv.set("b", "2")
        await kv.delete("a")
        before = await store.namespaces()
        again = await reopen()
        assert again is None or await again.namespaces() == before

    async def test_upkeep_leaves_entries_alone(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Upkeep drops records, never entries: an entry without a deadline stays forever."""
        await kv.set("forever", "v", semantics={"purpose": "config"}, request_id="r")
        await kv.set("soon", "v", ttl=1)
        entry = await kv.get("forever")
        for _ in range(3):
            clock.advance(30 * DAY)
            await store.upkeep()
        assert await kv.get("forever") == entry
        assert await store.sweep() == 1
        assert (await store.stats("kv/trivia")).keys == 1

    async def test_upkeep_is_no_change(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Dropping records uses no version and is not a change."""
        await kv.set("k", "v", semantics={"purpose": "config"}, request_id="r")
        await kv.delete("k")
        before = await store.stats("kv/trivia")
        clock.advance(30 * DAY)
        await store.upkeep()
        after = await store.stats("kv/trivia")
        assert after.kept_bytes < before.kept_bytes, "what goes gives its room back"
        assert structs.replace(after, kept_bytes=before.kept_bytes, parts=before.parts) == before

    async def test_a_get_sees_a_set_that_was_not_awaited(self, kv: KV) -> None:
        """Commands take effect in the order of submission, even if the caller does not wait in between."""
        for number in range(20):
            entry, seen, many, page, left = await asyncio.gather(
                kv.set("k", number, ttl=60),
                kv.get("k"),
                kv.get_many(["k"]),
                kv.list(values=True),
                kv.get_ttl("k"),
            )
            assert seen == entry
            assert many == [entry]
            assert page.entries == [entry]
            assert left == 60
            deleted, gone, empty = await asyncio.gather(kv.delete("k"), kv.get("k"), kv.list())
            assert (deleted, gone, empty.keys) == (True, None, [])

    async def test_changes_and_stats_see_it_too(self, kv: KV, store: Store) -> None:
        """Reads of the journal and of counts are ordered with writes too."""
        for number in range(1, 10):
            _, page, history, stats = await asyncio.gather(
                kv.set(f"{number}", "v"), kv.changes(), kv.history(f"{number}"), store.stats("kv/trivia")
            )
            assert (len(page.changes), len(history), stats.keys) == (number, 1, number)

    async def test_writes_of_many_at_once(self, store: Store) -> None:
        """Concurrent writers to several namespaces all succeed, each version is used once, the last wins."""
        kvs = [store.kv(f"plugin{number}") for number in range(3)]

        async def write(kv: KV, task: int) -> list[int]:
            return [(await kv.set(f"{number % 4}", [task, number])).version for number in range(20)]

        for kv in kvs:
            versions = await asyncio.gather(*(write(kv, task) for task in range(5)))
            given = sorted(version for some in versions for version in some)
            assert given == list(range(1, 101))
            assert all(some == sorted(some) for some in versions)
            for change in (await kv.changes(96)).changes:
                assert present(await kv.get(change.key)).version >= change.version
            entries = (await kv.list(values=True)).entries or []
            assert max(entry.version for entry in entries) == 100

    async def test_a_closed_store_is_unavailable(self, kv: KV, store: Store) -> None:
        """A closed store accepts nothing; what was accepted before is executed."""
        accepted = asyncio.gather(*(kv.set(f"{number}", "v") for number in range(10)))
        await asyncio.sleep(0)
        await store.aclose()
        assert [entry.version for entry in await accepted] == list(range(1, 11))
        for call in on_key(kv).values():
            with pytest.raises(Unavailable):
                await call("k")
        for other in (kv.list(), kv.changes(), kv.get_many(["k"]), kv.set_many([{"key": "k", "value": 1}])):
            with pytest.raises(Unavailable):
                await other
        for asked in (store.namespaces(), store.stats("kv/trivia")):
            with pytest.raises(Unavailable):
                await asked

    async def test_a_closed_store_keeps_no_house(self, store: Store) -> None:
        """Sweeping and upkeep are unavailable too when the store is closed."""
        await store.aclose()
        with pytest.raises(Unavailable):
            await store.sweep()
        with pytest.raises(Unavailable):
            await store.upkeep()
