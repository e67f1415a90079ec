"""The SQLite engine under conformance: on a file, and on the private one that is gone at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.audit.keyring import Keyring, parse_keys
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from holdfast.testing.conformance.blobs import BlobEntryRules
from holdfast.testing.conformance.keys import VersionRules
from holdfast.testing.conformance.policies import UpkeepRules
from holdfast.testing.conformance.tables import TableRules
from tests.conformance.spread import Spread

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import Clock
    from holdfast.store import Store


class TestSqlite(Conformance):
    """One file, which keeps everything."""

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """The same file each time."""

        async def make(clock: Clock) -> Store:
            store = holdfast.open(tmp_path / "store.db", clock=clock, reap=False)
            await store.start()
            return store

        return make


async def open_private(clock: Clock) -> Store:
    """A store in a private file."""
    store = holdfast.open("sqlite://", clock=clock, reap=False)
    await store.start()
    return store


@pytest.mark.unmeasured  # TestSqlite runs the same lines
class TestPrivateSqlite(VersionRules, TableRules, BlobEntryRules, UpkeepRules):
    """A file that nobody else can open, gone at the end; `./dev soak conformance` runs all rules.

    The suite runs the rules of what such a store loses when it is closed, and of its files.
    """

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Another file each time."""
        return open_private


class TestSharedSqlite(Conformance):
    """One file, opened three times as by three processes; each call goes to the next of them."""

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """The same file each time."""

        async def make(clock: Clock) -> Store:
            keys = Keyring(parse_keys(AUDIT_KEY))
            store = holdfast.Store(Spread([tmp_path / "store.db"] * 3, keys), clock=clock, reap=False)
            await store.start()
            return store

        return make
