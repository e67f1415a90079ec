"""The journal as callers read it: changes and history.

Law: these tests read. Each verb's own tests also check what it writes into the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.clock import moment
from holdfast.errors import ValidationError
from holdfast.model import Change
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, assert_empty
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store


class JournalRules(Fixtures):
    """The rules of changes and history."""

    async def test_nothing_has_changed_yet(self, kv: KV) -> None:
        """The journal of a namespace that was never written to is empty and has no gap."""
        found = await kv.changes()
        assert (found.changes, found.next, found.gap, found.oldest) == ([], 0, False, None)
        assert await kv.history("k") == []

    async def test_every_kind_of_change(self, kv: KV, clock: ManualClock) -> None:
        """Each change has its op, key, version, time, writer, request id and purpose, but no value."""
        at = moment(clock.now())
        semantics = {"purpose": "flag"}
        await kv.set("k", 1, semantics=semantics, writer="a", request_id="r1")
        await kv.delete("k", writer="b", request_id="r2")
        await kv.restore("k", ttl=1, writer="c", request_id="r3")
        clock.advance(1)
        await kv.set("k", 2, writer="d", request_id="r4")
        later = moment(clock.now())
        assert (await kv.changes()).changes == [
            Change(op="set", key="k", version=1, at=at, last_writer="a", request_id="r1", purpose="flag"),
            Change(op="deleted", key="k", version=2, at=at, last_writer="b", request_id="r2", purpose="flag"),
            Change(
                op="restored", key="k", version=3, at=at, last_writer="c", request_id="r3", purpose="flag"
            ),
            Change(
                op="expired",
                key="k",
                version=4,
                at=later,
                last_writer="c",
                purpose="flag",
                lag_ms=0,
                expired_version=3,
            ),
            Change(op="set", key="k", version=5, at=later, last_writer="d", request_id="r4"),
        ]

    async def test_since_and_next(self, kv: KV) -> None:
        """Changes come oldest first after `since`; `next` continues without missing or repeating one."""
        for number in range(10):
            await kv.set(f"{number % 3}", number)
        everything = (await kv.changes()).changes
        assert [change.version for change in everything] == list(range(1, 11))
        for limit in (1, 2, 3, 4, 9, 10, 11):
            told: list[Change] = []
            since = 0
            while (page := await kv.changes(since, limit=limit)).changes:
                assert len(page.changes) <= limit
                assert page.next == page.changes[-1].version > since
                assert page.gap is False
                told += page.changes
                since = page.next
            assert told == everything
        assert (await kv.changes(10)).next == 10
        assert [change.version for change in (await kv.changes(7)).changes] == [8, 9, 10]

    async def test_changes_of_a_prefix(self, kv: KV) -> None:
        """With a prefix, only changes of its keys are returned, and `next` skips the others."""
        for key in ("a1", "b1", "a2", "b2", "b3", "a%", "b4"):
            await kv.set(key, 0)
        page = await kv.changes(prefix="a", limit=2)
        assert [change.key for change in page.changes] == ["a1", "a2"]
        assert page.next == 3
        page = await kv.changes(page.next, prefix="a", limit=2)
        assert ([change.key for change in page.changes], page.next) == (["a%"], 7)
        assert [change.key for change in (await kv.changes(prefix="a%")).changes] == ["a%"]
        page = await kv.changes(prefix="zz")
        assert (page.changes, page.next) == ([], 7)

    async def test_a_full_page_may_be_the_last(self, kv: KV) -> None:
        """`next` of a full page skips the changes after it if none of them matches."""
        for key in ("a1", "a2", "b1", "b2"):
            await kv.set(key, 0)
        found = await kv.changes(prefix="a", limit=2)
        assert ([change.key for change in found.changes], found.next) == (["a1", "a2"], 4)
        assert (await kv.changes(prefix="a", limit=1)).next == 1

    async def test_what_is_no_since(self, kv: KV) -> None:
        """`since` is a version."""
        wrongs: tuple[Any, ...] = (-1, True, 1.0, "0", None, 2**63)
        for wrong in wrongs:
            with refusal(ValidationError, field="since", about=wrong):
                await kv.changes(wrong)
            if wrong is not None:
                with refusal(ValidationError, field="since", about=wrong):
                    kv.watch(since=wrong)

    async def test_beyond_the_head_is_a_gap(self, kv: KV) -> None:
        """A `since` beyond the head is a gap: everything known is returned."""
        await kv.set("a", 0)
        await kv.set("b", 0)
        page = await kv.changes(99)
        assert (page.gap, page.oldest, page.next) == (True, 1, 2)
        assert [change.key for change in page.changes] == ["a", "b"]
        assert [change.key for change in (await kv.changes(99, prefix="b")).changes] == ["b"]
        page = await kv.changes(99, limit=1)
        assert (page.gap, page.next, len(page.changes)) == (True, 1, 1)

    async def test_the_journal_forgets_after_a_day(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Changes older than a day are dropped; a `since` before that is a gap with the oldest version."""
        for number in range(5):
            await kv.set("old", number)
        clock.advance(DAY / 2)
        await kv.set("new", 0)
        await store.upkeep()
        assert (await kv.changes()).gap is False
        clock.advance(DAY / 2)
        await store.upkeep()
        page = await kv.changes()
        assert (page.gap, page.oldest, page.next) == (True, 6, 6)
        assert [change.key for change in page.changes] == ["new"]
        for since, gap in ((4, True), (5, False), (6, False), (7, True)):
            assert (await kv.changes(since)).gap is gap, since
        assert await kv.history("old") == []
        assert [change.version for change in await kv.history("new")] == [6]
        assert (await kv.get_many(["old", "new"])).count(None) == 0
        clock.advance(DAY)
        await store.upkeep()
        page = await kv.changes(3)
        assert (page.changes, page.gap, page.oldest, page.next) == ([], True, 7, 6)
        assert (await kv.changes(6)).gap is False
        assert (await kv.set("after", 0)).version == 7

    async def test_history_is_newest_first(self, kv: KV) -> None:
        """History returns the changes of exactly one key, newest first, up to the limit."""
        for number in range(3):
            await kv.set("k", number)
            await kv.set("k2", number)
        await kv.delete("k")
        changes = await kv.history("k")
        assert [(change.op, change.version) for change in changes] == [
            ("deleted", 7),
            ("set", 5),
            ("set", 3),
            ("set", 1),
        ]
        assert await kv.history("k", limit=2) == changes[:2]
        assert await kv.history("K") == []

    async def test_large_pages_are_cut(self, kv: KV) -> None:
        """A page of changes holds at most 512 KB, and `next` continues it."""
        keys = [f"{number:03}" + "🎉" * 252 for number in range(450)]
        for start in range(0, 450, 150):
            await kv.set_many([{"key": key, "value": 0} for key in keys[start : start + 150]])
        first = await kv.changes(limit=10_000)
        assert 0 < len(first.changes) < 450
        second = await kv.changes(first.next, limit=10_000)
        assert [change.key for change in first.changes + second.changes] == keys

    async def test_the_journal_survives_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """A reader continues where it stopped after the storage was reopened."""
        await kv.set("a", 1, writer="w", request_id="r")
        await kv.set("b", 1, semantics={"purpose": "flag"})
        before = await kv.changes()
        again = await reopen()
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        kv = again.kv("trivia")
        assert await kv.changes() == before
        await kv.set("c", 1)
        assert [change.key for change in (await kv.changes(before.next)).changes] == ["c"]
