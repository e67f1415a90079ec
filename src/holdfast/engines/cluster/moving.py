"""Raw reads and loads of a whole cluster; see `holdfast.engine.moving`.

Law: everything that was acknowledged before the reading began is read, each shard at one instant. A namespace
belongs to one shard, so what it holds is consistent. Loads go through the log, so all replicas hold the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.moving import CHANGED
from holdfast.engines.cluster.loading import ClusterLoader, facts_now, publish_facts, settle
from holdfast.errors import Busy, HoldfastError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from holdfast.engine.moving import Facts, Mark, Marked, Shelf
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.shard import Shard
    from holdfast.engines.sqlite.moving import SqliteSnapshot
    from holdfast.rows import Namespace

SETTLE_SECONDS: Final = 1.0
"""How often a node looks for shards that a process left closed, which died while it opened the store."""

_log = logging.getLogger("holdfast.cluster")


class ClusterSnapshot:
    """See `holdfast.engine.moving.RawSnapshot`.

    Args:
        parts: The snapshot of each shard.
        part_of: Returns the number of a namespace's shard.
    """

    def __init__(self, parts: Sequence[SqliteSnapshot], part_of: Callable[[str], int]) -> None:
        self._parts = parts
        self._part_of = part_of

    async def facts(self) -> Facts:
        """See `RawSnapshot.facts`. The first shard keeps what concerns the whole store."""
        return await self._parts[0].facts()

    async def namespaces(self) -> list[Namespace]:
        """See `RawSnapshot.namespaces`."""
        found = [namespace for part in self._parts for namespace in await part.namespaces()]
        return sorted(found, key=lambda namespace: namespace.name)

    async def names(self) -> list[str]:
        """See `RawSnapshot.names`."""
        return sorted([name for part in self._parts for name in await part.names()])

    async def count(self) -> int:
        """See `RawSnapshot.count`."""
        return sum([await part.count() for part in self._parts])

    async def page(self, namespace: str, shelf: Shelf, *, after: Mark | None, limit: int) -> list[Marked]:
        """See `RawSnapshot.page`."""
        part = self._parts[self._part_of(namespace)]
        return await part.page(namespace, shelf, after=after, limit=limit)

    async def find(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> list[Marked]:
        """See `RawSnapshot.find`."""
        return await self._parts[self._part_of(namespace)].find(namespace, shelf, marks)


class ClusterMoves(ABC):
    """The part of the engine that implements `holdfast.engine.moving.Movable`."""

    _shards: list[Shard]
    _address: ClusterAddress
    _visit: tempfile.TemporaryDirectory[str] | None = None
    _creates = True
    _loads = False

    @abstractmethod
    def shard_of(self, namespace: str) -> int:
        """Return the number of a namespace's shard, the same on every node and in every version."""

    def open_read_only(self) -> None:
        """See `Movable.open_read_only`: keep the replica in a temporary folder, and create no log."""
        self._creates = False
        self._visiting()

    def open_unfinished(self) -> None:
        """See `Movable.open_unfinished`: commands that move stores have replicas of their own."""
        self._loads = True
        self._visiting()

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[ClusterSnapshot]:
        """See `Movable.snapshot`."""
        async with contextlib.AsyncExitStack() as stack:
            parts = []
            for shard in self._shards:
                await shard.reads.fresh(shard.replica.file.remembered)
                parts.append(await stack.enter_async_context(shard.replica.file.snapshot()))
            yield ClusterSnapshot(parts, self.shard_of)

    @contextlib.asynccontextmanager
    async def loading(self) -> AsyncIterator[ClusterLoader]:
        """See `Movable.loading`.

        What is loaded goes through the log in pieces, so the store has to be closed first, for a reason that
        names the process that loads.

        Raises:
            Busy: The store was closed for another reason, or opened, in between.
        """
        facts = await facts_now(self._shards[0])
        loader = ClusterLoader(self._shards, self.shard_of, facts)
        yield loader
        await loader.flush()

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """See `Movable.close_to_writes`."""
        facts = await facts_now(self._shards[0])
        if facts.closed != instead_of:
            raise Busy(CHANGED)
        new = msgspec.structs.replace(facts, closed=reason)
        await publish_facts(self._shards, new, before=facts)

    async def _settle(self) -> None:
        """Open shards that were left closed, as soon as there are any, until cancelled."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await settle(self._shards)
            except HoldfastError as error:
                _log.warning("a shard of %s stays closed for now: %s", self._address.name, error.message)

    def _visiting(self) -> None:
        """Keep the replica in a temporary folder, which is removed at the end."""
        if self._visit is None:
            self._visit = tempfile.TemporaryDirectory(prefix="holdfast-visit-")
            self._address = msgspec.structs.replace(self._address, data=Path(self._visit.name))
