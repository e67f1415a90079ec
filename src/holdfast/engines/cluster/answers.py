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
from holdfast.engines.cluster.asking import EVERY, MOST_SKEW, heard, lead_of, skew_of, tell, wrong_clock
from holdfast.engines.cluster.contents import contents_of
from holdfast.engines.cluster.reports import (
    ContentsReport,
    KnownNode,
    NodeReport,
    OperatorCall,
    OperatorReply,
)
from holdfast.engines.cluster.servers import other_servers
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
REMEMBERED_SECONDS: Final = 24 * 3600.0
"""How long a node that has fallen silent is remembered."""

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
        self._known: dict[str, KnownNode] = {}
        self._left: dict[str, int] = {}
        self._visits = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, shards: Sequence[Shard], *, visits: bool = False) -> None:
        """Begin to answer, and to make snapshots as the log grows.

        Args:
            shards: The shards of this node.
            visits: Whether the node is there for one command only.
        """
        self._shards, self._visits = shards, visits
        for who in (EVERY, self._node):
            self._connection.listen(self._address.subject("node", who), self._take)
        self._begin(self._maker.keep(shards))
        self._begin(self._watch())
        self._announce("joined")

    async def close(self) -> None:
        """Stop what is under way, and tell the others that this node leaves."""
        if self._shards:
            self._announce("left")
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
            known=list(self._known.values()),
            servers=other_servers(self._address),
            visits=self._visits,
        )

    def figures(self) -> ClusterFigures:
        """See `SharedStorage.figures`."""
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
        self._remember([one.report for one in self._heard])
        if (skew := skew_of(self._heard)) > MOST_SKEW:
            _log.error(
                "the clocks of the nodes of %s differ by %.1f s, so entries expire at wrong times",
                self._address.name,
                skew,
            )
        lead = lead_of(self._heard, self._node)
        for shard in self._shards:
            shard.suspend(wrong_clock(lead) if abs(lead) > MOST_SKEW else None)

    def _remember(self, reports: Sequence[NodeReport]) -> None:
        """Remember the nodes that answered, and those that they remember: this one may have started since."""
        now = int(time.time() * 1000)
        there = [one for one in reports if not one.visits]
        told = [one for report in reports for one in report.known if one.node not in self._left]
        for one in (*told, *(_known(report, now) for report in there)):
            before = self._known.get(one.node)
            if before is None or before.heard_at < one.heard_at:
                self._known[one.node] = one
        since = now - int(REMEMBERED_SECONDS * 1000)
        self._left = {node: at for node, at in self._left.items() if at > since}
        self._known = {
            node: one
            for node, one in self._known.items()
            if node != self._node and one.heard_at > since and not any(map(one.replaced_by, there))
        }

    def _announce(self, call: str) -> None:
        if not self._visits:
            me = _known(self.report(), int(time.time() * 1000))
            tell(self._connection, self._address, OperatorCall(call=call, node=me))

    def _told_of(self, message: Message) -> None:
        """Note that another node has joined or left."""
        try:
            told = _call.decode(message.data)
        except msgspec.DecodeError:  # of a version that says it otherwise
            return
        now = int(time.time() * 1000)
        if told.node is None or told.node.node == self._node:
            return
        if told.call == "left":
            self._left[told.node.node] = now
            self._known.pop(told.node.node, None)
        elif told.call == "joined":
            joined = msgspec.structs.replace(told.node, heard_at=now)
            self._known = {node: one for node, one in self._known.items() if not one.replaced_by(joined)} | {
                joined.node: joined
            }

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
        else:
            self._told_of(message)

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


def _known(report: NodeReport, now: int) -> KnownNode:
    return KnownNode(node=report.node, host=report.host, pid=report.pid, folder=report.folder, heard_at=now)
