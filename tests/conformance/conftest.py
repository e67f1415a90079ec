"""What tests of an engine use one after the other, since starting it takes longer than most of them.

It is empty for each test that uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.kept import kept
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgres import Server

__all__ = ["bus", "database", "kept"]


@pytest.fixture(scope="module")
def database(pg_server: Server) -> Iterator[str]:
    """The address of a database."""
    url = pg_server.create_database()
    yield url
    pg_server.drop_database(url)


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url
