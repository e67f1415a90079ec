"""Flags whose cache meets trouble."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import DatabaseError, Unavailable
from holdfast.testing.exact import refusal
from tests.unit.recipes.faults import Faulty, steps, until

if TYPE_CHECKING:
    import pytest

    from holdfast.clock import ManualClock
    from holdfast.engine import JournalPage, JournalQuery
    from holdfast.handles.kv import KV
    from holdfast.store import Store


async def test_a_value_of_another_type_is_logged(kv: KV, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wonders why a flag has its default finds the reason in the log, without the value."""
    await kv.set("flag/dark", "secret")
    assert await kv.flag("dark", default=False).get() is False
    assert "flag 'dark' of kv/trivia holds text; using its default" in caplog.text
    assert "secret" not in caplog.text


async def test_a_journal_that_does_not_reach_back(
    kv: KV, store: Store, engine: Faulty, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that was cut off for so long that the journal has a gap looks for itself."""
    journal = engine.journal

    async def cut_off(query: JournalQuery) -> JournalPage:
        if query.start == "flag/dark":
            raise Unavailable("the storage is away")
        return await journal(query)

    async with kv.flag("dark", 0).cached() as cached:
        monkeypatch.setattr(engine, "journal", cut_off)
        await kv.set("flag/dark", 1)
        clock.advance(86_400)
        await store.upkeep()
        monkeypatch.undo()
        await kv.set("other", 1)
        await until(lambda: cached.value == 1)


async def test_a_journal_that_fails(
    kv: KV, engine: Faulty, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache whose watch has failed for good says so, to its reader and to the log."""

    async def fail(query: object) -> JournalPage:
        raise DatabaseError("the journal can't be read")

    async with kv.flag("dark", 0).cached() as cached:
        monkeypatch.setattr(engine, "journal", fail)
        await kv.set("flag/dark", 1)
        await until(lambda: "stopped mirroring 'flag/dark': the journal can't be read" in caplog.text)
        await steps(5)
        with refusal(Unavailable, says="'dark'"):
            assert cached.value


async def test_a_cached_value_of_another_type_is_logged_once(
    kv: KV, caplog: pytest.LogCaptureFixture
) -> None:
    """A program may read a cached flag as often as it likes: the log has one line for each wrong entry."""
    await kv.set("flag/dark", "text")
    async with kv.flag("dark", 0).cached() as cached:
        assert [cached.value for _ in range(100)] == [0] * 100
        assert cached.stale_for >= 0
    assert caplog.text.count("holds text; using its default") == 1


async def test_cancelled_block_leaves_no_task(kv: KV) -> None:
    """The task of a cache ends with its block, even if the block is cancelled."""
    before = asyncio.all_tasks()

    async def follow() -> None:
        async with kv.flag("dark", 0).cached():
            await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await until(lambda: len(asyncio.all_tasks()) >= len(before) + 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert asyncio.all_tasks() == before
