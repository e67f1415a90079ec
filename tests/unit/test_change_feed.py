"""The feed of a file's changes: every record once and in order, whichever process wrote it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.errors import DatabaseError
from holdfast.pipeline.change_feed import ChangeFeed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.engine import JournalPage, JournalQuery
    from holdfast.rows import Record
    from holdfast.store import Store

PATIENCE = 60


class Published:
    """The records that a feed has passed on."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def take(self, records: list[Record]) -> None:
        """Keep the keys of records."""
        self.keys += [record.key for record in records]

    async def until(self, count: int) -> list[str]:
        """Wait for so many records."""
        await eventually(lambda: len(self.keys) >= count)
        return self.keys


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what changes it rings no bell
            await asyncio.sleep(0.01)


async def begin(feed: ChangeFeed) -> None:
    """Start a feed, and wait until it knows where to begin."""
    feed.start()
    await eventually(lambda: feed._begun)


def interrupt(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[], Any] | None = None,
    after: Callable[[], Any] | None = None,
) -> None:
    """Let something happen once, before or after the feed reads a page of the journal."""
    engine = store.pipeline.engine
    journal, first, then = engine.journal, iter([before]), iter([after])

    async def read(query: JournalQuery) -> JournalPage:
        if (call := next(first, None)) is not None:
            await call()
        page = await journal(query)
        if (call := next(then, None)) is not None:
            await call()
        return page

    monkeypatch.setattr(engine, "journal", read)


async def test_a_write_during_a_look_at_the_journal_is_published_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this process commits while it reads another one's changes is neither lost nor published twice."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as own, holdfast.open(path, reap=False) as other:
        await own.kv("p").set("first", 0)
        published = Published()
        feed = ChangeFeed(own.pipeline, published.take, lambda: "bus")
        await begin(feed)
        await own.kv("p").set("begun", 0)
        assert await published.until(1) == ["begun"]
        interrupt(own, monkeypatch, after=lambda: own.kv("p").set("own", 2))
        await other.kv("p").set("other", 1)
        assert await published.until(3) == ["begun", "other", "own"]
        interrupt(own, monkeypatch, before=lambda: own.kv("p").set("own again", 3))
        await other.kv("q").set("elsewhere", 1)
        feed._take_heads(
            [("kv/p", 99)]
        )  # another process has seen a commit that this one has not told of yet
        await published.until(5)
        await own.kv("p").set("last", 3)
        await published.until(6)
        await feed.stop()
        keys = [key for key in published.keys if key != "elsewhere"]
        assert keys == ["begun", "other", "own", "own again", "last"]


async def test_changes_that_could_not_be_read_are_published_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed look at the journal loses no change."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as own, holdfast.open(path, reap=False) as other:
        await own.kv("p").set("first", 0)
        published = Published()
        feed = ChangeFeed(own.pipeline, published.take, lambda: "bus")
        await begin(feed)
        await own.kv("p").set("begun", 0)
        await published.until(1)

        async def fail() -> None:
            raise DatabaseError("the disk hiccups")

        interrupt(own, monkeypatch, after=fail)
        await other.kv("p").set("other", 1)
        assert await published.until(2) == ["begun", "other"]
        await feed.stop()
