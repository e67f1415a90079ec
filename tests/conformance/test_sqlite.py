"""The SQLite engine under conformance: on a file, on a private one, and on one that is opened three times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.audit.keyring import Keyring, parse_keys
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from holdfast.testing.conformance.batches import RequestRules
from holdfast.testing.conformance.blobs import BlobEntryRules
from holdfast.testing.conformance.journal import WatchRules
from holdfast.testing.conformance.keys import KeyRules, VersionRules
from holdfast.testing.conformance.policies import UpkeepRules
from holdfast.testing.conformance.recipes import LockRules
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


def open_three_times(path: Path) -> MakeStore:
    """Open a file three times in this process, as three processes would, and spread the calls over them."""

    async def make(clock: Clock) -> Store:
        keys = Keyring(parse_keys(AUDIT_KEY))
        store = holdfast.Store(Spread([path] * 3, keys), clock=clock, reap=False)
        await store.start()
        return store

    return make


class TestOpenedThreeTimes(KeyRules, VersionRules, RequestRules, WatchRules, LockRules):
    """One file, opened three times in one process; `./dev soak conformance` runs all rules.

    All calls of a store are decided in the order in which they were made, which processes do not promise to
    each other.
    """

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """The same file each time."""
        return open_three_times(tmp_path / "store.db")
