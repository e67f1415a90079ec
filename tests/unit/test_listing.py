"""Listing by envelope, as far as it does not depend on an engine: how much a page looks at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import holdfast
from holdfast.engines.memory import MemoryEngine
from holdfast.pipeline.listing import STEP, STEPS
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.engine import Scan, Scanned


class Counted(MemoryEngine):
    """An engine that counts the rows it has shown."""

    shown = 0

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Count, then give."""
        found = await super().scan(query, now)
        self.shown += len(found.keys)
        return found


class Halting(MemoryEngine):
    """An engine whose walks stop behind their first part until they are told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Wait, but for the first part."""
        if query.after is not None:
            self.begun.set()
            await self.go_on.wait()
        return await super().scan(query, now)


async def fill(kv: holdfast.KV, number: int) -> None:
    """Put so many entries that no filter of these tests wants."""
    for start in range(0, number, 1000):
        count = min(1000, number - start)
        await kv.set_many([{"key": f"{start + at:05}", "value": 0} for at in range(count)])


async def test_the_work_of_a_page_is_bounded() -> None:
    """However many entries there are, a page looks at 5,000 of them and leaves the rest to the next."""
    engine = Counted()
    async with Store(engine, reap=False) as store:
        kv = store.kv("trivia")
        await fill(kv, STEP * STEPS + 10)
        await kv.set("zebra", 0, semantics={"purpose": "lock"})
        page = await kv.list(purpose="lock")
        assert (page.keys, page.truncated, engine.shown) == ([], True, STEP * STEPS)
        last = await kv.list(purpose="lock", cursor=page.cursor)
        assert (last.keys, last.truncated, engine.shown) == (["zebra"], False, STEP * STEPS + 11)


async def test_a_listing_that_ends_where_the_work_ends() -> None:
    """A namespace that fills the work of a page exactly has no page after it."""
    async with Store(MemoryEngine(), reap=False) as store:
        kv = store.kv("trivia")
        await fill(kv, STEP * STEPS)
        page = await kv.list(purpose="lock")
        assert (page.keys, page.truncated, page.cursor) == ([], False, None)


async def test_a_listing_does_not_see_what_comes_after_it() -> None:
    """A write that was handed over after the listing is not in it, however many parts that has."""
    engine = Halting()
    async with Store(engine, reap=False) as store:
        kv = store.kv("trivia")
        await fill(kv, STEP + 1)
        listing = asyncio.create_task(kv.list(purpose="lock"))
        await engine.begun.wait()
        writing = asyncio.create_task(kv.set("zebra", 0, semantics={"purpose": "lock"}))
        await asyncio.sleep(0)
        engine.go_on.set()
        assert (await listing).keys == []
        assert (await writing).key == "zebra"
        assert (await kv.list(purpose="lock")).keys == ["zebra"]
