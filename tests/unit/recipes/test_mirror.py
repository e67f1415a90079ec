"""Mirrors that meet trouble."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
import holdfast.handles.recipes.mirror as module
from holdfast.errors import DatabaseError, OutcomeUnknown, Unavailable
from holdfast.handles import kv as handles
from holdfast.pipeline import watch
from holdfast.testing.exact import refusal
from tests.unit.recipes.faults import Faulty, steps, until

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.engine import JournalPage, JournalQuery
    from holdfast.handles.kv import KV
    from holdfast.store import Store


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a mirror that is cut off look again at once."""
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0)
    monkeypatch.setattr(watch, "LOOK_AGAIN", 0.01)


def cut_off(engine: Faulty, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    """Let the journal of a prefix fail until the patch is undone."""
    journal = engine.journal

    async def away(query: JournalQuery) -> JournalPage:
        if query.start == prefix:
            raise Unavailable("the storage is away")
        return await journal(query)

    monkeypatch.setattr(engine, "journal", away)


async def test_mirror_misses_no_change_while_it_opens(kv: KV, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change between the reads that open a mirror, or right after them, is not missed."""
    listed = handles.listed

    async def set_around(*given: Any, **fields: Any) -> Any:
        await kv.set("c:a", 1)
        found = await listed(*given, **fields)
        await kv.set("c:b", 2)
        await kv.delete("c:old")
        return found

    await kv.set("c:old", 0)
    monkeypatch.setattr(module, "listed", set_around)
    async with kv.mirror("c:") as mirror:
        await until(lambda: dict(mirror) == {"c:a": 1, "c:b": 2})


async def test_mirror_reloads_after_the_journal_was_pruned(
    kv: KV, store: Store, engine: Faulty, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that was cut off until the journal was pruned loads everything and reports what differs."""
    told: list[tuple[str, object]] = []
    for key in ("c:same", "c:changed", "c:gone"):
        await kv.set(key, 1)
    async with kv.mirror(
        "c:", on_change=lambda key, entry: told.append((key, entry and entry.value))
    ) as mirror:
        cut_off(engine, monkeypatch, "c:")
        await kv.set("c:changed", 2)
        await kv.delete("c:gone")
        await kv.set("c:new", 3)
        clock.advance(86_400)
        await store.upkeep()
        assert dict(mirror) == {"c:same": 1, "c:changed": 1, "c:gone": 1}
        monkeypatch.undo()
        await until(lambda: dict(mirror) == {"c:same": 1, "c:changed": 2, "c:new": 3})
        assert sorted(told) == [("c:changed", 2), ("c:gone", None), ("c:new", 3)]
        await mirror.reached((await kv.set("c:after", 4)).version)
        assert mirror["c:after"] == 4


async def test_stale_for_grows_while_the_storage_is_away(
    kv: KV, engine: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that is cut off shows what it had and says for how long; it catches up afterwards."""
    await kv.set("c:a", 1)
    async with kv.mirror("c:") as mirror:
        cut_off(engine, monkeypatch, "c:")
        since = time.monotonic()
        await kv.set("c:a", 2)
        await until(lambda: mirror.stale_for > 0.1)
        assert (mirror["c:a"], mirror.stale_for >= time.monotonic() - since) == (1, True)
        monkeypatch.undo()
        await until(lambda: mirror.get("c:a") == 2 and mirror.stale_for < 0.1)


async def test_mirror_repeats_failed_reads(
    kv: KV, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mirror that can't read a changed entry tries again until it can."""
    async with kv.mirror("c:") as mirror:
        get_at = store.pipeline.get_at
        failures: list[Exception] = [Unavailable("the storage is away"), OutcomeUnknown("no answer")]

        async def fail(namespace: str, key: str) -> Any:
            if failures:
                raise failures.pop()
            return await get_at(namespace, key)

        monkeypatch.setattr(store.pipeline, "get_at", fail)
        await mirror.reached((await kv.set("c:a", 1)).version)
        assert mirror["c:a"] == 1
    assert caplog.text.count("the mirror of 'c:' is waiting for the storage") == 2


async def test_mirror_that_cannot_follow_raises(
    kv: KV, engine: Faulty, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mirror that can't follow any more says so, to its reader and to the log."""

    async def fail(query: object) -> JournalPage:
        raise DatabaseError("the journal can't be read")

    async with kv.mirror("c:") as mirror:
        monkeypatch.setattr(engine, "journal", fail)
        entry = await kv.set("c:a", 1)
        with refusal(Unavailable, says="'c:'"):
            await mirror.reached(entry.version)
        await steps(5)
        with refusal(Unavailable, says="'c:'"):
            assert mirror.get("c:a")
    assert "stopped mirroring 'c:': the journal can't be read" in caplog.text


async def test_failing_callback_is_logged(kv: KV, caplog: pytest.LogCaptureFixture) -> None:
    """An error in the callback is logged with the key, and the mirror goes on."""

    def fail(key: str, entry: object) -> None:
        raise LookupError(key)

    async with kv.mirror(on_change=fail) as mirror:
        await kv.set("a", 1)
        await mirror.reached((await kv.set("b", 2)).version)
        assert dict(mirror) == {"a": 1, "b": 2}
    assert "failed for 'a'" in caplog.text


async def test_mirror_leaves_out_unreadable_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A value that SQL has written and that can't be read is logged and left out; the rest is there."""
    path = tmp_path / "store.db"
    async with holdfast.open(path) as store:
        await store.kv("trivia").set_many([{"key": "good", "value": 1}, {"key": "bad", "value": 1}])
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE plugin_kv_storage SET value_json = '{' WHERE key = 'bad'")
    async with holdfast.open(path) as store, store.kv("trivia").mirror() as mirror:
        assert dict(mirror) == {"good": 1}
    assert "'bad'" in caplog.text


async def test_cancelled_block_leaves_no_task(kv: KV) -> None:
    """The tasks of a mirror end with its block, even if the block is cancelled."""
    before = asyncio.all_tasks()

    async def follow() -> None:
        async with kv.mirror():
            await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await until(lambda: len(asyncio.all_tasks()) >= len(before) + 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert asyncio.all_tasks() == before
