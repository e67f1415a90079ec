"""Fixtures of the tests of isolation: who answers, in which mode, and the bus with everybody on it.

What answers is chosen here alone, so that the same attempts are made against every responder.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest

from holdfast.edges.nats.server_config import Mode
from tests.security.bus import Bus, Ground, Grounds, permissions, running_bus
from tests.security.responders import Responder, holdfast_service, stand_in

Answering: TypeAlias = Callable[..., AbstractAsyncContextManager[Responder]]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of attempts are refused, and none of the lines about them is looked at."""
    caplog.set_level(logging.CRITICAL, logger="holdfast")


ANSWERING: Sequence[Answering] = (stand_in, holdfast_service)
MODES: Sequence[Mode] = ("accounts", "permissions")


@pytest.fixture(params=ANSWERING, ids=["stand-in", "holdfast"])
def service(request: pytest.FixtureRequest) -> Answering:
    """Starts a service with its credentials; every test runs against each of them."""
    chosen: Answering = request.param
    return chosen


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    """How the users are kept apart."""
    chosen: Mode = request.param
    return chosen


@pytest.fixture(scope="session")
def grounds() -> Iterator[Grounds]:
    """Servers that tests use one after the other: a start takes longer than many of them."""
    with contextlib.closing(Grounds()) as servers:
        yield servers


@pytest.fixture
def ground(grounds: Grounds, mode: Mode) -> Ground:
    """The server with the generated configuration."""
    return grounds.of(permissions(mode), mode)


@pytest.fixture
async def bus(mode: Mode, service: Answering, ground: Ground) -> AsyncIterator[Bus]:
    """A server with the generated configuration, the service and all honest parties."""
    async with running_bus(mode, service, ground=ground) as running:
        yield running
