"""The SQLite engine under conformance: on a file, on a private one, and on a file of three processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.audit.keyring import Keyring, parse_keys
from holdfast.testing import AUDIT_KEY
from holdfast.testing.conformance import Conformance, MakeStore
from holdfast.testing.conformance.audit import AuditRules
from holdfast.testing.conformance.batches import FenceRules, OnceRules, RequestRules
from holdfast.testing.conformance.blobs import BlobEntryRules
from holdfast.testing.conformance.journal import JournalRules, MirrorRules, WatchRules
from holdfast.testing.conformance.keys import CounterRules, KeyRules, VersionRules
from holdfast.testing.conformance.policies import PolicyRules, UpkeepRules
from holdfast.testing.conformance.recipes import LockRules
from holdfast.testing.conformance.table_queries import TableIndexRules
from holdfast.testing.conformance.tables import TableRules
from tests.conformance.file_process import FileProcesses, file_processes
from tests.conformance.shared_rules import SharedRules
from tests.conformance.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.clock import Clock, ManualClock
    from holdfast.commands import Command
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


@pytest.fixture(scope="module")
def processes(bus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileProcesses]:
    """Three processes, which open another file for each test."""
    with file_processes(bus, tmp_path_factory.mktemp("processes") / "clock") as started:
        yield started


class ThreeProcesses(SharedRules):
    """Three processes on one file. The NATS server chooses one of them for each call."""

    scheme = "nats"

    @pytest.fixture
    def clock(self, processes: FileProcesses) -> ManualClock:
        """The time of all processes."""
        processes.clock.restart()
        return processes.clock

    @pytest.fixture
    def make_store(self, bus: str, processes: FileProcesses, tmp_path: Path) -> Iterator[MakeStore]:
        """The same file each time."""

        async def make(clock: Clock) -> Store:
            processes.close()
            processes.clock.show(clock.now())
            processes.open(tmp_path / "store.db")
            # No test moves the clock by as much, which would end a call at the very deadline.
            store = holdfast.open(f"{bus}?timeout=47", clock=clock, writer="embedded")
            await store.start()
            call = store.caller.call

            async def call_now(command: Command) -> Any:
                processes.clock.show(clock.now())
                return await call(command)

            store.caller.call = call_now  # type: ignore[method-assign]
            return store

        yield make
        processes.close()


@pytest.mark.unmeasured  # the processes are not measured
class TestThreeProcesses(
    ThreeProcesses,
    KeyRules,
    VersionRules,
    CounterRules,
    JournalRules,
    WatchRules,
    MirrorRules,
    RequestRules,
    OnceRules,
    FenceRules,
    UpkeepRules,
    PolicyRules,
    AuditRules,
    LockRules,
    TableRules,
    TableIndexRules,
    BlobEntryRules,
):
    """The rules in which processes may get in each other's way; `./dev soak conformance` runs all rules.

    They are about what a process may remember of a file that others write: versions, counts, policies,
    tables, requests, fences, locks, parts of blobs, and the end of the journal and of the audit.
    """
