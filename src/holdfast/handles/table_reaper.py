"""The reaper that a program starts for its tables: it sweeps them until it is stopped.

Law: it asks for sweeps like any other caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from holdfast.errors import HoldfastError, TableNotFound, TtlNotConfigured

_log = logging.getLogger("holdfast.tables")


class Sweepable(Protocol):
    """What the reaper needs of the handle on tables."""

    namespace: str

    async def list_tables(self) -> list[str]:
        """The names of all tables."""
        ...

    async def sweep_expired_ttl(self, table: str) -> int:
        """Remove some items that have expired; how many that was."""
        ...


class ReaperHandle:
    """A reaper that runs until it is stopped, or until the store is closed."""

    def __init__(self, task: asyncio.Task[None], stopping: asyncio.Event) -> None:
        self._task = task
        self._stopping = stopping

    async def stop(self) -> None:
        """Stop the reaper, and wait until a sweep that is under way has ended."""
        self._stopping.set()
        await asyncio.wait([self._task])


async def reap(tables: Sweepable, interval: float, stopping: asyncio.Event) -> None:
    """Sweep every table until nothing is left, sleep, and so on, until it is to stop."""
    while not stopping.is_set():
        try:
            for table in await tables.list_tables():
                await _sweep_whole(tables, table, stopping)
        except HoldfastError as error:
            _log.error("sweeping the tables of %s failed: %s", tables.namespace, error.message)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), interval)


async def _sweep_whole(tables: Sweepable, table: str, stopping: asyncio.Event) -> None:
    # One without a ttl attribute has nothing to sweep, and one that was dropped meanwhile neither.
    with contextlib.suppress(TtlNotConfigured, TableNotFound):
        while not stopping.is_set() and await tables.sweep_expired_ttl(table):
            pass
