"""The cluster engine under the rules in which nodes may get in each other's way.

`./dev soak conformance` runs all rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.testing.conformance import MakeStore
from holdfast.testing.conformance.batches import DeadlineRules, RequestRules
from holdfast.testing.conformance.journal import WatchRules
from holdfast.testing.conformance.keys import VersionRules
from tests.conformance.behind import kept_at
from tests.conformance.every_cluster import three_nodes, urls_of_three
from tests.conformance.shared_rules import SharedRules
from tests.conformance.test_remote import ground
from tests.jetstream import lasting_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream."""
    with lasting_servers(1) as servers:
        yield servers


class TestThreeNodesOnOneServer(VersionRules, RequestRules, DeadlineRules, WatchRules):
    """Three nodes that take turns, with a log that one server keeps."""

    scheme = "cluster"

    @pytest.fixture
    def make_store(self, server: Servers, tmp_path: Path) -> MakeStore:
        """The same store each time, another one for each test."""
        return three_nodes(server, tmp_path)


@pytest.mark.unmeasured  # TestThreeNodesOnOneServer and TestRemote run the same lines
class TestThreeServicesOfThreeNodes(SharedRules, RequestRules):
    """A client of three services that share its requests; `./dev soak conformance` runs all rules on them."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, server: Servers, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same store each time, another one for each test."""
        bus = f"nats://127.0.0.1:{server.servers[0].port}"
        async with ground(bus, *map(kept_at, urls_of_three(server, tmp_path)), shared=True) as make:
            yield make
