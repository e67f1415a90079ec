"""Writes that depend on more than one entry: batches, fences, request ids and timeouts.

After each refusal, the tests check that nothing was written. A replay is distinguished from a second effect
by the store's contents afterwards, never by the reply alone.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from holdfast.clock import ManualClock, moment
from holdfast.errors import (
    Fenced,
    HoldfastError,
    KeyNotFound,
    MissingField,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.model import KEEP, Conflict
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, writing
from holdfast.testing.exact import present, refusal, same

ILLEGAL: Final[tuple[tuple[Any, type[HoldfastError], str], ...]] = (
    ([5], ValidationError, "writes"),
    (5, ValidationError, "writes"),
    ("text", ValidationError, "writes"),
    ({"key": "k", "value": 1}, ValidationError, "writes"),
    ([{}], ValidationError, "writes"),
    ([{"key": "k"}], ValidationError, "writes"),
    ([{"key": "k", "value": 1, "delete": True}], ValidationError, "writes"),
    ([{"key": "k", "value": 1, "incr": 1}], ValidationError, "writes"),
    ([{"key": "k", "incr": 1, "delete": True}], ValidationError, "writes"),
    ([{"key": "k", "value": 1, "expected_version": 1}], ValidationError, "writes"),
    ([{"key": "k", "delete": 1}], ValidationError, "delete"),
    ([{"key": "k", "delete": False}], ValidationError, "delete"),
    ([{"value": 1}], MissingField, "key"),
    ([{"delete": True}], MissingField, "key"),
    ([{"incr": 1}], MissingField, "key"),
    ([{"key": "", "value": 1}], ValidationError, "key"),
    ([{"key": "k", "value": float("nan")}], ValidationError, "value"),
    ([{"key": "k", "value": "x" * 65_536}], ValueTooLarge, "value"),
    ([{"key": "k", "value": 1, "ttl": 5, "ttl_seconds": 6}], ValidationError, "ttl"),
    ([{"key": "k", "value": 1, "ttl": 5, "keep_ttl": True}], ValidationError, "ttl"),
    ([{"key": "k", "value": 1, "keep_ttl": 1}], ValidationError, "keep_ttl"),
    ([{"guard": ""}], ValidationError, "guard"),
    ([{"guard": 5}], ValidationError, "guard"),
)
ILLEGAL_CHECKS: Final[tuple[tuple[Any, type[HoldfastError], str], ...]] = (
    (5, ValidationError, "checks"),
    ([5], ValidationError, "checks"),
    ([{}], MissingField, "key"),
    ([{"key": "k"}], MissingField, "version"),
    ([{"key": "", "version": 0}], ValidationError, "key"),
    ([{"key": "k", "version": -1}], ValidationError, "version"),
    ([{"key": "k", "version": True}], ValidationError, "version"),
    ([{"key": "k", "version": None}], ValidationError, "version"),
)


BAD: tuple[Any, ...] = (0, -1, True, "1", float("nan"), float("inf"), 2**31)


class BatchRules(Fixtures):
    """The rules of batch."""

    async def test_all_kinds_of_writes(self, kv: KV, clock: ManualClock) -> None:
        """Sets, increments and deletions take effect together, with their versions by position."""
        await kv.set("gone", 1)
        await kv.set("count", 5)
        done = await kv.batch(
            writes=[
                {"key": "a", "value": {"x": 1.0}, "ttl": 60, "semantics": {"purpose": "flag"}},
                {"key": "gone", "delete": True},
                {"key": "never", "delete": True},
                {"key": "count", "incr": 2},
                {"key": "fresh", "incr": 0.5, "ttl": 60},
                {"key": "null", "value": None},
            ],
            writer="agent",
            request_id="r",
            spec_ref="doc",
        )
        assert done.versions == [3, 4, None, 5, 6, 7]
        a = present(await kv.get("a"))
        assert same(a.value, {"x": 1.0})
        assert (a.version, a.last_writer, a.request_id, a.spec_ref) == (3, "agent", "r", "doc")
        assert a.expires_at == moment(clock.now() + 60_000)
        assert same(present(await kv.get("count")).value, 7)
        assert same(present(await kv.get("fresh")).value, 0.5)
        assert await kv.get_ttl("fresh") == 60
        assert (await kv.list()).keys == ["a", "count", "fresh", "null"]
        changes = (await kv.changes(2)).changes
        assert [(change.op, change.key) for change in changes] == [
            ("set", "a"),
            ("deleted", "gone"),
            ("set", "count"),
            ("set", "fresh"),
            ("set", "null"),
        ]
        assert {change.request_id for change in changes} == {"r"}

    async def test_writes_of_one_key_follow_each_other(self, kv: KV) -> None:
        """Writes take effect in their order, also on the same key."""
        done = await kv.batch(
            writes=[
                {"key": "n", "value": 1},
                {"key": "n", "incr": 1},
                {"key": "n", "delete": True},
                {"key": "n", "delete": True},
                {"key": "n", "incr": 10},
            ]
        )
        assert done.versions == [1, 2, 3, None, 4]
        assert present(await kv.get("n")).value == 10
        assert [change.op for change in await kv.history("n")] == ["set", "deleted", "set", "set"]

    async def test_an_empty_batch(self, kv: KV) -> None:
        """A batch without writes is valid and changes nothing; its checks still apply."""
        assert (await kv.batch(writes=[])).versions == []
        with refusal(VersionConflict):
            await kv.batch(checks=[{"key": "k", "version": 1}], writes=[])
        assert (await kv.changes()).next == 0

    async def test_checks_that_hold(self, kv: KV) -> None:
        """A check expects a version, or with 0 a missing key. Its key need not be written to."""
        entry = await kv.set("a", 1)
        checks = [{"key": "a", "version": entry.version}, {"key": "b", "version": 0}]
        done = await kv.batch(checks=checks, writes=[{"key": "b", "value": 1}])
        assert done.versions == [entry.version + 1]
        assert await kv.get("a") == entry

    async def test_every_failed_check_is_listed(self, kv: KV) -> None:
        """A conflict lists all checks that failed, in order, each with the current entry."""
        a, b = await kv.set("a", 1), await kv.set("b", 2, ttl=60)
        checks = [
            {"key": "a", "version": a.version},
            {"key": "b", "version": 0},
            {"key": "c", "version": 9},
            {"key": "d", "version": 0},
            {"key": "a", "version": 7},
        ]
        with refusal(VersionConflict, says="3 of 5") as caught:
            await kv.batch(checks=checks, writes=[{"key": "z", "value": 1}, {"key": "a", "delete": True}])
        assert list(caught.value.conflicts) == [
            Conflict(key="b", expected_version=0, current=b),
            Conflict(key="c", expected_version=9, current=None),
            Conflict(key="a", expected_version=7, current=a),
        ]
        assert caught.value.current == b
        assert (await kv.list()).keys == ["a", "b"]
        assert (await kv.changes()).next == 2

    async def test_checks_look_at_what_was_before(self, kv: KV) -> None:
        """Checks are evaluated before the first write of their batch."""
        await kv.batch(
            checks=[{"key": "k", "version": 0}], writes=[{"key": "k", "value": 1}, {"key": "k", "value": 2}]
        )
        with refusal(VersionConflict):
            await kv.batch(
                checks=[{"key": "k", "version": 0}],
                writes=[{"key": "k", "delete": True}, {"key": "k", "value": 3}],
            )
        assert present(await kv.get("k")).value == 2

    async def test_a_write_that_fails_undoes_all(self, kv: KV, store: Store) -> None:
        """When one write is refused, none takes effect: no entry, no change, no version."""
        text = await kv.set("text", "x")
        n = await kv.set("n", 1, ttl=60)
        before = await store.stats("kv/trivia")
        with refusal(ValidationError, field="value", says="'text'"):
            await kv.batch(
                writes=[
                    {"key": "new", "value": 1},
                    {"key": "n", "incr": 1},
                    {"key": "n", "delete": True},
                    {"guard": "lock"},
                    {"key": "text", "incr": 1},
                ]
            )
        assert await kv.get_many(["new", "n", "text"]) == [None, n, text]
        assert await store.stats("kv/trivia") == before
        assert (await kv.changes(n.version)).changes == []
        assert (await kv.set("next", 1)).version == n.version + 1

    async def test_deadlines_in_a_batch(self, kv: KV, clock: ManualClock) -> None:
        """A set in a batch takes ttl, ttl_seconds or keep_ttl as set does."""
        running = (await kv.set("keep", 1, ttl=60)).expires_at
        clock.advance(1)
        await kv.batch(
            writes=[
                {"key": "keep", "value": 2, "keep_ttl": True},
                {"key": "also", "value": 1, "ttl": KEEP, "keep_ttl": True},
                {"key": "ttl", "value": 1, "ttl": 10, "ttl_seconds": 10},
                {"key": "seconds", "value": 1, "ttl_seconds": 10},
                {"key": "no", "value": 1, "ttl": None, "keep_ttl": False},
            ]
        )
        assert present(await kv.get("keep")).expires_at == running
        assert [await kv.get_ttl(key) for key in ("also", "ttl", "seconds", "no")] == [None, 10, 10, None]

    async def test_illegal_writes(self, kv: KV) -> None:
        """A batch with an invalid part is refused as a whole, with the class and field of the fault."""
        for writes, kind, field in ILLEGAL:
            with refusal(kind, field=field, about=writes):
                await kv.batch(writes=writes)
        for checks, kind, field in ILLEGAL_CHECKS:
            with refusal(kind, field=field, about=checks):
                await kv.batch(checks=checks, writes=[{"key": "k", "value": 1}])
        assert await kv.get("k") is None

    async def test_a_thousand_writes(self, kv: KV) -> None:
        """A batch holds at most 1,000 writes and 1,000 checks."""
        writes = [{"key": f"{number:04}", "value": number} for number in range(1000)]
        checks = [{"key": f"{number:04}", "version": 0} for number in range(1000)]
        assert (await kv.batch(checks=checks, writes=writes)).versions == list(range(1, 1001))
        with refusal(ValidationError, field="writes", says="1001"):
            await kv.batch(writes=[*writes, {"key": "z", "value": 1}])
        with refusal(ValidationError, field="checks", says="1000"):
            await kv.batch(checks=[*checks, {"key": "z", "version": 0}], writes=[])
        assert len((await kv.list(limit=10_000)).keys) == 1000

    async def test_half_a_megabyte(self, kv: KV) -> None:
        """A batch holds at most 512 KB of keys and values."""
        large = "x" * (65_536 - 2 - 4)
        legal = [{"key": f"key{number}", "value": large} for number in range(8)]
        await kv.batch(writes=legal)
        with refusal(ValueTooLarge, says="524288"):
            await kv.batch(writes=[*legal[:7], {"key": "key78", "value": large}])
        assert (await kv.list()).keys == [f"key{number}" for number in range(8)]


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
        if again is None:
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

    async def test_a_live_fence_needs_the_lease(self, store: Store, clock: ManualClock) -> None:
        """With `live`, a holder whose lease has run out is refused, though nobody has taken the lock."""
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            acquired: dict[str, Any] = {
                "key": "lock/a",
                "value": "me",
                "ttl": 0.5,
                "semantics": {"purpose": "lock"},
            }
            _, token = (await kv.batch(writes=[acquired, {"guard": "a"}])).versions
            fence: dict[str, Any] = {"lock": "a", "token": token}
            clock.advance(0.499)
            for verb, call in writing(kv, "k").items():
                if verb != "restore":
                    await kv.set("k", 1, ttl=60)
                    await call(fence=fence | {"live": True})
            clock.advance(0.001)
            before = await kv.set("k", 1, fence=fence)
            for verb, call in writing(kv, "k").items():
                with refusal(Fenced, field="fence", says="no longer held", about=verb):
                    await call(fence=fence | {"live": True})
            assert await kv.get("k") == before
            await kv.set("k", 2, fence=fence | {"live": False})

    async def test_a_live_fence_of_a_released_lock(self, kv: KV) -> None:
        """With `live`, a holder that has released the lock is refused, and so is one that was overtaken."""
        async with kv.lock("a") as lock:
            await kv.set("k", 1, fence=lock.fence | {"live": True})
        with refusal(Fenced, field="fence", says="no longer held"):
            await kv.set("k", 2, fence=lock.fence | {"live": True})
        async with kv.lock("a") as newer:
            with refusal(Fenced, field="fence", says="newer holder"):
                await kv.set("k", 2, fence=lock.fence | {"live": True})
            await kv.set("k", 3, fence=newer.fence | {"live": True})

    async def test_deletes_by_prefix_are_fenced(self, kv: KV) -> None:
        """A holder that lost the lock removes nothing by prefix, and is told so even if nothing is there."""
        old = await take(kv)
        new = await take(kv)
        await kv.set("a/1", 1)
        for prefix in ("a/", "nothing/"):
            with refusal(Fenced, field="fence", says="'lock'"):
                await kv.delete_prefix(prefix, fence=old)
            with refusal(Fenced, field="fence", says="no longer held"):
                await kv.delete_prefix(prefix, fence=new | {"live": True})
        assert (await kv.delete_prefix("a/", fence=new)).keys == ["a/1"]
        assert (await kv.delete_prefix("a/", fence=new)).keys == []

    async def test_illegal_fences(self, kv: KV) -> None:
        """A fence has a lock and a token, and may say that the lock must be held."""
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
            ({"lock": "a", "token": 1, "live": 1}, "fence.live"),
            ({"lock": "a", "live": True}, "fence"),
        )
        for wrong, field in wrongs:
            with refusal(ValidationError, field=field, about=wrong):
                await kv.set("k", 1, fence=wrong)


async def prepare(kv: KV) -> dict[str, Any]:
    """Create a key for every writing verb on which it succeeds. Returns the calls by the verb's name."""
    for verb in ("incr", "set_ttl", "touch", "remove_ttl", "delete", "delete_many", "restore"):
        await kv.set(verb, 7, ttl=60, semantics={"purpose": "flag"})
    await kv.delete("restore")
    calls = {verb: writing(kv, verb)[verb] for verb in writing(kv, "")}
    calls["delete of nothing"] = writing(kv, "nothing")["delete"]
    calls["touch of nothing"] = writing(kv, "nothing")["touch"]
    calls["incr that makes the key"] = writing(kv, "fresh")["incr"]
    return calls


class OnceRules(Fixtures):
    """The rules of intentions that are carried out once."""

    async def test_every_verb_is_done_once(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A call with a known id returns the first result and has no effect."""
        for verb, call in (await prepare(kv)).items():
            if verb.endswith("_many"):
                with refusal(ValidationError, field="once", about=verb):
                    await call(once=f"o {verb}")
                continue
            first = await call(once=f"o {verb}")
            before = await store.stats("kv/trivia")
            clock.advance(1)
            assert await call(once=f"o {verb}") == first, verb
            assert await store.stats("kv/trivia") == before, verb

    async def test_the_first_result_counts(self, kv: KV) -> None:
        """A known id comes before value, checks, fence and everything else that the call says."""
        first = await kv.set("k", {"a": 1}, once="set")
        added = await kv.append("log", "first", once="append")
        summed = await kv.incr("n", 5, once="incr")
        done = await kv.batch(writes=[{"append": "log", "value": 1}, {"key": "b", "value": 1}], once="batch")
        assert await kv.delete("b", once="delete") is True
        head = (await kv.changes()).next
        fence = {"lock": "never", "token": 7}
        assert await kv.set("k", 2, expected_version=99, ttl=5, once="set") == first
        assert await kv.set("other", "x" * 1000, fence=fence, writer="somebody", once="set") == first
        assert await kv.append("other", "second", keep=1, once="append") == added
        assert await kv.incr("k", 1, once="incr") == summed
        failing = [{"key": "k", "version": 99}]
        assert await kv.batch(checks=failing, writes=[{"key": "z", "value": 1}], once="batch") == done
        assert await kv.delete("nothing", expected_version=3, once="delete") is True
        assert (await kv.changes()).next == head

    async def test_a_refusal_is_not_remembered(self, kv: KV) -> None:
        """What was refused may be computed anew and sent with the same id until it succeeds."""
        await kv.set("k", 1)
        with refusal(VersionConflict):
            await kv.set("k", 2, expected_version=9, once="o")
        second = await kv.set("k", 3, expected_version=1, once="o")
        assert await kv.set("k", 4, once="o") == second

    async def test_an_id_belongs_to_its_verb(self, kv: KV) -> None:
        """An id that another verb or a request has used is refused: it has no result of this verb."""
        await kv.set("k", 1, once="o")
        await kv.set("k", 1, request_id="r")
        others: dict[str, Any] = {
            "delete": kv.delete("k", once="o"),
            "incr": kv.incr("k", once="o"),
            "append": kv.append("k", 1, once="o"),
            "batch": kv.batch(writes=[{"key": "k", "value": 1}], once="o"),
            "request id": kv.set("k", 1, request_id="o"),
            "id of a request": kv.set("k", 1, once="r"),
        }
        for what, call in others.items():
            with refusal(VersionConflict, about=what) as caught:
                await call
            assert caught.value.reason == "request_id_reused", what
        assert present(await kv.get("k")).version == 2

    async def test_ids_are_kept_for_a_day(self, kv: KV, clock: ManualClock, reopen: Reopen) -> None:
        """An id is remembered as long as that of a request, also when the storage is opened again."""
        first = await kv.set("k", "first", once="o")
        clock.advance(DAY - 0.001)
        again = await reopen()
        if again is None:
            return
        kv = again.kv("trivia")
        assert await kv.set("k", "second", once="o") == first
        clock.advance(0.001)
        assert (await kv.set("k", "third", once="o")).value == "third"

    async def test_an_update_is_made_once(self, kv: KV) -> None:
        """A second run of an update with the same id returns the first entry, whatever it computes."""
        first = await kv.update("list", lambda items: items[1:], default=[1, 2], once="o")
        await kv.set("list", [])
        assert await kv.update("list", lambda items: [*items, 9], once="o") == first
        assert await kv.update("list", lambda items: items[7], once="o") == first
        with pytest.raises(IndexError):
            await kv.update("list", lambda items: items[7], once="other")
        assert await kv.retry.update("list", lambda entry: "new", once="o") == first
        assert present(await kv.get("list")).value == []

    async def test_illegal_ids(self, kv: KV) -> None:
        """An id has the form of a request id, and is not given together with one."""
        for wrong in ("", "x" * 201, "a\nb", 5):
            with refusal(ValidationError, field="once", about=wrong):
                await kv.set("k", 1, once=wrong)  # type: ignore[arg-type]
        with refusal(ValidationError, field="once"):
            await kv.set("k", 1, once="o", request_id="r")
        with refusal(ValidationError, field="once"):
            await kv.delete_prefix("k", once="o")
        assert await kv.get("k") is None


class RequestRules(Fixtures):
    """The rules of request ids."""

    async def test_every_verb_replays(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A repeated request gets the same reply, whatever it was, and has no second effect."""
        for verb, call in (await prepare(kv)).items():
            first = await call(request_id=f"r {verb}")
            before = await store.stats("kv/trivia")
            clock.advance(1)
            assert await call(request_id=f"r {verb}") == first, verb
            assert await store.stats("kv/trivia") == before, verb

    async def test_a_replay_tells_what_was(self, kv: KV) -> None:
        """A replay returns the original reply, even if others have written since."""
        counted = await kv.incr("n", 5, request_id="count")
        written = await kv.set("k", {"a": 1.0}, request_id="write")
        assert await kv.delete("nothing", request_id="delete") is False
        batch = await kv.batch(writes=[{"key": "b", "value": 1}], request_id="batch")
        await kv.incr("n")
        await kv.delete("k")
        await kv.set("nothing", 1)
        await kv.delete("b")
        assert await kv.incr("n", 5, request_id="count") == counted
        replayed = await kv.set("k", {"a": 1.0}, request_id="write")
        assert replayed == written
        assert same(replayed.value, {"a": 1.0})
        assert await kv.delete("nothing", request_id="delete") is False
        assert await kv.batch(writes=[{"key": "b", "value": 1}], request_id="batch") == batch
        assert present(await kv.get("n")).value == 6
        assert (await kv.list()).keys == ["n", "nothing"]

    async def test_replays_after_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """A request is still remembered when the storage is reopened."""
        first = {verb: await call(request_id=f"r {verb}") for verb, call in (await prepare(kv)).items()}
        again = await reopen()
        if again is None:
            return
        kv = again.kv("trivia")
        before = await again.stats("kv/trivia")
        for verb in writing(kv, ""):
            assert await writing(kv, verb)[verb](request_id=f"r {verb}") == first[verb], verb
        assert await again.stats("kv/trivia") == before

    async def test_requests_are_forgotten_after_a_day(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A request is remembered for 24 hours; after that it is a new one, with or without upkeep."""
        for upkeep in (False, True):
            first = await kv.incr("n", request_id="r")
            clock.advance(DAY - 0.001)
            await store.upkeep()
            assert await kv.incr("n", request_id="r") == first
            clock.advance(0.001)
            if upkeep:
                await store.upkeep()
            second = await kv.incr("n", request_id="r")
            assert second.value == first.value + 1
            clock.advance(DAY)

    async def test_other_content_is_a_conflict(self, kv: KV) -> None:
        """Reusing a request id for other content is a conflict with that reason, and writes nothing."""
        await kv.set("other", 1)
        entry = await kv.set("k", 1, request_id="r")
        before = (await kv.changes()).next
        others: dict[str, Any] = {
            "value": kv.set("k", 2, request_id="r"),
            "type of the value": kv.set("k", 1.0, request_id="r"),
            "key": kv.set("other", 1, request_id="r"),
            "ttl": kv.set("k", 1, ttl=60, request_id="r"),
            "keep": kv.set("k", 1, ttl=KEEP, request_id="r"),
            "expected version": kv.set("k", 1, expected_version=entry.version, request_id="r"),
            "semantics": kv.set("k", 1, semantics={"purpose": "flag"}, request_id="r"),
            "writer": kv.set("k", 1, writer="somebody", request_id="r"),
            "document": kv.set("k", 1, spec_ref="doc", request_id="r"),
            "delete": kv.delete("k", request_id="r"),
            "incr": kv.incr("k", request_id="r"),
            "set_ttl": kv.set_ttl("k", 60, request_id="r"),
            "touch": kv.touch("k", 60, request_id="r"),
            "only_if_exists": kv.incr("k", only_if_exists=True, request_id="r"),
            "remove_ttl": kv.remove_ttl("k", request_id="r"),
            "restore": kv.restore("k", request_id="r"),
            "set_many": kv.set_many([{"key": "k", "value": 1}], request_id="r"),
            "delete_many": kv.delete_many(["k"], request_id="r"),
            "batch": kv.batch(writes=[{"key": "k", "value": 1}], request_id="r"),
        }
        for what, call in others.items():
            with refusal(VersionConflict, says="'r'", about=what) as caught:
                await call
            assert caught.value.reason == "request_id_reused", what
        assert (await kv.changes()).next == before
        assert await kv.set("k", 1, request_id="r") == entry

    async def test_the_conflict_shows_what_is_there(self, kv: KV) -> None:
        """A conflict over a request id carries the current entry of the key in the new request."""
        await kv.set("k", 1, request_id="r")
        now = await kv.set("k", 2)
        with refusal(VersionConflict) as caught:
            await kv.set("k", 3, request_id="r")
        assert caught.value.current == now
        with refusal(VersionConflict) as caught:
            await kv.set("missing", 3, request_id="r")
        assert caught.value.current is None

    async def test_ids_belong_to_their_namespace(self, store: Store) -> None:
        """The same id in two namespaces names two requests."""
        one, other = store.kv("one"), store.kv("other")
        assert (await one.incr("n", request_id="r")).value == 1
        assert (await other.incr("n", 5, request_id="r")).value == 5
        assert (await store.semantic("acme", "web").incr("n", request_id="r")).value == 1

    async def test_refusals_are_judged_anew(self, kv: KV) -> None:
        """A refused request is not remembered: the same or another request may succeed under its id."""
        with refusal(KeyNotFound, field="key"):
            await kv.set_ttl("k", 60, request_id="r")
        with refusal(VersionConflict) as caught:
            await kv.set("k", 1, expected_version=5, request_id="r")
        assert caught.value.reason is None
        entry = await kv.set("k", 2, request_id="r")
        assert await kv.set("k", 2, request_id="r") == entry
        with refusal(VersionConflict):
            await kv.batch(checks=[{"key": "k", "version": 0}], writes=[], request_id="batch")
        await kv.delete("k")
        assert (
            await kv.batch(checks=[{"key": "k", "version": 0}], writes=[], request_id="batch")
        ).versions == []

    async def test_set_many_completes_what_was_refused(self, kv: KV) -> None:
        """A repeated set_many replays what succeeded and tries again what did not."""
        blocker = await kv.set("b", 0)
        items: list[Any] = [
            {"key": "a", "value": 1},
            {"key": "b", "value": 1, "expected_version": 0},
            {"key": "", "value": 1},
            {"key": "c", "value": 1, "expected_version": 9},
        ]
        first = await kv.set_many(items, request_id="r")
        assert [isinstance(result, HoldfastError) for result in first] == [False, True, True, True]
        await kv.delete("b", expected_version=blocker.version)
        await kv.set("a", "changed")
        second = await kv.set_many(items, request_id="r")
        assert second[0] == first[0]
        assert [isinstance(result, HoldfastError) for result in second] == [False, False, True, True]
        before = (await kv.changes()).next
        third = await kv.set_many(items, request_id="r")
        assert third[:2] == second[:2]
        assert (await kv.changes()).next == before
        assert present(await kv.get("a")).value == "changed"
        with refusal(VersionConflict) as caught:
            await kv.set_many(items[:1], request_id="r")
        assert caught.value.reason == "request_id_reused"

    async def test_set_many_of_refusals_is_not_remembered(self, kv: KV) -> None:
        """If no part of a set_many succeeded, its id is free."""
        [refused] = await kv.set_many([{"key": "k", "value": 1, "expected_version": 9}], request_id="r")
        assert isinstance(refused, VersionConflict)
        assert (await kv.incr("n", request_id="r")).value == 1

    async def test_the_same_request_many_times_at_once(self, kv: KV) -> None:
        """A request repeated while the first is running has one effect, and all callers get its reply."""
        entries = await asyncio.gather(*(kv.incr("n", request_id="r") for _ in range(20)))
        assert entries == [entries[0]] * 20
        assert present(await kv.get("n")).value == 1

    async def test_a_replay_outlives_its_entry(self, kv: KV, clock: ManualClock) -> None:
        """A replay returns the original reply, even if the entry has expired since."""
        entry = await kv.set("k", 1, ttl=1, request_id="r")
        clock.advance(5)
        assert await kv.set("k", 1, ttl=1, request_id="r") == entry
        assert await kv.get("k") is None


class DeadlineRules(Fixtures):
    """The rules of timeouts."""

    async def test_every_verb_takes_a_timeout(self, kv: KV, store: Store) -> None:
        """A write that finishes in time is the same as without a timeout, also with fractions of a second."""
        for verb, call in (await prepare(kv)).items():
            before = (await store.stats("kv/trivia")).version
            await call(timeout=30.5)
            changes = not verb.endswith("of nothing")
            assert (await store.stats("kv/trivia")).version == before + changes, verb

    async def test_a_timeout_is_no_part_of_a_request(self, kv: KV, store: Store) -> None:
        """A request repeated with another timeout, or with none, is the same request."""
        for verb, call in (await prepare(kv)).items():
            first = await call(request_id=f"r {verb}", timeout=30)
            before = await store.stats("kv/trivia")
            assert await call(request_id=f"r {verb}", timeout=60) == first, verb
            assert await call(request_id=f"r {verb}") == first, verb
            assert await store.stats("kv/trivia") == before, verb

    async def test_timeouts_that_make_no_sense(self, kv: KV, tables: Tables) -> None:
        """A timeout is a positive number of seconds. Anything else is refused and writes nothing."""
        await tables.create_table("events", partition_key=("user", "string"))
        for timeout in BAD:
            with refusal(ValidationError, field="timeout", about=timeout):
                await kv.set("k", 1, timeout=timeout)
            with refusal(ValidationError, field="timeout", about=timeout):
                await tables.put_item("events", {"user": "a"}, timeout=timeout)
        assert await kv.get("k") is None
        assert await tables.get_item("events", "a") is None

    async def test_tables_take_a_timeout(self, tables: Tables) -> None:
        """Every write of items takes a timeout, and a transaction replays whatever its timeout."""
        await tables.create_table("events", partition_key=("user", "string"), timeout=30)
        await tables.put_item("events", {"user": "a"}, timeout=30)
        await tables.batch_write_item("events", [{"put": {"item": {"user": "b"}}}], timeout=30)
        writes = [{"put": {"table": "events", "item": {"user": "c"}}}]
        first = await tables.transact_write(writes, request_id="r", timeout=30)
        assert await tables.transact_write(writes, request_id="r", timeout=60) == first
        assert [item.value["user"] for item in (await tables.scan("events")).items] == ["a", "b", "c"]
