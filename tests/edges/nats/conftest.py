"""A nats-server, a service on a store that keeps nothing, and a caller: what most tests of this folder need.

Only fixtures; the parts are in `tests.edges.nats.ground`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from tests.edges.nats.ground import Caller, Running, calling, serving


@pytest.fixture
def clock() -> ManualClock:
    """The time of the service."""
    return ManualClock()


@pytest.fixture
def nats_server(shared_nats_server: NatsServer) -> NatsServer:
    """One that the tests of this process share: a start takes longer than most of them."""
    return shared_nats_server


@pytest.fixture
async def running(nats_server: NatsServer, clock: ManualClock) -> AsyncIterator[Running]:
    """A service with the usual settings, on a store that keeps nothing."""
    async with serving(nats_server.url, clock=clock) as running:
        yield running


@pytest.fixture
async def caller(nats_server: NatsServer, running: Running) -> AsyncIterator[Caller]:
    """Somebody who asks that service."""
    async with calling(nats_server.url) as caller:
        yield caller
