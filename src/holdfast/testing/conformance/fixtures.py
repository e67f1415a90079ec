"""Fixtures for every conformance test: an empty store and a clock that moves on command.

Law: only fixtures live here, and all of them derive from `make_store`, which a subclass supplies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar, TypeAlias

import pytest

from holdfast.clock import Clock, ManualClock
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.store import Store

MakeStore: TypeAlias = Callable[[Clock], Awaitable[Store]]
"""Opens a store without a reaper on the storage of the current test."""
Reopen: TypeAlias = Callable[[], Awaitable[Store]]
"""Closes the store and opens another on the same storage."""

DAY = 86_400


class Fixtures:
    """Fixtures for the tests of every theme. A subclass supplies the fixture `make_store`.

    Attributes:
        scheme: The scheme of the URLs that the engine serves, as it is registered.
    """

    scheme: ClassVar[str]

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The store's time."""
        return ManualClock()

    @pytest.fixture
    async def opened(self, make_store: MakeStore, clock: ManualClock) -> AsyncIterator[Opened]:
        """The storage of this test, opened."""
        opened = Opened(make_store, clock, await make_store(clock))
        yield opened
        await opened.store.aclose()

    @pytest.fixture
    def store(self, opened: Opened) -> Store:
        """An empty store."""
        return opened.store

    @pytest.fixture
    def reopen(self, opened: Opened) -> Reopen:
        """Close the store and open another on the same storage."""
        return opened.again

    @pytest.fixture
    def kv(self, store: Store) -> KV:
        """The keys of a plugin that has written nothing yet."""
        return store.kv("trivia")

    @pytest.fixture
    def tables(self, store: Store) -> Tables:
        """The tables of a plugin that has none yet."""
        return store.tables("trivia")


class Opened:
    """A storage with one open store at a time."""

    def __init__(self, make_store: MakeStore, clock: Clock, store: Store) -> None:
        self._make_store = make_store
        self._clock = clock
        self.store: Store = store

    async def again(self) -> Store:
        """Close the open store and open the next."""
        await self.store.aclose()
        self.store = await self._make_store(self._clock)
        return self.store


async def assert_empty(store: Store) -> None:
    """Assert that a reopened store is empty, as it must be if its engine is not durable."""
    assert await store.namespaces() == []
    assert (await store.kv("trivia").list()).keys == []
    assert (await store.kv("trivia").changes()).changes == []
