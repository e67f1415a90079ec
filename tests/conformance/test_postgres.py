"""The PostgreSQL engine under conformance.

Law: nothing but the ground; the tests come with the suite. They run on one event loop, one after the other,
so that a store can have the connection of the store before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import holdfast
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from holdfast.testing.conformance.fixtures import Opened
from tests.conformance.database import empty
from tests.conformance.kept import kept_connections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.clock import Clock, ManualClock
    from holdfast.store import Store


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def kept() -> AsyncIterator[None]:
    """The connections of the stores before."""
    async with kept_connections():
        yield


@pytest.mark.asyncio(loop_scope="class")
class TestPostgres(Conformance):
    """One database for all tests, empty for each."""

    scheme = "postgresql"

    @pytest_asyncio.fixture(loop_scope="class")
    async def make_store(self, kept: None, database: str) -> MakeStore:
        """The same database each time."""
        await empty(database)

        async def make(clock: Clock) -> Store:
            store = holdfast.open(database, clock=clock, reap=False, audit_key=AUDIT_KEY)
            await store.start()
            return store

        return make

    @pytest_asyncio.fixture(loop_scope="class")
    async def opened(  # type: ignore[override]  # mypy takes pytest's decorator for another kind of thing
        self, make_store: MakeStore, clock: ManualClock
    ) -> AsyncIterator[Opened]:
        """The storage of this test, opened on the loop of all tests."""
        opened = Opened(make_store, clock, await make_store(clock))
        yield opened
        await opened.store.aclose()
