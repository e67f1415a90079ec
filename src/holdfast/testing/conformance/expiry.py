"""Deadlines: valid ttls, the instant at which an entry expires, and the journal's record of it.

The test's clock moves time. A sweep of an expired entry must be visible in the journal and nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from holdfast.clock import ManualClock, moment
from holdfast.engine import DurableStorage
from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.handles.kv import KV
from holdfast.model import KEEP
from holdfast.pipeline.caller import Service
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures, MakeStore, Reopen
from holdfast.testing.exact import present, refusal

NO_TTL: Final[tuple[Any, ...]] = (0, -1, 2**31, True, False, 1.0, 0.5, float("nan"), "60", b"1", [1], {})


class WrongClock:
    """A clock that can be set back, as another machine's clock may be behind ours."""

    def __init__(self, now: int) -> None:
        self.time = now

    def now(self) -> int:
        """Return the time that was set."""
        return self.time


class ExpiryRules(Fixtures):
    """The rules of deadlines and expiry."""

    async def test_ttl_rejects_zero_negative_and_text(self, kv: KV) -> None:
        """A ttl is whole seconds from 1 to 2,147,483,647; every verb that takes one refuses anything else."""
        await kv.set("live", 1)
        for wrong in NO_TTL:
            with refusal(ValidationError, field="ttl", says="2147483647", about=wrong):
                await kv.set("k", 1, ttl=wrong)
            with refusal(ValidationError, field="ttl", says="2147483647", about=wrong):
                await kv.incr("k", ttl=wrong)
            with refusal(ValidationError, field="ttl", says="2147483647", about=wrong):
                await kv.restore("k", ttl=wrong)
            with refusal(ValidationError, field="ttl_seconds", says="2147483647", about=wrong):
                await kv.set_ttl("live", wrong)
            with refusal(ValidationError, field="ttl", about=wrong):
                await kv.batch(writes=[{"key": "k", "value": 1, "ttl": wrong}])
            [error] = await kv.set_many([{"key": "k", "value": 1, "ttl": wrong}])
            assert isinstance(error, ValidationError)
            assert error.field == "ttl"
        nothing: Any = None
        with refusal(ValidationError, field="ttl_seconds"):
            await kv.set_ttl("live", nothing)
        assert (await kv.list()).keys == ["live"]

    async def test_the_longest_ttl(self, kv: KV, clock: ManualClock) -> None:
        """A ttl of 2,147,483,647 seconds is valid and exact to the millisecond."""
        entry = await kv.set("k", 1, ttl=2_147_483_647)
        assert entry.expires_at == moment(clock.now() + 2_147_483_647_000)
        assert await kv.get_ttl("k") == 2_147_483_647
        assert await kv.get("k") == entry

    async def test_an_entry_is_gone_at_its_instant(self, kv: KV, clock: ManualClock) -> None:
        """An entry exists until the millisecond before its deadline and is gone at it, for every reader."""
        entry = await kv.set("k", 1, ttl=60)
        await kv.set("other", 1)
        clock.advance(59.999)
        assert await kv.get("k") == entry
        assert await kv.exists("k") is True
        assert (await kv.list()).keys == ["k", "other"]
        assert await kv.get_many(["k"]) == [entry]
        clock.advance(0.001)
        assert await kv.get("k") is None
        assert await kv.exists("k") is False
        assert await kv.get_ttl("k") == 0
        assert (await kv.list()).keys == ["other"]
        assert (await kv.list(values=True, limit=1)).keys == ["other"]
        assert (await kv.list(limit=1)).truncated is False
        assert await kv.get_many(["k"]) == [None]

    async def test_an_expired_entry_is_gone_for_every_writer(self, kv: KV, clock: ManualClock) -> None:
        """Checks, conditional writes, incr and the ttl verbs treat an expired entry as absent."""
        keys = (
            "cas",
            "zero",
            "incr",
            "delete",
            "delete_many",
            "set_ttl",
            "touch",
            "remove_ttl",
            "keep",
            "check",
        )
        for key in keys:
            await kv.set(key, 7, ttl=60)
        old = present(await kv.get("cas")).version
        clock.advance(60)
        with refusal(VersionConflict) as caught:
            await kv.set("cas", 1, expected_version=old)
        assert caught.value.current is None
        assert (await kv.set("zero", 1, expected_version=0)).value == 1
        assert (await kv.incr("incr")).value == 1
        assert await kv.delete("delete") is False
        assert await kv.delete_many(["delete_many"]) == [False]
        with refusal(KeyNotFound, field="key", says="'set_ttl'"):
            await kv.set_ttl("set_ttl", 60)
        with refusal(KeyNotFound, field="key", says="'set_ttl'"):
            await kv.incr("set_ttl", only_if_exists=True)
        assert await kv.touch("touch", 60) is None
        with refusal(KeyNotFound, field="key", says="'remove_ttl'"):
            await kv.remove_ttl("remove_ttl")
        assert (await kv.set("keep", 1, ttl=KEEP)).expires_at is None
        await kv.batch(checks=[{"key": "check", "version": 0}], writes=[{"key": "check", "value": 1}])
        assert (await kv.list()).keys == ["check", "incr", "keep", "zero"]

    async def test_created_at_does_not_survive_expiry(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Overwriting an expired entry creates a new one, swept or not."""
        for sweep in (False, True):
            await kv.set("k", 1, ttl=1)
            clock.advance(1)
            if sweep:
                await store.sweep()
            assert (await kv.set("k", 2)).created_at == moment(clock.now())

    async def test_seconds_left_are_rounded_up(self, kv: KV, clock: ManualClock) -> None:
        """get_ttl returns the seconds left, rounded up; None without a deadline; 0 without an entry."""
        await kv.set("k", 1, ttl=2)
        await kv.set("forever", 1)
        for passes, left in ((0, 2), (0.001, 2), (0.998, 2), (0.001, 1), (0.999, 1), (0.001, 0), (5, 0)):
            clock.advance(passes)
            assert await kv.get_ttl("k") == left
        assert await kv.get_ttl("forever") is None
        assert await kv.get_ttl("never") == 0

    @pytest.mark.parametrize(("verb", "before"), [("set_ttl", None), ("set_ttl", 5), ("touch", 5)])
    async def test_set_ttl(self, kv: KV, clock: ManualClock, verb: str, before: int | None) -> None:
        """set_ttl and touch change only the deadline, under a new version, in a change of its own."""
        first = await kv.set(
            "k", {"a": 1}, ttl=before, semantics={"purpose": "flag"}, spec_ref="doc", writer="a"
        )
        clock.advance(1)
        entry = present(await getattr(kv, verb)("k", 60, writer="b", request_id="r"))
        assert entry.expires_at == moment(clock.now() + 60_000)
        assert (entry.value, entry.semantics, entry.spec_ref) == (first.value, first.semantics, "doc")
        assert (entry.created_at, entry.updated_at) == (first.created_at, moment(clock.now()))
        assert (entry.version, entry.last_writer, entry.request_id) == (first.version + 1, "b", "r")
        assert await kv.get("k") == entry
        assert (await kv.history("k"))[0].op == "set"
        assert present(await getattr(kv, verb)("k", 1)).expires_at == moment(clock.now() + 1000)
        clock.advance(1)
        assert await kv.get("k") is None

    async def test_touch_of_a_missing_key(self, kv: KV) -> None:
        """Touch of a missing key returns None, makes nothing and is no change."""
        await kv.set("other", 1)
        before = (await kv.changes()).next
        assert await kv.touch("k", 60) is None
        assert await kv.touch("k", 60, expected_version=0) is None
        assert (await kv.changes()).next == before
        assert await kv.exists("k") is False

    async def test_exists(self, kv: KV) -> None:
        """Exists is True of any entry, whatever its value, and False of a missing or deleted key."""
        assert await kv.exists("k") is False
        for value in (None, False, 0, ""):
            await kv.set("k", value)
            assert await kv.exists("k") is True
        await kv.delete("k")
        assert await kv.exists("k") is False

    async def test_remove_ttl(self, kv: KV, clock: ManualClock) -> None:
        """remove_ttl removes the deadline. Without a deadline it is still a change."""
        first = await kv.set("k", 1, ttl=60)
        entry = await kv.remove_ttl("k")
        assert (entry.expires_at, entry.value, entry.version) == (None, 1, first.version + 1)
        clock.advance(100)
        assert await kv.get("k") == entry
        assert (await kv.remove_ttl("k")).version == entry.version + 1

    async def test_deadlines_of_nothing(self, kv: KV) -> None:
        """set_ttl and remove_ttl of a missing key raise KeyNotFound, which names the key."""
        with refusal(KeyNotFound, field="key", says="'k'"):
            await kv.set_ttl("k", 60)
        with refusal(KeyNotFound, field="key", says="'k'"):
            await kv.remove_ttl("k")

    async def test_the_record_of_a_swept_entry(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A sweep records each expiry as a change of its own, with version, writer, purpose and lag."""
        entry = await kv.set("k", 1, ttl=60, semantics={"purpose": "flag"}, writer="agent:a", request_id="r")
        clock.advance(60.25)
        assert await store.sweep() == 1
        change = (await kv.history("k"))[0]
        assert (change.op, change.key, change.version) == ("expired", "k", entry.version + 1)
        assert (change.expired_version, change.last_writer) == (entry.version, "agent:a")
        assert change.purpose == "flag"
        assert (change.lag_ms, change.at, change.request_id) == (250, moment(clock.now()), None)

    async def test_overwriting_records_the_expiry_first(self, kv: KV, clock: ManualClock) -> None:
        """Overwriting an entry whose expiry was not noticed yet records the expiry, then the write."""
        entry = await kv.set("k", 1, ttl=1, writer="first")
        clock.advance(3.5)
        new = await kv.set("k", 2, writer="second")
        assert new.version == entry.version + 2
        expired, written = (await kv.changes(since=entry.version)).changes
        assert (expired.op, expired.version, expired.expired_version) == ("expired", 2, 1)
        assert (expired.last_writer, expired.lag_ms, expired.purpose) == ("first", 2500, None)
        assert (written.op, written.version, written.last_writer) == ("set", 3, "second")
        assert written.lag_ms is written.expired_version is None

    async def test_an_expiry_is_recorded_once(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """The journal records an expiry once, however it is noticed."""
        await kv.set("k", 1, ttl=1)
        clock.advance(1)
        assert await kv.get("k") is None
        assert await kv.delete("k") is False
        assert await store.sweep() == 0
        assert await kv.delete("k") is False
        assert [change.op for change in await kv.history("k")] == ["expired", "set"]

    async def test_a_refusal_notices_nothing(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A refused write over an expired entry leaves no record; the sweep does."""
        await kv.set("k", 1, ttl=1)
        clock.advance(1)
        with refusal(VersionConflict):
            await kv.set("k", 1, expected_version=1)
        assert [change.op for change in await kv.history("k")] == ["set"]
        assert await store.sweep() == 1

    async def test_sweeping(self, store: Store, clock: ManualClock) -> None:
        """A sweep removes due entries in every namespace, returns their number, and leaves the rest."""
        for plugin in ("one", "two"):
            items = [{"key": f"{n:03}", "value": n, "ttl": 1 if n % 3 else 60} for n in range(150)]
            await store.kv(plugin).set_many(items)
        assert await store.sweep() == 0
        clock.advance(1)
        assert await store.sweep() == 200
        assert await store.sweep() == 0
        for plugin in ("one", "two"):
            assert len((await store.kv(plugin).list()).keys) == 50
            ops = [change.op for change in (await store.kv(plugin).changes(since=150)).changes]
            assert ops == ["expired"] * 100
        clock.advance(60)
        assert await store.sweep() == 100

    async def test_many_expire_together(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Each entry that a sweep removes has its own version and record, in order of deadline."""
        written = {}
        for number in range(150):
            key, ttl = f"{number:03}{'é' * (number % 4)}", 200 - number
            semantics = {"purpose": "config"} if number % 50 == 7 else None
            entry = await kv.set(key, "ü" * number, ttl=ttl, semantics=semantics, writer=f"w{number % 3}")
            written[key] = (ttl, entry)
        await kv.set("living", 1, ttl=500)
        await kv.set("endless", 1)
        clock.advance(300)
        seen = moment(clock.now())
        assert await store.sweep() == 150
        changes = (await kv.changes(since=152)).changes
        assert [change.version for change in changes] == list(range(153, 303))
        for change in changes:
            ttl, entry = written.pop(change.key)
            assert (change.op, change.at, change.lag_ms) == ("expired", seen, 300_000 - ttl * 1000)
            assert (change.expired_version, change.last_writer) == (entry.version, entry.last_writer)
            assert change.purpose == (None if entry.semantics is None else entry.semantics.purpose)
            assert change.request_id is None
        plain = [change.lag_ms or 0 for change in changes if change.purpose is None]
        assert plain == sorted(plain, reverse=True)
        stats = await store.stats("kv/trivia")
        assert (stats.keys, stats.bytes) == (2, len("living1endless1"))
        assert (await kv.set("next", 1)).version == 303
        assert (await kv.list()).keys == ["endless", "living", "next"]
        assert len((await store.trash("kv/trivia")).entries) == 3

    async def test_many_expire_where_each_is_kept(self, store: Store, clock: ManualClock) -> None:
        """If a policy asks for the trash or the audit, each of many expired entries is kept there."""
        for name, kept, recorded in (("trash", 70, 0), ("audit", 0, 70)):
            kv = store.kv(name)
            await store.set_policy(kv.namespace, {name: True})
            await kv.set_many([{"key": f"{number:03}", "value": number, "ttl": 1} for number in range(70)])
            clock.advance(1)
            assert await store.sweep() == 70
            assert len((await store.trash(kv.namespace)).entries) == kept
            page = await store.audit(kv.namespace).log(op="expired", limit=1000)
            assert len(page.records) == recorded
        assert (await store.kv("trash").restore("042")).value == 42

    async def test_a_read_behind_a_refused_write(self, kv: KV, clock: ManualClock) -> None:
        """A get that is ordered after a refused write does not see an expired entry."""
        await kv.set("k", 1, ttl=1)
        clock.advance(1)
        refused, seen = await asyncio.gather(
            kv.set("k", 2, expected_version=9), kv.get("k"), return_exceptions=True
        )
        assert isinstance(refused, VersionConflict)
        assert seen is None

    async def test_an_entry_that_got_more_time_stays(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A sweep judges an entry by its current deadline."""
        await kv.set("longer", 1, ttl=1)
        await kv.set("forever", 1, ttl=1)
        await kv.set("keep", 1, ttl=1)
        await kv.set_ttl("longer", 60)
        await kv.remove_ttl("forever")
        await kv.set("keep", 2, ttl=KEEP)
        clock.advance(2)
        assert await store.sweep() == 1
        assert (await kv.list()).keys == ["forever", "longer"]

    async def test_deadlines_survive_opening_again(self, kv: KV, clock: ManualClock, reopen: Reopen) -> None:
        """Deadlines also pass while no process has the store open."""
        await kv.set("k", 1, ttl=60)
        await kv.set("later", 1, ttl=120)
        clock.advance(61)
        again = await reopen()
        if again is None:
            return
        # Only such an engine remembers the time, so that it does not go back.
        assert isinstance(again.caller, Service) or isinstance(again._engine, DurableStorage)
        kv = again.kv("trivia")
        assert (await kv.list()).keys == ["later"]
        assert await kv.get_ttl("later") == 59
        assert await again.sweep() == 1
        assert (await kv.history("k"))[0].lag_ms == 1000

    async def test_a_clock_that_is_behind(self, make_store: MakeStore) -> None:
        """A write's time is never before the namespace's last change; entries expired by then are kept."""
        clock = WrongClock(1_700_000_000_000)
        store = await make_store(clock)
        try:
            kv = store.kv("clocks")
            await kv.set("k", {"kept": True}, ttl=60, semantics={"purpose": "config"})
            clock.time += 100_000
            ahead = await kv.set("other", 1)
            clock.time -= 90_000
            written = await kv.set("k", 2)
            assert written.updated_at == ahead.updated_at
            assert [change.op for change in await kv.history("k")] == ["set", "expired", "set"]
            await kv.set("k", 3, ttl=1)
            await kv.delete("k")
            assert (await kv.restore("k")).value == {"kept": True}
        finally:
            await store.aclose()
