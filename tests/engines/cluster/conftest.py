"""A server with JetStream and the nodes of a new store, for the tests of the cluster engine's parts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.cluster import Nodes
from tests.jetstream import lasting_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream that accepts messages of 64 KB."""
    with lasting_servers(1, max_payload=65_536) as servers:
        yield servers


@pytest.fixture
async def nodes(server: Servers, tmp_path: Path) -> AsyncIterator[Nodes]:
    """The nodes of a new store."""
    async with AsyncExitStack() as stack:
        yield Nodes(server, tmp_path, stack)
