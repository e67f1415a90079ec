"""Making snapshots of a node's shards, by hand and as the log grows, and trimming the log behind them.

Law: the node that holds a shard's lease makes the snapshots that the log's growth asks for. The log is not
trimmed past the slowest node that answers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from holdfast.engines.cluster.asking import heard
from holdfast.engines.cluster.log import trim
from holdfast.engines.cluster.replica import kept_place
from holdfast.errors import DatabaseError, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.bus.connection import Connection
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import JetStream
    from holdfast.engines.cluster.reports import SnapshotNote
    from holdfast.engines.cluster.shard import Shard
    from holdfast.engines.cluster.snapshots import Snapshots

LOOK_SECONDS: Final = 30.0
"""How often a node looks whether a snapshot is due."""

_log = logging.getLogger("holdfast.cluster")


class SnapshotMaker:
    """Makes the snapshots of one node.

    Args:
        address: The address of the cluster.
        connection: The connection.
        jetstream: JetStream over that connection.
        snapshots: The snapshots of the store.
        node: The name of this life of this node.
    """

    def __init__(
        self,
        address: ClusterAddress,
        connection: Connection,
        jetstream: JetStream,
        *,
        snapshots: Snapshots,
        node: str,
    ) -> None:
        self._address = address
        self._connection = connection
        self._jetstream = jetstream
        self._snapshots = snapshots
        self._node = node
        self._busy = asyncio.Lock()

    async def make(self, shards: Sequence[Shard]) -> tuple[list[SnapshotNote], int]:
        """Make a snapshot of each shard and trim the log. Return the snapshots, and what was trimmed.

        Raises:
            HoldfastError: A file can't be copied, or JetStream refuses.
        """
        async with self._busy:
            notes = [await self._made(shard) for shard in shards]
            return notes, await self._trimmed(len(shards))

    async def keep(self, shards: Sequence[Shard]) -> None:
        """Make snapshots as the log grows, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                due = [shard for shard in shards if shard.report().leads and await self._due(shard)]
                if due:
                    async with self._busy:
                        for shard in due:
                            await self._made(shard)
                        await self._trimmed(len(shards))
            except (HoldfastError, TimeoutError, OSError) as error:
                _log.warning("no snapshot of %s was made: %s", self._address.name, error)

    async def _due(self, shard: Shard) -> bool:
        if not self._address.snapshot_every:
            return False
        notes = await self._snapshots.notes(shard.number)
        return shard.replica.at.seq - (notes[0].seq if notes else 0) >= self._address.snapshot_every

    async def _made(self, shard: Shard) -> SnapshotNote:
        copy = shard.replica.path.absolute().with_name(f"{shard.replica.path.name}.copy")
        await asyncio.to_thread(copy.unlink, missing_ok=True)
        try:
            rescued = await shard.replica.file.rescue(str(copy))
            if rescued.trouble is not None:
                raise DatabaseError(f"{shard.replica.path} is damaged: {rescued.trouble}")
            seq = (await asyncio.to_thread(kept_place, copy)).seq
            return await self._snapshots.store(copy, shard=shard.number, seq=seq, node=self._node)
        finally:
            for suffix in ("", "-wal", "-shm"):
                copy.with_name(copy.name + suffix).unlink(missing_ok=True)

    async def _trimmed(self, shards: int) -> int:
        """Trim the log up to the oldest snapshots that are kept, and to the slowest node."""
        needed = []
        for number in range(shards):
            notes = await self._snapshots.notes(number)
            if not notes:
                return 0
            needed.append(notes[-1].seq)
        for one in await heard(self._connection, self._address):
            needed += [shard.seq for shard in one.report.shards]
        return await trim(self._address, self._jetstream, needed=min(needed))
