"""Reading the journal forwards: `changes` once, `watch` continuously.

The journal is the truth and events are hints. A watch that is woken too often, too late or not at all still
yields every change once and in order, because it polls every second.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from holdfast import rules, seams
from holdfast.clock import moment
from holdfast.commands import ReadChanges, Records, Result
from holdfast.engine import JournalPage, JournalQuery, successor
from holdfast.errors import Transient
from holdfast.model import Change, Changes
from holdfast.pace import in_turns
from holdfast.rows import Record
from holdfast.stored import change_of

LOOK_AGAIN: Final = 1.0
"""Seconds without a hint after which a watch polls."""
FIRST_LOOK: Final = 0.01
"""The same for a watch in a hurry that gets no hints of what others change."""
SLOWER: Final = 1.1
"""Factor by which its pauses grow: it is late by a tenth of the time that it has waited, and after ten
seconds and fifty reads it reads as rarely as other watches."""
RECORD_BYTES: Final = 256
"""Bytes of a reply that a record counts for besides its key and its detail."""
MOST_RECORDS: Final = rules.MAX_TRANSFER_BYTES // RECORD_BYTES + 1
"""Number of records to read for a reply at the most: one more than can fit. Others would be made and dropped
again, which took 5 ms of the loop for 10,000 of them."""

_log = logging.getLogger("holdfast.watch")


class Journals(Protocol):
    """A source of journals."""

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Read records of a journal."""
        ...


class WatchedStore(Protocol):
    """The parts of a store that a watch uses."""

    def call(self, command: ReadChanges) -> Awaitable[Result]:
        """Answer a command."""
        ...

    def bell(self, namespace: str) -> Bell:
        """Return a bell that rings when something may have changed in a namespace."""
        ...

    def now(self) -> int:
        """Return the store's time."""
        ...


class Bell:
    """A bell for one watch. `closed` is set once it has rung for the last time.

    A deaf one rings for the changes of this process alone.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self.closed: bool = False
        self.deaf: bool = False
        self._pause = math.inf
        self._rung = asyncio.Event()
        self._forget = forget

    def ring(self) -> None:
        """Signal that there may be changes."""
        self._rung.set()

    def close(self) -> None:
        """Signal that no more changes will come."""
        self.closed = True
        self._rung.set()

    def hurry(self) -> None:
        """Make the watch look now, and often for a while, if it gets no hints of what others change."""
        if self.deaf:
            self._pause = FIRST_LOOK
            self._rung.set()

    def put_away(self) -> None:
        """Unregister the bell."""
        self._forget()

    async def heard(self) -> None:
        """Wait for the next ring, or for `LOOK_AGAIN` seconds, or less after `hurry`."""
        pause = min(self._pause, LOOK_AGAIN)
        try:
            async with asyncio.timeout(pause):
                await self._rung.wait()
        except TimeoutError:
            self._pause = max(self._pause, pause * SLOWER)
            return
        self._rung.clear()


async def records_after(
    source: Journals, namespace: str, prefix: str, since: int, limit: int, *, max_bytes: int | None = None
) -> Records:
    """Read the records of a page of changes.

    `max_bytes` limits the bytes of details that are read, where they may be large.

    A `since` that is older than the journal, or ahead of it, is a gap: the page then begins with the oldest
    known record.
    """
    query = JournalQuery(
        namespace=namespace,
        since=since,
        start=prefix,
        stop=successor(prefix),
        limit=min(limit, MOST_RECORDS),
        max_bytes=max_bytes,
    )
    page = await source.journal(query)
    gap = since < page.floor or since > page.head
    if since > page.head:
        page = await source.journal(replace(query, since=page.floor))
    records = _fitting(page.records)
    complete = page.complete and len(records) == len(page.records)
    return Records(
        records,
        next=page.head if complete else records[-1].version,
        gap=gap,
        floor=page.floor,
        head=page.head,
        epoch=page.epoch,
    )


async def changes_in(page: Records) -> Changes:
    """Return a page of records as callers see it."""
    return Changes(
        changes=await in_turns(change_of, page.records), next=page.next, gap=page.gap, oldest=page.oldest
    )


class Step(NamedTuple):
    """A page of changes, and the machine's time before which nothing else had happened, if it is known."""

    changes: Changes
    complete_at: float | None


async def watch(
    source: WatchedStore, namespace: str, prefix: str, since: int | None, *, bell: Bell | None = None
) -> AsyncGenerator[Change, None]:
    """Yield changes as they come, until the store is closed."""
    async with aclosing(follow(source, namespace, prefix, since, bell=bell)) as steps:
        async for page, _ in steps:
            if page.oldest is not None:
                yield Change(op="gap", key="", version=page.oldest - 1, at=moment(source.now()))
            for change in page.changes:
                yield change


async def follow(
    source: WatchedStore, namespace: str, prefix: str, since: int | None, *, bell: Bell | None = None
) -> AsyncGenerator[Step, None]:
    """Yield each page of changes that is read, also an empty one, until the store is closed.

    A bell that is given is put away at the end.
    """
    bell = source.bell(namespace) if bell is None else bell
    epoch: str | None = None
    try:
        if since is None:
            start = await head_of(source, namespace)
            since, epoch = start.head, start.epoch
        while not bell.closed:
            started = seams.monotonic()
            try:
                page = await _read(source, namespace, prefix, since, rules.DEFAULT_LIMIT)
                changes = await changes_in(page)
            except Transient as error:
                _log.warning("watch of %s is waiting for the storage: %s", namespace, error.message)
                await bell.heard()
                continue
            if epoch not in (None, page.epoch):
                changes = Changes(changes=[], next=page.floor, gap=True, oldest=page.floor + 1)
            epoch = page.epoch
            yield Step(changes, started if changes.next == page.head else None)
            since = changes.next
            if not changes.changes and not changes.gap:
                await bell.heard()
    finally:
        bell.put_away()


async def head_of(source: WatchedStore, namespace: str) -> Records:
    """Read as little of a journal as has its bounds: the last version given, and the epoch."""
    return await _read(source, namespace, "", 0, 1)


async def _read(source: WatchedStore, namespace: str, prefix: str, since: int, limit: int) -> Records:
    command = ReadChanges(namespace=namespace, since=since, prefix=prefix, limit=limit, watching=True)
    page = await source.call(command)
    assert isinstance(page, Records)
    return page


def _fitting(records: Sequence[Record]) -> Sequence[Record]:
    """Return as many of the records as one reply may hold."""
    room = rules.MAX_TRANSFER_BYTES
    for position, record in enumerate(records):
        room -= len(record.key.encode()) + len((record.detail or "").encode()) + RECORD_BYTES
        if room < 0 and position > 0:
            return records[:position]
    return records
