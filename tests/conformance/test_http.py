"""The service and its client over HTTP under conformance, over the reference engine, SQLite and PostgreSQL.

All rules run over the engine that takes the least time, and over the others those in which they and the
service meet. `./dev soak conformance` runs all rules.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.http.api import Api
from holdfast.edges.http.app import Door, Health, application
from holdfast.edges.http.guard import TokenGuard
from holdfast.edges.http.server import http_server
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.testing.conformance import Conformance, MakeStore
from holdfast.testing.conformance.batches import DeadlineRules, RequestRules
from holdfast.testing.conformance.journal import WatchRules
from holdfast.testing.conformance.values import ValueRules
from tests.conformance.behind import OpenStorage, kept_at, kept_in_memory
from tests.conformance.database import empty
from tests.conformance.kept import OnOneLoop
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.clock import Clock
    from holdfast.store import Store


class Ground:
    """A service on one storage that is started anew with every client."""

    def __init__(self, bus: str, open_storage: OpenStorage) -> None:
        self._bus = bus
        self._open = open_storage
        self._service = contextlib.AsyncExitStack()

    async def make(self, clock: Clock) -> Store:
        """A client's store; whatever ran before has ended."""
        await self.end()
        enter = self._service.enter_async_context
        behind = await enter(self._open(clock))
        connection = Connection()
        await connection.reach(self._bus)
        self._service.push_async_callback(connection.close)
        service = NatsService(behind, connection, Settings(events=False))
        await service.start()
        self._service.push_async_callback(service.stop)
        api = Api(TokenGuard(behind.tokens(), open_mode=True), behind)
        api.service = service.requests
        health = application(Health(behind), Metrics("holdfast", behind))
        port = free_port()
        await enter(http_server(Door(health, api=api), host="127.0.0.1", port=port))
        # No test moves the clock by as much, which would end a call at the very deadline.
        store = holdfast.open(f"http://127.0.0.1:{port}?timeout=47", clock=clock, writer="embedded")
        await store.start()
        return store

    async def end(self) -> None:
        """Stop the service and close its store."""
        await self._service.aclose()


@contextlib.asynccontextmanager
async def ground(bus: str, open_storage: OpenStorage) -> AsyncIterator[MakeStore]:
    """Makes stores of clients for the length of a block."""
    of = Ground(bus, open_storage)
    yield of.make
    await of.end()


class TestHttp(Conformance):
    """A service on the reference engine."""

    scheme = "http"

    @pytest.fixture
    async def make_store(self, bus: str) -> AsyncIterator[MakeStore]:
        """The same rows each time."""
        async with ground(bus, kept_in_memory()) as make:
            yield make


@pytest.mark.unmeasured  # TestHttp and TestSqlite run the same lines
class TestHttpOverSqlite(ValueRules, WatchRules, RequestRules, DeadlineRules):
    """A service on one file, as far as the two meet."""

    scheme = "http"

    @pytest.fixture
    async def make_store(self, bus: str, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same file each time."""
        async with ground(bus, kept_at(tmp_path / "store.db")) as make:
            yield make


@pytest.mark.unmeasured  # TestHttp and TestPostgres run the same lines
@pytest.mark.asyncio(loop_scope="class")
class TestHttpOverPostgres(OnOneLoop, WatchRules, RequestRules, DeadlineRules):
    """A service on a PostgreSQL database, as far as the two meet."""

    scheme = "http"

    @pytest_asyncio.fixture(loop_scope="class")
    async def make_store(self, bus: str, database: str) -> AsyncIterator[MakeStore]:
        """The same database each time, empty for each test."""
        await empty(database)
        async with ground(bus, kept_at(database)) as make:
            yield make
