"""A service under measurement: a store in a file whose clock stands still, served over NATS.

Only what tests of metrics share; nothing about pytest.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.nats.links import Link
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.edges.settings.read import read_config
from tests.edges.running import plain_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from holdfast.edges.nats.server import NatsServer
    from holdfast.store import Store


class Measured:
    """A service under measurement, and a client of it."""

    def __init__(self, metrics: Metrics, store: Store, clock: ManualClock, client: Client) -> None:
        self.metrics = metrics
        self.store = store
        self.clock = clock
        self.client = client

    async def values(self, prefix: str = "holdfast") -> dict[str, float]:
        """The samples of our own that are not zero, as they are written, without buckets."""
        text = (await self.metrics.exposition()).decode()
        lines = re.findall(rf"^({prefix}_\S+) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in lines if float(value) and "_bucket" not in name}


@contextlib.asynccontextmanager
async def measured(server: NatsServer, folder: Path, *, slow: float = 60.0) -> AsyncIterator[Measured]:
    """A service over a store in a file whose clock stands still."""
    clock = ManualClock()
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(holdfast.open(folder / "state.db", clock=clock, reap=False))
        link = await stack.enter_async_context(Link(server.url, read_config(environment={}), name="holdfast"))
        metrics = Metrics("holdfast", store)
        request_log = RequestLog(slow=slow, slow_walk=slow, counter=metrics)
        service = NatsService(store, link.client, Settings(), request_log)
        metrics.requests = service.requests
        metrics.services, metrics.links = [service], [link]
        await service.start()
        stack.push_async_callback(service.stop)
        client = await stack.enter_async_context(plain_client(server.url))
        yield Measured(metrics, store, clock, client)
