"""Blobs of 16 MB beside a plain SQLite table of parts: the least that keeps bytes in a database.

Law: both sides are as durable, cut into the same parts, and run in this process on this disk. What was
replaced is removed between the rounds on both sides.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.book import HOLDFAST
from bench.measure import closed_loop
from bench.over_nats import told, turned
from bench.sides import OWN_DURABILITY
from holdfast.blobs.manifest import GRACE, PART_BYTES
from holdfast.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.run import Run

MEGABYTES: Final = 16
DATA: Final = os.urandom(MEGABYTES * 1024 * 1024)
PLAIN: Final = "sqlite3"
AT_ONCE: Final = 16
"""Number of parts in a commit of the plain table."""


class PlainParts:
    """A table of parts and nothing else."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE parts (blob INTEGER, number INTEGER, data BLOB, UNIQUE (blob, number))"
        )
        self._newest = 0

    def put(self) -> None:
        """Store the parts of a new blob, several in a commit."""
        parts = [DATA[start : start + PART_BYTES] for start in range(0, len(DATA), PART_BYTES)]
        blob = self._newest + 1
        for start in range(0, len(parts), AT_ONCE):
            self._connection.execute("BEGIN IMMEDIATE")
            some = enumerate(parts[start : start + AT_ONCE], start)
            self._connection.executemany(
                "INSERT INTO parts VALUES (?, ?, ?)", [(blob, *part) for part in some]
            )
            self._connection.execute("COMMIT")
        self._newest = blob

    def get(self) -> None:
        """Read the parts of the newest blob."""
        found = self._connection.execute(
            "SELECT data FROM parts WHERE blob = ? ORDER BY number", [self._newest]
        )
        assert sum(len(data) for (data,) in found) == len(DATA)

    def tidy(self) -> None:
        """Remove all blobs but the newest."""
        self._connection.execute("DELETE FROM parts WHERE blob < ?", [self._newest])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


async def blobs(run: Run) -> None:
    """Megabytes a second of putting and getting 16 MB, one after the other, beside a plain table of parts."""
    run.book.durability |= {HOLDFAST: OWN_DURABILITY[HOLDFAST], PLAIN: "SQLite, WAL, synchronous=FULL"}
    clock = ManualClock()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        plain = stack.enter_context(contextlib.closing(PlainParts(folder / "plain.db")))
        async with holdfast.open(folder / "store.db", reap=False, clock=clock) as store:
            handle = store.blobs("bench")

            async def get() -> None:
                reader = await handle.get("blob")
                assert reader is not None
                assert sum([len(piece) async for piece in reader]) == len(DATA)

            sides: dict[str, dict[str, Callable[[int], Awaitable[object]]]] = {
                "blobs.put.megabytes": {
                    HOLDFAST: lambda number: handle.put("blob", DATA),
                    PLAIN: lambda number: asyncio.to_thread(plain.put),
                },
                "blobs.get.megabytes": {
                    HOLDFAST: lambda number: get(),
                    PLAIN: lambda number: asyncio.to_thread(plain.get),
                },
            }
            for number in run.rounds():
                for scenario, calls in sides.items():
                    for side in turned(list(calls), number):
                        window = await closed_loop(calls[side], in_flight=1, seconds=run.seconds)
                        told(run.book, window, scenario, side)
                        run.book.add(scenario, side, window.per_second * MEGABYTES, unit="/s")
                clock.advance(GRACE)
                await store.purge("blob/bench")
                plain.tidy()
