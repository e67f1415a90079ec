"""Fixtures with a real nats-server.

Only what tests of several folders need. The harness itself is `tests.nats`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest

from holdfast.edges.nats.server import NatsServer
from tests import nats as harness

StartServer: TypeAlias = Callable[[str | None], Awaitable[NatsServer]]


@pytest.fixture
async def own_nats_server() -> AsyncIterator[NatsServer]:
    """A nats-server of this test's alone, where anybody may do anything."""
    async with harness.nats_server() as server:
        yield server


@pytest.fixture
def nats_server(own_nats_server: NatsServer) -> NatsServer:
    """The nats-server of a test: one of its own, unless its folder has services that leave nothing behind."""
    return own_nats_server


@pytest.fixture(scope="session")
def shared_nats_server() -> Iterator[NatsServer]:
    """A nats-server for tests that come one after the other, and close all that they have opened."""
    with harness.lasting_server() as server:
        yield server


@pytest.fixture
async def nats_server_with() -> AsyncIterator[StartServer]:
    """Starts nats-servers with the configurations it is called with; they end with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(config: str | None) -> NatsServer:
            return await stack.enter_async_context(harness.nats_server(config))

        yield start
