"""The stores that the machine drives.

A target gives a store on empty storage and opens the same storage again; it knows nothing of steps.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol

import holdfast
from holdfast.testing import AUDIT_KEY
from tests.conformance.database import empty

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import Clock
    from holdfast.store import Store


class Target(Protocol):
    """A kind of storage."""

    async def fresh(self, clock: Clock) -> Store:
        """A store on empty storage."""
        ...

    async def again(self, store: Store, clock: Clock) -> Store:
        """The store after the storage has been opened again, if that keeps anything."""
        ...


class Memory:
    """The reference engine, which can't be opened again."""

    async def fresh(self, clock: Clock) -> Store:
        """See `Target.fresh`."""
        return await _opened("memory://", clock)

    async def again(self, store: Store, clock: Clock) -> Store:
        """Nothing would be left: it stays open."""
        return store


class Sqlite:
    """A file for each run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._files = (folder / f"{number}.db" for number in itertools.count())
        self._file = next(self._files)

    async def fresh(self, clock: Clock) -> Store:
        """See `Target.fresh`."""
        self._file = next(self._files)
        return await _opened(self._file, clock)

    async def again(self, store: Store, clock: Clock) -> Store:
        """See `Target.again`."""
        await store.aclose()
        return await _opened(self._file, clock)


class Postgres:
    """One database, emptied for each run."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def fresh(self, clock: Clock) -> Store:
        """See `Target.fresh`."""
        await empty(self._url)
        return await _opened(self._url, clock)

    async def again(self, store: Store, clock: Clock) -> Store:
        """See `Target.again`."""
        await store.aclose()
        return await _opened(self._url, clock)


async def _opened(url: str | Path, clock: Clock) -> Store:
    store = holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY)
    await store.start()
    return store
