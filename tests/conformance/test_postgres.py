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
    from holdfast.clock import Clock
    from holdfast.store import Store


class TestPostgres(Conformance):
    """One database for all tests, empty for each."""

    scheme = "postgresql"

    @pytest.fixture
    async def make_store(self, database: str) -> MakeStore:
        """The same database each time."""
        await empty(database)

        async def make(clock: Clock) -> Store:
            store = holdfast.open(database, clock=clock, reap=False, audit_key=AUDIT_KEY)
            await store.start()
            return store

        return make
