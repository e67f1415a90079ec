"""Fixtures for every conformance test, and one call of every verb.

All fixtures derive from `make_store`, which a subclass supplies. A rule for all verbs is not tested on a verb
that is missing from the calls here, so every verb of the handle is here once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, TypeAlias

import pytest

from holdfast.clock import Clock, ManualClock
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.store import Store

MakeStore: TypeAlias = Callable[[Clock], Awaitable[Store]]
"""Opens a store without a reaper on the storage of the current test."""
Reopen: TypeAlias = Callable[[], Awaitable[Store | None]]
"""Closes the store and opens another on the same storage. None if that keeps nothing, as its engine is not
durable."""

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
        """Close the store and open another on the same storage, if it keeps anything."""
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

    async def again(self) -> Store | None:
        """Close the open store and open the next. If that is not durable, assert that it is empty."""
        await self.store.aclose()
        self.store = store = await self._make_store(self._clock)
        if store.capabilities.durable:
            return store
        assert await store.namespaces() == []
        assert (await store.kv("trivia").list()).keys == []
        assert (await store.kv("trivia").changes()).changes == []
        assert await store.tables("trivia").list_tables() == []
        assert (await store.blobs("trivia").list()).blobs == []
        return None


def on_key(kv: KV) -> dict[str, Callable[[Any], Awaitable[object]]]:
    """Return every verb that takes one key, as a call with only that key."""
    return {
        "set": lambda key: kv.set(key, 1),
        "get": kv.get,
        "exists": kv.exists,
        "delete": kv.delete,
        "incr": kv.incr,
        "get_ttl": kv.get_ttl,
        "set_ttl": lambda key: kv.set_ttl(key, 60),
        "touch": lambda key: kv.touch(key, 60),
        "remove_ttl": kv.remove_ttl,
        "history": kv.history,
        "restore": kv.restore,
        "batch, a write": lambda key: kv.batch(writes=[{"key": key, "value": 1}]),
        "batch, a delete": lambda key: kv.batch(writes=[{"key": key, "delete": True}]),
        "batch, an incr": lambda key: kv.batch(writes=[{"key": key, "incr": 1}]),
        "batch, a check": lambda key: kv.batch(checks=[{"key": key, "version": 0}], writes=[]),
    }


def conditional(kv: KV, key: str) -> dict[str, Callable[..., Awaitable[object]]]:
    """Return every verb that takes an expected version, as a call with keyword arguments."""
    return {
        "set": lambda **given: kv.set(key, "new", **given),
        "delete": lambda **given: kv.delete(key, **given),
        "incr": lambda **given: kv.incr(key, **given),
        "set_ttl": lambda **given: kv.set_ttl(key, 60, **given),
        "touch": lambda **given: kv.touch(key, 60, **given),
        "remove_ttl": lambda **given: kv.remove_ttl(key, **given),
        "restore": lambda **given: kv.restore(key, **given),
    }


def writing(kv: KV, key: str) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return every verb that writes, as a call with only provenance, such as `request_id` and `timeout`."""
    return {
        **conditional(kv, key),
        "append": lambda **given: kv.append(key, "new", **given),
        "set_many": lambda **given: kv.set_many([{"key": key, "value": "new"}], **given),
        "delete_many": lambda **given: kv.delete_many([key], **given),
        "batch": lambda **given: kv.batch(writes=[{"key": key, "value": "new"}], **given),
    }
