"""The service and its client under conformance, through a real nats-server.

It stands on the reference engine, on SQLite and on PostgreSQL.

All rules run over the engine that takes the least time, and over the others those in which they and the
service meet. `./dev soak conformance` runs all rules.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.testing.conformance import Conformance, MakeStore
from holdfast.testing.conformance.batches import DeadlineRules, RequestRules
from holdfast.testing.conformance.journal import MirrorRules, WatchRules
from holdfast.testing.conformance.keys import VersionRules
from holdfast.testing.conformance.values import ValueRules
from tests.conformance.behind import OpenStorage, kept_at, kept_in_memory
from tests.conformance.database import empty
from tests.conformance.kept import OnOneLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.clock import Clock
    from holdfast.store import Store


class Ground:
    """A service that is started anew with every client, on one storage or on each node in turn.

    With `shared`, there is a service on each node, and they share the requests.
    """

    def __init__(self, url: str, *storages: OpenStorage, shared: bool = False) -> None:
        self._url = url
        self._storages = deque(storages)
        self._shared = shared
        self._service = contextlib.AsyncExitStack()

    async def make(self, clock: Clock) -> Store:
        """A client's store; whatever ran before has ended."""
        await self.end()
        self._storages.rotate()
        for number, open_storage in enumerate(self._storages, start=1):
            behind = await self._service.enter_async_context(open_storage(clock))
            if self._shared or number == len(self._storages):
                await self._serve(behind)
        # No test moves the clock by as much, which would end a call at the very deadline.
        store = holdfast.open(f"{self._url}?timeout=47", clock=clock, writer="embedded")
        await store.start()
        return store

    async def _serve(self, behind: Store) -> None:
        connection = Connection()
        await connection.reach(self._url)
        self._service.push_async_callback(connection.close)
        service = NatsService(behind, connection, Settings())
        await service.start()
        self._service.push_async_callback(service.stop)

    async def end(self) -> None:
        """Stop the service and close its store."""
        await self._service.aclose()


@contextlib.asynccontextmanager
async def ground(bus: str, *storages: OpenStorage, shared: bool = False) -> AsyncIterator[MakeStore]:
    """Makes stores of clients for the length of a block."""
    of = Ground(bus, *storages, shared=shared)
    yield of.make
    await of.end()


class TestRemote(Conformance):
    """A service on the reference engine."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, bus: str) -> AsyncIterator[MakeStore]:
        """The same rows each time."""
        async with ground(bus, kept_in_memory()) as make:
            yield make


@pytest.mark.unmeasured  # TestRemote and TestSqlite run the same lines
class TestRemoteOverSqlite(ValueRules, VersionRules, WatchRules, MirrorRules, RequestRules, DeadlineRules):
    """A service on one file, as far as the two meet."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, bus: str, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same file each time."""
        async with ground(bus, kept_at(tmp_path / "store.db")) as make:
            yield make


@pytest.mark.unmeasured  # TestRemote and TestPostgres run the same lines
@pytest.mark.asyncio(loop_scope="class")
class TestRemoteOverPostgres(OnOneLoop, WatchRules, MirrorRules, RequestRules, DeadlineRules):
    """A service on a PostgreSQL database, as far as the two meet."""

    scheme = "nats"

    @pytest_asyncio.fixture(loop_scope="class")
    async def make_store(self, bus: str, database: str) -> AsyncIterator[MakeStore]:
        """The same database each time, empty for each test."""
        await empty(database)
        async with ground(bus, kept_at(database)) as make:
            yield make
