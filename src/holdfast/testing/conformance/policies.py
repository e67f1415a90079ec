"""The policy of a namespace: lifetimes, the trash, the journal, the rate.

Law: a policy is set as an operator does it, wherever the store is, and applies to every verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.clock import moment
from holdfast.errors import HoldfastError, KeyNotFound, RateLimited, ValidationError, ValueTooLarge
from holdfast.model import KEEP, Policy
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, assert_empty
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store

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
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        assert await again.policy(NAME) == policy
        assert (await again.kv("trivia").set("k", 1)).expires_at is not None
