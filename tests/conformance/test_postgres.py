"""The PostgreSQL engine under conformance.

Law: nothing but the ground; the tests come with the suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from tests.conformance.database import empty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.clock import Clock
    from holdfast.store import Store
    from tests.postgres import Server


@pytest.fixture(scope="module")
def url(pg_server: Server) -> Iterator[str]:
    """The address of the database."""
    url = pg_server.create_database()
    yield url
    pg_server.drop_database(url)


class TestPostgres(Conformance):
    """One database for all tests, empty for each."""

    scheme = "postgresql"

    @pytest.fixture
    async def make_store(self, url: str) -> MakeStore:
        """The same database each time."""
        await empty(url)

        async def make(clock: Clock) -> Store:
            store = holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY)
            await store.start()
            return store

        return make
