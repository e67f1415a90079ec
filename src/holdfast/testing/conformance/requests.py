"""Request ids: one id has one effect.

Law: a replay is distinguished from a second effect by the store's contents afterwards, never by the reply
alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, KeyNotFound, VersionConflict
from holdfast.model import KEEP
from holdfast.testing.conformance.calls import writing
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, assert_empty
from holdfast.testing.exact import present, refusal, same

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store


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
        if not again.capabilities.durable:
            await assert_empty(again)
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
