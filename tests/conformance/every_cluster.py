"""All rules on clusters, of which the suite runs a part: `./dev soak conformance`.

No rule is left out.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.audit.keyring import Keyring, parse_keys
from holdfast.store import Store
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from tests.conformance.behind import kept_at
from tests.conformance.shared_rules import SharedRules
from tests.conformance.spread import Spread
from tests.conformance.test_remote import ground
from tests.jetstream import lasting_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.clock import Clock
    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream."""
    with lasting_servers(1) as servers:
        yield servers


@pytest.fixture(scope="module")
def three() -> Iterator[Servers]:
    """Three servers that form a cluster."""
    with lasting_servers(3) as servers:
        yield servers


def one_node(servers: Servers, folder: Path) -> MakeStore:
    """Open one node of a new store, the same one each time."""
    url = servers.url(secrets.token_hex(8), folder / "replica")

    async def make(clock: Clock) -> Store:
        store = holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY)
        await store.start()
        return store

    return make


def urls_of_three(servers: Servers, folder: Path) -> list[str]:
    """The addresses of three nodes of a new store."""
    name = secrets.token_hex(8)
    return [servers.url(name, folder / f"replica-{number}", shards=2) for number in range(3)]


def three_nodes(servers: Servers, folder: Path) -> MakeStore:
    """Open three nodes of a new store, the same ones each time, and spread the calls over them."""
    urls = urls_of_three(servers, folder)

    async def make(clock: Clock) -> Store:
        store = Store(Spread(urls, Keyring(parse_keys(AUDIT_KEY))), clock=clock, reap=False)
        await store.start()
        return store

    return make


class TestEveryRuleOnOneNode(Conformance):
    """A node alone, with a log that one server keeps."""

    scheme = "cluster"

    @pytest.fixture
    def make_store(self, server: Servers, tmp_path: Path) -> MakeStore:
        """The same store each time, another one for each test."""
        return one_node(server, tmp_path)


class TestEveryRuleOnThreeNodes(Conformance):
    """Three nodes that take turns, with a log that three servers keep."""

    scheme = "cluster"

    @pytest.fixture
    def make_store(self, three: Servers, tmp_path: Path) -> MakeStore:
        """The same store each time, another one for each test."""
        return three_nodes(three, tmp_path)


class TestEveryRuleThroughAService(Conformance):
    """Three nodes, of which another one has the service with every client."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, three: Servers, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same store each time, another one for each test."""
        bus = f"nats://127.0.0.1:{three.servers[0].port}"
        async with ground(bus, *map(kept_at, urls_of_three(three, tmp_path))) as make:
            yield make


class TestEveryRuleThroughThreeServices(SharedRules, Conformance):
    """Three nodes with a service each, which share the requests of a client."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, server: Servers, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same store each time, another one for each test."""
        bus = f"nats://127.0.0.1:{server.servers[0].port}"
        async with ground(bus, *map(kept_at, urls_of_three(server, tmp_path)), shared=True) as make:
            yield make
