"""All rules through HTTP over PostgreSQL, of which the suite runs a part: `./dev soak conformance`.

Law: nothing but the ground; the tests come with the suite of rules. No rule is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.testing.conformance import Conformance, MakeStore
from tests.conformance.database import empty
from tests.conformance.test_http import ground

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TestEveryRuleOverHttpAndPostgres(Conformance):
    """A service on a PostgreSQL database."""

    scheme = "http"

    @pytest.fixture
    async def make_store(self, bus: str, database: str) -> AsyncIterator[MakeStore]:
        """The same database each time, empty for each test."""
        await empty(database)
        async with ground(bus, database) as make:
            yield make
