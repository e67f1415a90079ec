"""All rules on the grounds on which the suite runs a part of them: `./dev soak conformance`.

No rule is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.testing.conformance import Conformance, MakeStore
from tests.conformance import test_http, test_remote, test_sqlite
from tests.conformance.behind import kept_at
from tests.conformance.database import empty
from tests.conformance.test_processes import ThreeProcesses, processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["processes"]


class TestEveryRuleOverHttpAndSqlite(Conformance):
    """A service on one file."""

    scheme = "http"

    @pytest.fixture
    async def make_store(self, bus: str, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same file each time."""
        async with test_http.ground(bus, kept_at(tmp_path / "store.db")) as make:
            yield make


class TestEveryRuleOverHttpAndPostgres(Conformance):
    """A service on a PostgreSQL database."""

    scheme = "http"

    @pytest.fixture
    async def make_store(self, bus: str, database: str) -> AsyncIterator[MakeStore]:
        """The same database each time, empty for each test."""
        await empty(database)
        async with test_http.ground(bus, kept_at(database)) as make:
            yield make


class TestEveryRuleOverNatsAndSqlite(Conformance):
    """A service on one file."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, bus: str, tmp_path: Path) -> AsyncIterator[MakeStore]:
        """The same file each time."""
        async with test_remote.ground(bus, kept_at(tmp_path / "store.db")) as make:
            yield make


class TestEveryRuleOverNatsAndPostgres(Conformance):
    """A service on a PostgreSQL database."""

    scheme = "nats"

    @pytest.fixture
    async def make_store(self, bus: str, database: str) -> AsyncIterator[MakeStore]:
        """The same database each time, empty for each test."""
        await empty(database)
        async with test_remote.ground(bus, kept_at(database)) as make:
            yield make


class TestEveryRuleOnAPrivateFile(Conformance):
    """A file that nobody else can open, gone at the end."""

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Another file each time."""
        return test_sqlite.open_private


class TestEveryRuleOnAFileOpenedThreeTimes(Conformance):
    """One file, opened three times in one process; each call goes to the next opening."""

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """The same file each time."""
        return test_sqlite.open_three_times(tmp_path / "store.db")


class TestEveryRuleOnAFileOfThreeProcesses(ThreeProcesses, Conformance):
    """One file, served by three processes; the NATS server chooses one of them for each call."""
