"""The four ways to reach a store: a file, a database, and a service over NATS and over HTTP.

Nothing about any integration.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.http.api import Api
from holdfast.edges.http.app import Door, Health, application
from holdfast.edges.http.guard import TokenGuard
from holdfast.edges.http.server import http_server
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.nats.service import NatsService, Settings
from tests.ports import free_port

if TYPE_CHECKING:
    from typing import Self

    from holdfast.clock import Clock
    from holdfast.store import Store

KINDS: Final = ("sqlite", "postgresql", "nats", "http")


class Ground:
    """Storage, with a service in front of it if the kind asks for one. Use it as a context manager.

    Args:
        kind: One of `KINDS`.
        storage: The URL of the store behind the service, or of the store itself.
        bus: The address of a NATS server, for a service.
        clock: The clock of every store; the machine's if None.
    """

    def __init__(self, kind: str, storage: str, bus: str, clock: Clock | None) -> None:
        self.kind = kind
        self.url = storage
        self._storage = storage
        self._bus = bus
        self._clock = clock
        self._service = contextlib.AsyncExitStack()

    def open(self) -> Store:
        """Return a store that has not been started."""
        return holdfast.open(self.url, clock=self._clock, reap=False)

    async def __aenter__(self) -> Self:
        if self.kind in ("nats", "http"):
            await self._serve()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._service.aclose()

    async def _serve(self) -> None:
        enter = self._service.enter_async_context
        behind = await enter(holdfast.open(self._storage, clock=self._clock, reap=False))
        connection = Connection()
        await connection.reach(self._bus)
        self._service.push_async_callback(connection.close)
        service = NatsService(behind, connection, Settings())
        await service.start()
        self._service.push_async_callback(service.stop)
        self.url = f"{self._bus}?timeout=47"
        if self.kind == "http":
            api = Api(TokenGuard(behind.tokens(), open_mode=True), behind)
            api.service = service.requests
            health = application(Health(behind), Metrics("holdfast", behind))
            port = free_port()
            await enter(http_server(Door(health, api=api), host="127.0.0.1", port=port))
            self.url = f"http://127.0.0.1:{port}"
