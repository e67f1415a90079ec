"""The journal as callers read it and follow it: changes, history, watch and mirror.

A watch that does not yield in time fails the test by its timeout. No test waits for a fixed time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from holdfast.clock import ManualClock, moment
from holdfast.errors import Unavailable, ValidationError
from holdfast.handles.kv import KV
from holdfast.model import Change, Entry
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen
from holdfast.testing.exact import refusal

PATIENCE = 20.0


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

    async def test_since_rejects_anything_but_a_version(self, kv: KV) -> None:
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
        if again is None:
            return
        kv = again.kv("trivia")
        assert await kv.changes() == before
        await kv.set("c", 1)
        assert [change.key for change in (await kv.changes(before.next)).changes] == ["c"]


async def collect(kv: KV, count: int, prefix: str = "", *, since: int | None) -> list[Change]:
    """Return the first changes of a watch."""
    found: list[Change] = []
    watch = cast("AsyncGenerator[Change]", kv.watch(prefix, since=since))
    async with asyncio.timeout(PATIENCE), aclosing(watch) as changes:
        async for change in changes:
            found.append(change)
            if len(found) == count:
                break
    return found


class WatchRules(Fixtures):
    """The rules of watch."""

    async def test_from_the_beginning(self, kv: KV) -> None:
        """With `since` 0, a watch replays the journal and then continues with new changes."""
        await kv.set("a", 1)
        await kv.delete("a")
        follower = asyncio.create_task(collect(kv, 4, since=0))
        await kv.set("b", 1)
        await kv.incr("b")
        told = await follower
        assert [(change.op, change.key) for change in told] == [
            ("set", "a"),
            ("deleted", "a"),
            ("set", "b"),
            ("set", "b"),
        ]
        assert told == (await kv.changes()).changes

    async def test_from_a_version(self, kv: KV) -> None:
        """With a version as `since`, a watch begins after it."""
        for number in range(4):
            await kv.set(f"{number}", number)
        assert [change.version for change in await collect(kv, 2, since=2)] == [3, 4]

    async def test_from_now(self, kv: KV) -> None:
        """Without `since`, a watch yields the changes after it began, and none from before."""
        await kv.set("before", 1)
        watch = cast("AsyncGenerator[Change]", kv.watch())
        async with asyncio.timeout(PATIENCE), aclosing(watch) as changes:
            first = asyncio.ensure_future(anext(changes))
            while not first.done():
                await kv.incr("after")
                await asyncio.sleep(0)
            told = await first
        assert (told.op, told.key) == ("set", "after")

    async def test_of_a_prefix(self, kv: KV) -> None:
        """A watch of a prefix yields only changes of its keys."""
        follower = asyncio.create_task(collect(kv, 3, "a%", since=0))
        for key in ("a%", "ab", "a%1", "A%", "b", "a%2"):
            await kv.set(key, 0)
        assert [change.key for change in await follower] == ["a%", "a%1", "a%2"]

    async def test_expiry_is_told(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A watch yields an expiry once it has been noticed."""
        entry = await kv.set("k", 1, ttl=1)
        follower = asyncio.create_task(collect(kv, 1, since=entry.version))
        clock.advance(1)
        await store.sweep()
        [change] = await follower
        assert (change.op, change.expired_version) == ("expired", entry.version)

    async def test_nothing_is_missed_and_nothing_comes_twice(self, kv: KV) -> None:
        """Under concurrent writes, every watch yields every change once and in order."""
        await kv.set("before", 0)
        followers = [
            asyncio.create_task(collect(kv, 121, since=0)),
            asyncio.create_task(collect(kv, 120, since=1)),
            asyncio.create_task(collect(kv, 60, "even", since=0)),
        ]

        async def write(name: str) -> None:
            for number in range(15):
                await kv.set(f"{name}/{number}", number)

        names = [f"even{number}" for number in range(4)] + [f"odd{number}" for number in range(4)]
        await asyncio.gather(*(write(name) for name in names))
        everything = (await kv.changes()).changes
        assert len(everything) == 121
        told = await asyncio.gather(*followers)
        assert told[0] == everything
        assert told[1] == everything[1:]
        assert told[2] == [change for change in everything if change.key.startswith("even")]

    async def test_a_gap_is_told(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """If the journal no longer reaches back to `since`, a gap comes first, then the known changes."""
        for number in range(3):
            await kv.set("old", number)
        clock.advance(DAY)
        await kv.set("new", 0)
        await store.upkeep()
        gap, change = await collect(kv, 2, since=1)
        assert (gap.op, gap.key, gap.version, gap.at) == ("gap", "", 3, moment(clock.now()))
        assert (change.op, change.key, change.version) == ("set", "new", 4)
        assert [change.op for change in await collect(kv, 1, since=3)] == ["set"]

    async def test_a_version_of_another_store_is_a_gap(self, kv: KV) -> None:
        """A `since` beyond the head cannot be continued: a gap comes first, then all known changes."""
        await kv.set("a", 0)
        gap, change = await collect(kv, 2, since=50)
        assert (gap.op, change.op, change.version) == ("gap", "set", 1)

    async def test_closing_ends_every_watch(self, kv: KV, store: Store) -> None:
        """A watch ends when its store is closed."""
        await kv.set("a", 0)
        watch = cast("AsyncGenerator[Change]", kv.watch(since=0))
        async with asyncio.timeout(PATIENCE), aclosing(watch) as changes:
            assert (await anext(changes)).key == "a"
            following = asyncio.ensure_future(anext(changes, None))
            await kv.get("a")
            await store.aclose()
            assert await following is None


class MirrorRules(Fixtures):
    """The rules of mirror."""

    async def test_a_mirror_follows_its_prefix(self, kv: KV) -> None:
        """A mirror holds what was there when it was opened, then every change below its prefix."""
        await kv.set("c:kept", 1)
        await kv.set("c:gone", 2)
        await kv.set("other", 3)
        async with asyncio.timeout(PATIENCE), kv.mirror("c:") as mirror:
            assert dict(mirror) == {"c:kept": 1, "c:gone": 2}
            await kv.set("c:new", {"a": [1]})
            await kv.delete("c:gone")
            await kv.set("other", 4)
            last = await kv.incr("c:kept")
            await mirror.reached(last.version)
            assert dict(mirror) == {"c:kept": 2, "c:new": {"a": [1]}}
            assert mirror.entry("c:kept") == last
            assert (len(mirror), "c:gone" in mirror, mirror.get("c:gone", "none")) == (2, False, "none")
            assert mirror.stale_for < PATIENCE

    async def test_items_are_of_one_instant(self, kv: KV) -> None:
        """Items and values that were asked for stay as they were, whatever changes while they are read."""
        await kv.set("c:a", 1)
        await kv.set("c:b", 2)
        async with asyncio.timeout(PATIENCE), kv.mirror("c:") as mirror:
            items, values = mirror.items(), mirror.values()
            await kv.delete("c:a")
            last = await kv.set("c:b", 3)
            await mirror.reached(last.version)
            assert (dict(items), sorted(values)) == ({"c:a": 1, "c:b": 2}, [1, 2])
            assert (dict(mirror.items()), dict(mirror)) == ({"c:b": 3}, {"c:b": 3})

    async def test_a_mirror_of_everything(self, kv: KV) -> None:
        """Without a prefix a mirror has all keys of the namespace, however many there are."""
        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            assert dict(mirror) == {}
            await kv.set_many([{"key": f"k{number:04}", "value": number} for number in range(1_000)])
            last = await kv.set("more", 1)
            await mirror.reached(last.version)
            assert len(mirror) == 1_001
        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            assert (len(mirror), mirror["k0999"]) == (1_001, 999)

    async def test_changes_are_reported(self, kv: KV) -> None:
        """The callback gets each key with its new entry, None once it is gone; a key outside is not told."""
        told: list[tuple[str, Entry | None]] = []
        first = await kv.set("c:a", 1)
        async with (
            asyncio.timeout(PATIENCE),
            kv.mirror("c:", on_change=lambda key, entry: told.append((key, entry))) as mirror,
        ):
            assert told == []
            second = await kv.set("c:a", 2)
            await mirror.reached(second.version)
            await kv.set("other", 1)
            await kv.delete("c:a", expected_version=second.version)
            last = await kv.set("other", 2)
            await mirror.reached(last.version)
        assert first.version < second.version
        assert told == [("c:a", second), ("c:a", None)]

    async def test_a_mirror_shows_nothing_expired(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """An entry leaves the mirror at its deadline, before the expiry is recorded, and may come back."""
        await kv.set("k", 1, ttl=60)
        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            clock.advance(59.999)
            assert dict(mirror) == {"k": 1}
            clock.advance(0.001)
            assert (dict(mirror), len(mirror), mirror.entry("k")) == ({}, 0, None)
            await store.sweep()
            again = await kv.set("k", 2)
            await mirror.reached(again.version)
            assert dict(mirror) == {"k": 2}

    async def test_a_mirror_of_a_project(self, store: Store) -> None:
        """In a tenant's project a mirror has full keys, and finds an entry by its relative key as well."""
        kv = store.semantic("acme", "web")
        entry = await kv.set("config/colour", "red")
        async with asyncio.timeout(PATIENCE), kv.mirror("config/") as mirror:
            assert dict(mirror) == {entry.key: "red"}
            assert (mirror["config/colour"], mirror.entry("config/none")) == ("red", None)

    async def test_a_mirror_that_does_not_follow(self, kv: KV, store: Store) -> None:
        """A mirror can be read only while it follows: in its block, until the store closes."""
        mirror = kv.mirror("c:")
        with refusal(Unavailable, says="'c:'"):
            mirror.get("c:a")
        async with asyncio.timeout(PATIENCE), mirror:
            assert mirror.get("c:a") is None
        with refusal(Unavailable, says="not following"):
            assert mirror.stale_for
        async with asyncio.timeout(PATIENCE), mirror:
            waiting = asyncio.ensure_future(mirror.reached(2**60))
            await asyncio.sleep(0)
            await store.aclose()
            with refusal(Unavailable, says="not following"):
                await waiting
            with refusal(Unavailable, says="not following"):
                list(mirror)

    async def test_many_writers_and_one_mirror(self, kv: KV) -> None:
        """Under concurrent writes a mirror ends up with exactly what the store holds."""

        async def write(name: str) -> None:
            for number in range(12):
                await kv.set(f"{name}/{number % 4}", number)
                if number % 3 == 0:
                    await kv.delete(f"{name}/{number % 4}")

        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            await asyncio.gather(*(write(f"w{number}") for number in range(6)))
            last = await kv.set("last", 0)
            await mirror.reached(last.version)
            held = {entry.key: entry for entry in (await kv.list(values=True)).entries or ()}
            assert {key: mirror.entry(key) for key in mirror} == held

    async def test_a_prefix_that_is_no_prefix(self, kv: KV) -> None:
        """A mirror checks its prefix at once."""
        with refusal(ValidationError, field="prefix"):
            kv.mirror("\x00")
