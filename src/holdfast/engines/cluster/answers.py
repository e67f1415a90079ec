"""NodeAnswers of a node to operators: where it is, what it holds, and snapshots on request.

Law: an answer never delays the log, except for the moment in which the contents of one place are pinned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine import ClusterFigures
from holdfast.engines.cluster.asking import EVERY, MOST_SKEW, heard, lead_of, skew_of, wrong_clock
from holdfast.engines.cluster.contents import contents_of
from holdfast.engines.cluster.reports import ContentsReport, NodeReport, OperatorCall, OperatorReply
from holdfast.errors import HoldfastError, ValidationError
from holdfast.extras import DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence
    from pathlib import Path

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.asking import HeardNode
    from holdfast.engines.cluster.contents import Contents
    from holdfast.engines.cluster.messages import LogPlace
    from holdfast.engines.cluster.shard import Shard
    from holdfast.engines.cluster.snapshot_maker import SnapshotMaker

WATCH_SECONDS: Final = 15.0
"""How often a node compares its clock with those of the others."""

_log = logging.getLogger("holdfast.cluster")
_call = msgspec.json.Decoder(OperatorCall)


class NodeAnswers:
    """The answers of one node.

    Args:
        address: The address of the cluster.
        connection: The connection.
        node: The name of this life of this node.
        maker: Makes snapshots.
    """

    def __init__(
        self,
        address: ClusterAddress,
        connection: Connection,
        *,
        node: str,
        maker: SnapshotMaker,
    ) -> None:
        self._address = address
        self._connection = connection
        self._node = node
        self._version = version(DISTRIBUTION)
        self._maker = maker
        self._host = socket.gethostname()
        self._shards: Sequence[Shard] = ()
        self._heard: list[HeardNode] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, shards: Sequence[Shard]) -> None:
        """Begin to answer, and to make snapshots as the log grows."""
        self._shards = shards
        for who in (EVERY, self._node):
            self._connection.listen(self._address.subject("node", who), self._take)
        self._begin(self._maker.keep(shards))
        self._begin(self._watch())

    async def close(self) -> None:
        """Stop what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def report(self) -> NodeReport:
        """Return what this node says about itself."""
        return NodeReport(
            node=self._node,
            host=self._host,
            pid=os.getpid(),
            version=self._version,
            folder=str(self._address.data.absolute()),
            time=int(time.time() * 1000),
            shards=[shard.report() for shard in self._shards],
        )

    def figures(self) -> ClusterFigures:
        """See `Clustered.figures`."""
        reports = [shard.report() for shard in self._shards]
        return ClusterFigures(
            nodes=max(1, len(self._heard)),
            skew=skew_of(self._heard),
            behind={one.shard: one.behind for one in reports},
            leads={one.shard: one.leads for one in reports},
            stopped={one.shard: one.stopped is not None for one in reports},
        )

    async def _watch(self) -> None:
        """Ask the other nodes for their clocks now and then, until cancelled."""
        while True:
            with contextlib.suppress(HoldfastError):
                await self.compare_clocks()
            await asyncio.sleep(WATCH_SECONDS)

    async def compare_clocks(self) -> None:
        """Compare the clocks of all nodes, and serve no more while this one's differs from most others.

        Raises:
            HoldfastError: The others can't be asked.
        """
        self._heard = await heard(self._connection, self._address)
        if (skew := skew_of(self._heard)) > MOST_SKEW:
            _log.error(
                "the clocks of the nodes of %s differ by %.1f s, so entries expire at wrong times",
                self._address.name,
                skew,
            )
        lead = lead_of(self._heard, self._node)
        for shard in self._shards:
            shard.suspend(wrong_clock(lead) if abs(lead) > MOST_SKEW else None)

    async def inspect(self, shard: int, path: Path, place: LogPlace, inbox: str) -> None:
        """Pin the contents of a shard as they are now, and send their hash to an inbox later."""
        try:
            contents = await contents_of(path)
        except Exception as error:
            self._send(inbox, self._contents(shard, place, error=str(error)))
            return
        self._begin(self._told(shard, place, contents, inbox))

    async def _told(self, shard: int, place: LogPlace, contents: Awaitable[Contents], inbox: str) -> None:
        try:
            found = await contents
        except Exception as error:
            self._send(inbox, self._contents(shard, place, error=str(error)))
        else:
            self._send(inbox, self._contents(shard, place, found))

    def _contents(
        self, shard: int, place: LogPlace, found: Contents | None = None, *, error: str | None = None
    ) -> ContentsReport:
        return ContentsReport(
            node=self._node,
            host=self._host,
            shard=shard,
            seq=place.seq,
            rows=0 if found is None else found.rows,
            hash="" if found is None else found.hash,
            error=error,
        )

    def _take(self, message: Message) -> None:
        if message.reply:
            self._begin(self._answer(message))

    async def _answer(self, message: Message) -> None:
        reply: msgspec.Struct
        try:
            asked = _call.decode(message.data)
            reply = self.report() if asked.call == "report" else await self._done(asked)
        except HoldfastError as error:
            reply = OperatorReply(error=error.message)
        except msgspec.DecodeError as error:
            reply = OperatorReply(error=f"the request can't be read: {error}")
        self._send(message.reply, reply)

    async def _done(self, asked: OperatorCall) -> OperatorReply:
        if asked.call == "verify":
            for shard in self._shards:
                await shard.put(check=asked.inbox)
            return OperatorReply()
        if asked.call == "snapshot":
            snapshots, trimmed = await self._maker.make(self._shards)
            return OperatorReply(snapshots=snapshots, trimmed=trimmed)
        raise ValidationError(f"this version of Holdfast does not know the request {asked.call!r}")

    def _send(self, subject: str, reply: msgspec.Struct) -> None:
        self._connection.send(subject, msgspec.json.encode(reply))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="holdfast cluster answers")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer to an operator failed", exc_info=error)
