"""The SQLite engine under conformance on a file of three processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.testing.conformance import MakeStore
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.clock import Clock, ManualClock
    from holdfast.commands import Command
    from holdfast.store import Store


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
