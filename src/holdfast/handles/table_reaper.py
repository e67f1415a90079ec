"""The reaper that a program starts for its tables: it sweeps them until it is stopped.

Law: the reaper requests sweeps like any other caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from holdfast.errors import HoldfastError, TableNotFound, TtlNotConfigured

_log = logging.getLogger("holdfast.tables")


class Sweepable(Protocol):
    """The part of the tables handle that the reaper uses."""

    namespace: str

    async def list_tables(self) -> list[str]:
        """List the names of all tables."""
        ...

    async def sweep_expired_ttl(self, table: str) -> int:
        """Remove some expired items. Returns the number removed."""
        ...


class ReaperHandle:
    """A reaper that runs until it is stopped, or until the store is closed."""

    def __init__(self, task: asyncio.Task[None], stopping: asyncio.Event) -> None:
        self._task = task
        self._stopping = stopping

    async def stop(self) -> None:
        """Stop the reaper, and wait until a running sweep has ended."""
        self._stopping.set()
        await asyncio.wait([self._task])


async def reap(tables: Sweepable, interval: float, stopping: asyncio.Event) -> None:
    """Sweep every table until nothing is left, sleep, and repeat until stopped."""
    while not stopping.is_set():
        try:
            for table in await tables.list_tables():
                await _sweep_whole(tables, table, stopping)
        except HoldfastError as error:
            _log.error("sweeping the tables of %s failed: %s", tables.namespace, error.message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await stopping.wait()


async def _sweep_whole(tables: Sweepable, table: str, stopping: asyncio.Event) -> None:
    # A table without a ttl attribute has nothing to sweep, and neither has one that was dropped meanwhile.
    with contextlib.suppress(TtlNotConfigured, TableNotFound):
        while not stopping.is_set() and await tables.sweep_expired_ttl(table):
            pass
