"""Following a journal when things go wrong: no hints, no storage, another storage.

What a watch yields in peace is tested with the engines; here the source is one that misbehaves.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast.pipeline.watch
from holdfast.clock import ManualClock
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import DatabaseError, Unavailable
from holdfast.pipeline.watch import Bell
from holdfast.store import Store
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from holdfast.engine import JournalPage, JournalQuery
    from holdfast.model import Change


class Engine(MemoryEngine):
    """The reference engine, whose journal can be out of reach, or that of another storage."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.epoch: str | None = None
        self.reads = 0
        self.looked = asyncio.Event()

    async def journal(self, query: JournalQuery) -> JournalPage:
        """A page of the journal, if all goes well."""
        self.reads += 1
        if self.reads == 3:
            self.looked.set()
        if self.failures:
            raise self.failures.pop(0)
        page = await super().journal(query)
        return page if self.epoch is None else msgspec.structs.replace(page, epoch=self.epoch)


@pytest.fixture
def engine() -> Engine:
    """Where the journal is."""
    return Engine()


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    """An open store."""
    async with Store(engine, clock=ManualClock(), reap=False) as store:
        yield store


def following(store: Store, **given: Any) -> AsyncGenerator[Change]:
    """A watch of a plugin's keys."""
    watch: Any = store.kv("a").watch(**given)
    return watch  # type: ignore[no-any-return]


async def test_change_during_work_wakes_the_watch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes while a watch handles the one before wakes it at once, and once."""
    monkeypatch.setattr(holdfast.pipeline.watch, "LOOK_AGAIN", 3600)
    bell = Bell(lambda: None)
    bell.ring()
    bell.ring()
    async with asyncio.timeout(60):
        await bell.heard()
    waiting = asyncio.create_task(bell.heard())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    bell.ring()
    async with asyncio.timeout(60):
        await waiting


async def test_watch_polls_for_changes_without_an_event(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change without an event is seen too, because a watch looks again after a while."""
    monkeypatch.setattr(holdfast.pipeline.watch, "LOOK_AGAIN", 0.001)
    async with asyncio.timeout(60), aclosing(following(store, since=0)) as changes:
        coming = asyncio.ensure_future(anext(changes))
        await engine.looked.wait()
        async with Store(engine, clock=ManualClock(), reap=False) as other:
            await other.kv("a").set("k", 1)
            assert (await coming).key == "k"


async def test_watch_waits_for_an_unavailable_storage(
    store: Store, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A storage that is away for a while interrupts nothing: the watch goes on where it was."""
    monkeypatch.setattr(holdfast.pipeline.watch, "LOOK_AGAIN", 0.001)
    kv = store.kv("a")
    await kv.set("before", 1)
    async with asyncio.timeout(60), aclosing(following(store, since=0)) as changes:
        assert (await anext(changes)).key == "before"
        engine.failures = [Unavailable("away"), Unavailable("still away")]
        await kv.set("after", 1)
        assert (await anext(changes)).key == "after"
    assert caplog.text.count("is waiting for the storage") == 2


async def test_watch_raises_permanent_errors(store: Store, engine: Engine) -> None:
    """An error that waiting does not cure is raised."""
    engine.failures = [DatabaseError("broken")]
    async with asyncio.timeout(60), aclosing(following(store, since=0)) as changes:
        with refusal(DatabaseError):
            await anext(changes)


async def test_replaced_storage_is_a_gap(store: Store, engine: Engine) -> None:
    """When the storage behind the store was replaced, a gap comes, then what is known."""
    kv = store.kv("a")
    await kv.set("a", 1)
    await kv.set("b", 1)
    async with asyncio.timeout(60), aclosing(following(store, since=0)) as changes:
        assert [(await anext(changes)).key for _ in range(2)] == ["a", "b"]
        engine.epoch = "another"
        told = [await anext(changes) for _ in range(3)]
        assert [(change.op, change.key) for change in told] == [("gap", ""), ("set", "a"), ("set", "b")]
        await kv.set("c", 1)
        assert (await anext(changes)).key == "c"


async def test_watch_of_a_closed_store_raises() -> None:
    """A watch of a store that is not open, or no longer open, raises an error instead of waiting for ever."""
    store = Store(Engine(), reap=False)
    for since in (None, 0):
        async with asyncio.timeout(60), aclosing(following(store, since=since)) as changes:
            with refusal(Unavailable, says="not open"):
                await anext(changes)


async def test_ended_watch_is_no_longer_notified(store: Store) -> None:
    """A watch that has ended is not notified any more."""
    await store.kv("a").set("k", 1)
    async with asyncio.timeout(60), aclosing(following(store, since=0)) as changes:
        await anext(changes)
        assert len(store.pipeline._bells["kv/a"]) == 1
    assert len(store.pipeline._bells["kv/a"]) == 0
    await store.kv("a").set("k", 2)


async def test_bell_wakes_one_wait_for_each_ring() -> None:
    """A ring wakes once, one that comes before anybody waits is not lost, and the last one is the end."""
    put_away: list[bool] = []
    bell = Bell(lambda: put_away.append(True))
    bell.ring()
    bell.ring()
    async with asyncio.timeout(60):
        await bell.heard()
        assert bell.closed is False
        bell.close()
        await bell.heard()
    bell.put_away()
    assert (bell.closed, put_away) == (True, [True])
