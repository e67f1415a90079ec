"""The PostgreSQL engine under conformance.

They run on one event loop, one after the other, so that a store can have the connection of the store before
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import holdfast
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from tests.conformance.database import empty
from tests.conformance.kept import OnOneLoop

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.store import Store


@pytest.mark.asyncio(loop_scope="class")
class TestPostgres(OnOneLoop, Conformance):
    """One database for all tests, empty for each."""

    scheme = "postgresql"

    @pytest_asyncio.fixture(loop_scope="class")
    async def make_store(self, database: str) -> MakeStore:
        """The same database each time."""
        await empty(database)

        async def make(clock: Clock) -> Store:
            store = holdfast.open(database, clock=clock, reap=False, audit_key=AUDIT_KEY)
            await store.start()
            return store

        return make
