"""A service over HTTP, with the console, on a NATS server that the tests of a module share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges.http.ground import Served, served
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


@pytest.fixture
async def here(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service in open mode on an empty store."""
    async with served(tmp_path / "state.db", bus) as found:
        yield found
