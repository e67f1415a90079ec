"""Passes every change of a store on to a listener: once, and in order within its namespace.

A commit of this process is passed on at once. If the storage is a file that other processes have open, they
commit changes too, which are read from the journal. The newest version that was passed on of each namespace
tells what is next: a commit that does not continue there waits until what came before it has been read, and
what was read already is not passed on again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.engine import Engine, JournalQuery, LocalFile
from holdfast.errors import HoldfastError
from holdfast.pipeline.pipeline import Pipeline
from holdfast.rows import Record

ASK_SECONDS: Final = 0.5
"""Seconds between two attempts to become the process that publishes, and to read what could not be read."""
PAGE: Final = 100
"""Number of records that are read and passed on before other tasks get a turn."""

_log = logging.getLogger("holdfast")


class ChangeFeed:
    """The changes of a store, for a listener that publishes them on a message bus.

    Of the processes that have a file open and use the same bus, one publishes the changes of all. Another one
    takes over when that one ends, from the changes of that moment on.

    Args:
        pipeline: The pipeline of an open store.
        listener: Called with records.
        bus: Returns the name of the bus.
    """

    def __init__(
        self, pipeline: Pipeline, listener: Callable[[list[Record]], None], bus: Callable[[], str]
    ) -> None:
        self._pipeline = pipeline
        self._listener = listener
        self._bus = bus
        self._heads: dict[str, int] = {}
        self._begun = False
        self._behind: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._stop_following: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to pass changes on. `stop` ends it."""
        engine = self._pipeline.require_engine()
        if not isinstance(engine, LocalFile) or not engine.capabilities.multi_process:
            self._pipeline.listen(self._listener)
            return
        self._take_over(engine)
        self._task = asyncio.create_task(self._run(engine, engine), name="holdfast change feed")

    async def stop(self) -> None:
        """Pass on what has been committed, and end."""
        self._pipeline.unlisten(self._listener)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            with contextlib.suppress(HoldfastError):
                await self._catch_up(self._pipeline.require_engine())
            self._give_over()

    async def _run(self, engine: Engine, file: LocalFile) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            self._take_over(file)
            try:
                await self._catch_up(engine)
            except HoldfastError as error:
                _log.warning("changes of other processes can't be read now: %s", error.message)

    def _take_over(self, file: LocalFile) -> None:
        """Begin to publish if no other process does, and end if one does."""
        if file.publishes(self._bus()):
            if self._stop_following is None:
                self._pipeline.listen(self._take_commit)
                self._stop_following = file.follow(self._take_heads)
        else:
            self._give_over()

    def _give_over(self) -> None:
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None
        self._pipeline.unlisten(self._take_commit)
        self._heads, self._begun = {}, False
        self._behind.clear()

    def _take_heads(self, heads: Sequence[tuple[str, int]]) -> None:
        """Note what other processes may have changed. The first time, note where to begin."""
        known = self._heads
        ahead = {name: head for name, head in heads if head > known.get(name, 0)}
        if not self._begun:
            known.update(ahead)
            self._begun = True
        elif ahead:
            self._behind.update(dict.fromkeys(ahead))
            self._wake.set()

    def _take_commit(self, records: list[Record]) -> None:
        """Pass on what continues after what was passed on, and have the rest read from the journal."""
        heads = self._heads
        passed: list[Record] = []
        for record in records:
            name, version = record.namespace, record.version
            head = heads.get(name, 0)
            if version == head + 1 or (version > head and not self._begun):
                heads[name] = version
                passed.append(record)
            elif version > head:
                self._behind[name] = None
                self._wake.set()
        if passed:
            self._listener(passed)

    async def _catch_up(self, engine: Engine) -> None:
        while self._behind:
            name, _ = self._behind.popitem()  # a commit during the read puts it back
            try:
                await self._read(engine, name)
            except BaseException:
                self._behind[name] = None
                raise

    async def _read(self, engine: Engine, name: str) -> None:
        """Pass on what the journal of a namespace has after what was passed on."""
        complete = False
        while not complete and self._begun:
            heads = self._heads
            since = heads.get(name, 0)
            page = await engine.journal(JournalQuery(namespace=name, since=since, limit=PAGE))
            complete = page.complete
            if page.head < since:  # the store was replaced: versions begin anew
                heads[name] = page.head
                return
            head = heads.get(name, 0)  # commits may have been passed on meanwhile
            records = [record for record in page.records if record.version > head]
            # A version may have no record.
            heads[name] = max(head, page.head if complete else page.records[-1].version)
            if records:
                self._listener(records)
