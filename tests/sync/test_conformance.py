"""The rules of keys, recipes and tables, called through `holdfast.sync`.

Themes whose tests need two callers at once, such as watches and locks, are tested for the facade on their
own. All others run over the reference engine, and over a file those of what is there when it is opened again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import holdfast.sync
from holdfast.blobs.manifest import PART_BYTES, UPLOAD_IDLE
from holdfast.testing.conformance import MakeStore
from holdfast.testing.conformance.batches import BatchRules, FenceRules, RequestRules
from holdfast.testing.conformance.blobs import BlobEntryRules, assert_swept, content
from holdfast.testing.conformance.expiry import ExpiryRules
from holdfast.testing.conformance.journal import JournalRules
from holdfast.testing.conformance.keys import CounterRules, KeyRules, VersionRules
from holdfast.testing.conformance.listing import ListingRules, ManyKeysRules
from holdfast.testing.conformance.policies import PolicyRules
from holdfast.testing.conformance.table_queries import TableIndexRules, TableQueryRules, TableTtlRules
from holdfast.testing.conformance.tables import TableItemRules, TableRules
from holdfast.testing.conformance.trash import TrashRules
from holdfast.testing.conformance.values import EnvelopeRules, SemanticsRules, ValueRules
from tests.sync.bridge import Bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.clock import Clock, ManualClock


def opened(url: str | Path, clock: Clock) -> Any:
    """A store without asyncio, for the tests of the suite."""
    store = holdfast.sync.open(url, clock=clock, reap=False)
    store.start()
    return Bridge(store)


@pytest.mark.unmeasured
class TestSync(
    ValueRules,
    KeyRules,
    EnvelopeRules,
    VersionRules,
    CounterRules,
    ExpiryRules,
    ListingRules,
    JournalRules,
    BatchRules,
    ManyKeysRules,
    RequestRules,
    TrashRules,
    FenceRules,
    SemanticsRules,
    PolicyRules,
    TableRules,
    TableItemRules,
    TableQueryRules,
    TableIndexRules,
    TableTtlRules,
    BlobEntryRules,
):
    """A store in memory that is opened without asyncio."""

    scheme = "memory"

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Every store begins empty."""

        async def make(clock: Clock) -> Any:
            return opened("memory://", clock)

        return make

    async def test_a_writer_that_dies_is_swept(self, blobs: Any, store: Any, clock: ManualClock) -> None:
        """As in the suite; the writer is stuck on a thread of its own, which can't be cancelled."""
        waiting, over = threading.Event(), threading.Event()

        def stuck() -> Iterator[bytes]:
            for _ in range(5):
                yield content(PART_BYTES)
            waiting.set()
            over.wait()
            raise OSError("the writer is gone")

        def put() -> None:
            with pytest.raises(OSError, match="is gone"):
                blobs._facade.put("b", stuck())

        writer = threading.Thread(target=put)
        writer.start()
        try:
            waiting.wait()
            assert await blobs.head("b") is None
            clock.advance(UPLOAD_IDLE)
            await store.upkeep()
            await assert_swept(store, clock)
        finally:
            over.set()
            writer.join()


@pytest.mark.unmeasured
class TestSyncOnAFile(ValueRules, VersionRules, JournalRules):
    """A file that is opened without asyncio."""

    scheme = "sqlite"

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        """The stores of a test share its file."""

        async def make(clock: Clock) -> Any:
            return opened(tmp_path / "store.db", clock)

        return make
