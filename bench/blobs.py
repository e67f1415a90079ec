"""Blobs of 16 MB beside a plain SQLite table of parts: the least that keeps bytes in a database.

Copying through the table is a put followed by a get. Reading without looking at the bytes takes a third of
the time that SHA-256 takes to verify them, so a get is held to a table whose reader verifies its parts too;
its ratio to the bare table is shown beside.

All sides are as durable, cut into the same parts, and run in this process on this disk. What was
replaced is removed between the rounds on all sides.
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
from bench.blob_doors import doors
from bench.book import HOLDFAST
from bench.measure import closed_loop
from bench.over_nats import told, turned
from bench.sides import OWN_DURABILITY
from holdfast.blobs.manifest import GRACE, PART_BYTES, checksum_of
from holdfast.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.run import Run
    from holdfast import Blobs

MEGABYTES: Final = 16
DATA: Final = os.urandom(MEGABYTES * 1024 * 1024)
PLAIN: Final = "sqlite3"
VERIFIED: Final = "sqlite3 + sha256"
AT_ONCE: Final = 16
"""Number of parts in a commit of the plain table."""


class PlainParts:
    """A table of parts and nothing else, or also with their checksums.

    Args:
        path: The file.
        verified: Whether checksums are stored, and compared when the parts are read.
    """

    def __init__(self, path: Path, *, verified: bool = False) -> None:
        self._verified = verified
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE parts "
            "(blob INTEGER, number INTEGER, checksum TEXT, data BLOB, UNIQUE (blob, number))"
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
                "INSERT INTO parts VALUES (?, ?, ?, ?)",
                [(blob, number, self._checksum(part), part) for number, part in some],
            )
            self._connection.execute("COMMIT")
        self._newest = blob

    def get(self) -> None:
        """Read the parts of the newest blob."""
        found = self._connection.execute(
            "SELECT checksum, data FROM parts WHERE blob = ? ORDER BY number", [self._newest]
        )
        size = 0
        for checksum, data in found:
            assert checksum == self._checksum(data)
            size += len(data)
        assert size == len(DATA)

    def _checksum(self, data: bytes) -> str | None:
        return checksum_of(data) if self._verified else None

    def tidy(self) -> None:
        """Remove all blobs but the newest."""
        self._connection.execute("DELETE FROM parts WHERE blob < ?", [self._newest])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


async def blobs(run: Run) -> None:
    """Megabytes a second of 16 MB, one after the other: embedded, then through every door beside S3."""
    await _embedded(run)
    await doors(run, DATA)


async def _embedded(run: Run) -> None:
    """Put, get, and both in turn, in this process."""
    table = "SQLite, WAL, synchronous=FULL"
    run.book.durability |= {HOLDFAST: OWN_DURABILITY[HOLDFAST], PLAIN: table, VERIFIED: table}
    clock = ManualClock()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        plain = stack.enter_context(contextlib.closing(PlainParts(folder / "plain.db")))
        verified = stack.enter_context(contextlib.closing(PlainParts(folder / "verified.db", verified=True)))
        async with holdfast.open(folder / "store.db", reap=False, clock=clock) as store:
            handle = store.blobs("bench")
            sides: dict[str, Handle | Table] = {
                HOLDFAST: Handle(handle),
                PLAIN: Table(plain),
                VERIFIED: Table(verified),
            }
            for number in run.rounds():
                for verb in ("put", "get", "copy"):
                    await _measured(run, verb, sides, number)
                clock.advance(GRACE)
                await store.purge("blob/bench")
                for parts in (plain, verified):
                    parts.tidy()


async def _measured(run: Run, verb: str, sides: dict[str, Handle | Table], number: int) -> None:
    """Measure a verb on all sides in turn."""
    scenario = f"blobs.{verb}.megabytes"
    for side in turned(list(sides), number):
        call: Callable[[int], Awaitable[object]] = getattr(sides[side], verb)
        window = await closed_loop(call, in_flight=1, seconds=run.seconds)
        told(run.book, window, scenario, side)
        run.book.add(scenario, side, window.per_second * MEGABYTES, unit="/s")


class Handle:
    """The blobs of a store as a side."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def put(self, number: int) -> None:
        """Put the blob."""
        await self._blobs.put("blob", DATA)

    async def get(self, number: int) -> None:
        """Read the blob."""
        reader = await self._blobs.get("blob")
        assert reader is not None
        assert sum([len(piece) async for piece in reader]) == len(DATA)

    async def copy(self, number: int) -> None:
        """Put the blob and read it."""
        await self.put(number)
        await self.get(number)


class Table:
    """A table of parts as a side, used from a thread."""

    def __init__(self, parts: PlainParts) -> None:
        self._parts = parts

    async def put(self, number: int) -> None:
        """Store the parts."""
        await asyncio.to_thread(self._parts.put)

    async def get(self, number: int) -> None:
        """Read the parts."""
        await asyncio.to_thread(self._parts.get)

    async def copy(self, number: int) -> None:
        """Store the parts and read them."""
        await self.put(number)
        await self.get(number)
