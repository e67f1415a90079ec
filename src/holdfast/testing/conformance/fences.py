"""Writes that are valid only while a lock is held: fences and the guards of locks.

Law: a guard is known by the token that its write returns. Nothing here examines how it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import Fenced, ValidationError, VersionConflict
from holdfast.testing.conformance.calls import writing
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, assert_empty
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store


async def take(kv: KV, lock: str = "lock") -> dict[str, Any]:
    """Become the newest holder of a lock. Returns the fence for its writes."""
    [token] = (await kv.batch(writes=[{"guard": lock}])).versions
    return {"lock": lock, "token": token}


class FenceRules(Fixtures):
    """The rules of fences."""

    async def test_tokens_grow(self, kv: KV) -> None:
        """Each acquisition of a lock has its own token, which is a version of the namespace."""
        await kv.set("k", 1)
        tokens = [(await take(kv))["token"] for _ in range(3)]
        assert tokens == [2, 3, 4]
        assert (await kv.set("k", 1)).version == 5

    async def test_the_newest_holder_writes(self, kv: KV) -> None:
        """With the newest token, every verb that writes succeeds."""
        fence = await take(kv)
        for verb, call in writing(kv, "k").items():
            await kv.set("k", 1, semantics={"purpose": "flag"})
            if verb == "restore":
                await kv.delete("k")
            await call(fence=fence)
        assert (await kv.batch(writes=[{"guard": "lock"}], fence=fence)).versions[0] is not None

    async def test_an_older_holder_is_refused(self, kv: KV) -> None:
        """As soon as a newer holder has taken the lock, every write of the older one is refused."""
        old = await take(kv)
        new = await take(kv)
        entry = await kv.set("k", 1, fence=new)
        for verb, call in writing(kv, "k").items():
            with refusal(Fenced, field="fence", says="'lock'", about=verb):
                await call(fence=old)
        assert await kv.get("k") == entry
        assert (await kv.changes()).next == entry.version

    async def test_a_token_that_nobody_was_given(self, kv: KV) -> None:
        """A token newer than the lock's newest is refused too: only the current holder writes."""
        await kv.set("k", 1)
        fence = await take(kv)
        for ahead in (1, 2, 1000):
            for verb, call in writing(kv, "k").items():
                with refusal(Fenced, field="fence", says="'lock'", about=verb):
                    await call(fence=fence | {"token": fence["token"] + ahead})
        assert (await kv.changes()).next == fence["token"]
        assert (await kv.set("k", 2, fence=fence)).value == 2

    async def test_a_lock_that_was_never_taken(self, kv: KV, store: Store) -> None:
        """A fence is refused if its lock was never taken in this namespace."""
        fence = await take(store.kv("elsewhere"))
        for token in (fence["token"], 0, 7):
            with refusal(Fenced, field="fence", says="'lock'"):
                await kv.set("k", 1, fence={"lock": "lock", "token": token})
        assert await kv.get("k") is None

    async def test_locks_are_independent(self, kv: KV) -> None:
        """Taking one lock does not affect the holders of others."""
        one = await take(kv, "one")
        await take(kv, "two")
        assert (await kv.set("k", 1, fence=one)).value == 1

    async def test_a_token_outlives_time(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A guard never expires, and upkeep does not remove it."""
        old = await take(kv)
        new = await take(kv)
        clock.advance(30 * DAY)
        await store.sweep()
        await store.upkeep()
        with refusal(Fenced, field="fence"):
            await kv.set("k", 1, fence=old)
        assert (await kv.set("k", 1, fence=new)).value == 1

    async def test_a_token_outlives_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """Tokens stay valid, and keep growing, when the storage is reopened."""
        old = await take(kv)
        new = await take(kv)
        again = await reopen()
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        kv = again.kv("trivia")
        with refusal(Fenced, field="fence"):
            await kv.set("k", 1, fence=old)
        await kv.set("k", 1, fence=new)
        assert (await take(kv))["token"] > new["token"]

    async def test_taking_a_lock_is_one_batch(self, kv: KV) -> None:
        """The guard is written together with the lock or not at all."""
        acquire: dict[str, Any] = {
            "checks": [{"key": "lock", "version": 0}],
            "writes": [{"key": "lock", "value": "me", "ttl": 30}, {"guard": "lock"}],
        }
        taken, token = (await kv.batch(**acquire)).versions
        with refusal(VersionConflict) as caught:
            await kv.batch(**acquire)
        assert present(caught.value.current).version == taken
        assert (await kv.set("k", 1, fence={"lock": "lock", "token": token})).value == 1

    async def test_guards_are_no_entries(self, kv: KV, store: Store) -> None:
        """A guard appears in no listing, no count and no journal."""
        await take(kv, "guard")
        assert (await kv.list()).keys == []
        assert await kv.get("guard") is None
        assert (await kv.changes()).changes == []
        assert (await store.stats("kv/trivia")).keys == 0
        assert await kv.delete("guard") is False

    async def test_the_fence_stands_before_the_check(self, kv: KV) -> None:
        """A holder that lost the lock gets `Fenced`, not a conflict over the entry."""
        old = await take(kv)
        await take(kv)
        await kv.set("k", 1)
        with refusal(Fenced, field="fence"):
            await kv.set("k", 2, expected_version=99, fence=old)

    async def test_a_replay_needs_no_lock(self, kv: KV) -> None:
        """A completed request is replayed even if its lock is lost; a new one is refused."""
        fence = await take(kv)
        entry = await kv.set("k", 1, fence=fence, request_id="r")
        await take(kv)
        assert await kv.set("k", 1, fence=fence, request_id="r") == entry
        with refusal(Fenced, field="fence"):
            await kv.set("k", 1, fence=fence, request_id="other")

    async def test_illegal_fences(self, kv: KV) -> None:
        """A fence has exactly a lock and a token."""
        wrongs: tuple[tuple[Any, str], ...] = (
            (5, "fence"),
            ("lock", "fence"),
            ({}, "fence"),
            ({"lock": "a"}, "fence"),
            ({"lock": "a", "token": 1, "more": 1}, "fence"),
            ({"lock": "", "token": 1}, "fence.lock"),
            ({"lock": "x" * 201, "token": 1}, "fence.lock"),
            ({"lock": "a", "token": -1}, "fence.token"),
            ({"lock": "a", "token": True}, "fence.token"),
            ({"lock": "a", "token": "1"}, "fence.token"),
        )
        for wrong, field in wrongs:
            with refusal(ValidationError, field=field, about=wrong):
                await kv.set("k", 1, fence=wrong)
