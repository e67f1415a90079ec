"""Following the journal as it grows: watch.

Law: a watch that does not yield in time fails the test by its timeout. No test waits for a fixed time.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from holdfast.clock import moment
from holdfast.testing.conformance.fixtures import DAY, Fixtures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.model import Change
    from holdfast.store import Store

PATIENCE = 20.0


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
