"""What an operator does with a whole cluster: look at it, compare its replicas, make snapshots.

Law: an operator is no node. It has no replica and writes nothing to the log; a node does that for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from holdfast.bus.connection import Requester
from holdfast.bus.errors import BusError, LoginRefused
from holdfast.engines.cluster import servers
from holdfast.engines.cluster.asking import MOST_SKEW, Inbox, ask, heard, skew_of
from holdfast.engines.cluster.jetstream import NO_STREAM, ApiRefusal, JetStream, NodeConnection
from holdfast.engines.cluster.membership import Membership
from holdfast.engines.cluster.reports import (
    HOST,
    NODE,
    PROCESS,
    ContentsReport,
    NodeReport,
    OperatorCall,
    OperatorReply,
    SnapshotNote,
    where_of,
)
from holdfast.engines.cluster.snapshots import Snapshots
from holdfast.errors import PermissionDenied, Unavailable, ValidationError

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.asking import HeardNode

FAR_BEHIND: Final = 10_000
"""The number of messages from which a node counts as lagging."""
ATTEMPT_SECONDS: Final = 2.0


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and how far its clock is from the operator's, in milliseconds."""

    report: NodeReport
    offset_ms: int


class GoneNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that does not answer and has not said that it leaves, as far as the other nodes know."""

    node: str
    host: str
    process: str
    silent_seconds: int = 0
    """For how long no node has heard it."""
    follows: bool = False
    """True if it is still connected to the log: it is paused or busy."""

    @property
    def trouble(self) -> str:
        """What is wrong, in words."""
        where = f"the node on {self.host} (process {self.process})"
        if self.follows:
            return f"{where} follows the log but does not answer: it is starting, busy or paused"
        return f"{where} is gone: it was last heard {self.silent_seconds} s ago"


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The log: its life, its size, and the servers that keep it."""

    epoch: str
    shards: int
    messages: int
    bytes: int
    first: int
    last: int
    leader: str | None
    followers: list[str]
    behind: list[str]
    """Servers that lack a part of the log, or are not there."""
    gone: list[str] = []
    """Those of them that are not there."""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A store as an operator sees it, and what is wrong with it."""

    name: str
    log: LogStatus
    nodes: list[NodeStatus]
    gone_nodes: list[GoneNode]
    gone_servers: list[str]
    """The addresses of NATS servers that do not answer."""
    snapshots: list[SnapshotNote]
    troubles: list[str]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of all replicas, each shard at one place in the log."""

    contents: list[ContentsReport]
    silent: list[str]
    """Nodes that did not answer in time."""
    stopped: list[str]
    """Nodes that do not serve."""
    differing: list[int]
    """Shards whose replicas do not hold the same rows."""

    @property
    def equal(self) -> bool:
        """True if every node serves and answered, and all hold the same rows."""
        wrong = self.silent or self.stopped or self.differing
        return not wrong and not any(one.error for one in self.contents)


class ClusterOperator:
    """A connection to the servers of a cluster, for an operator.

    Args:
        address: The address of the cluster.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self._address = address
        self._connection = NodeConnection(name=f"holdfast operator {address.name}")
        self._jetstream = JetStream(self._connection, Requester(self._connection))
        self._snapshots = Snapshots(address, self._connection, self._jetstream)
        self.membership = Membership(address, self._jetstream)

    async def __aenter__(self) -> Self:
        address = self._address
        try:
            await self._connection.reach(address.servers, address.remote.login())
        except LoginRefused:
            raise PermissionDenied(f"the NATS server at {address.shown} does not admit this user") from None
        except (OSError, BusError) as error:
            raise Unavailable(f"no NATS server can be reached at {address.shown}: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def status(self) -> ClusterStatus:
        """Return what the servers and the nodes say.

        Raises:
            ValidationError: There is no store of this name.
            Unavailable: The servers do not agree; the message names those that are missing.
        """
        log = await self._log()
        nodes = await heard(self._connection, self._address)
        notes = [note for shard in range(log.shards) for note in await self._snapshots.notes(shard)]
        reports = [one.report for one in nodes]
        gone_nodes = await self._gone(reports)
        gone_servers = await servers.missing_of(self._address)
        if len(log.behind) > len(gone_servers):  # the URL does not name all servers; nodes may know them
            told = {server for report in reports for server in report.servers}
            gone_servers = sorted({*gone_servers, *await servers.missing(sorted(told))})
        return ClusterStatus(
            name=self._address.name,
            log=log,
            nodes=[NodeStatus(report=one.report, offset_ms=round(one.offset)) for one in nodes],
            gone_nodes=gone_nodes,
            gone_servers=gone_servers,
            snapshots=notes,
            troubles=_server_troubles(log, gone_servers)
            + [one.trouble for one in gone_nodes]
            + _troubles(nodes),
        )

    async def verify(self, *, seconds: float) -> Verification:
        """Have all replicas hashed at one place of the log, and compare them.

        All nodes that follow the log count, also those that do not answer: a node that is paused or busy.

        Raises:
            Unavailable: No node can do it.
        """
        everyone = await heard(self._connection, self._address)
        nodes = await self._serving(everyone)
        shards = len(nodes[0].report.shards)
        hosts = {one.report.node: f"{one.report.host} (process {one.report.pid})" for one in everyone}
        serving = {one.report.node for one in nodes}
        stopped = sorted(hosts[node] for node in hosts.keys() - serving)
        unheard = {node: where for node, where in (await self._following()).items() if node not in hosts}
        hosts |= unheard
        waiting = {(node, shard) for node in serving | unheard.keys() for shard in range(shards)}
        inbox, found = Inbox(self._connection), list[ContentsReport]()
        until = asyncio.get_running_loop().time() + seconds
        try:
            await self._done(nodes, OperatorCall(call="verify", inbox=inbox.subject), seconds=seconds)
            while waiting and (told := await inbox.next(ContentsReport, until=until)) is not None:
                found.append(told[1])
                waiting.discard((told[1].node, told[1].shard))
        finally:
            inbox.close()
        return Verification(
            contents=sorted(found, key=lambda one: (one.shard, one.host, one.node)),
            silent=sorted({hosts[node] for node, _ in waiting}),
            stopped=stopped,
            differing=[
                shard
                for shard in range(shards)
                if len({one.hash for one in found if one.shard == shard and not one.error}) > 1
            ],
        )

    async def snapshot(self, *, seconds: float) -> OperatorReply:
        """Have a node make a snapshot of every shard and trim the log.

        Raises:
            Unavailable: No node can do it.
        """
        nodes = await self._serving(await heard(self._connection, self._address))
        return await self._done(nodes, OperatorCall(call="snapshot"), seconds=seconds)

    async def _gone(self, nodes: list[NodeReport]) -> list[GoneNode]:
        """Return the nodes that others know or that follow the log, and that did not answer."""
        there = {one.node for one in nodes}
        silent: dict[str, GoneNode] = {}
        for report in nodes:
            for one in report.known:
                if one.node in there or any(map(one.replaced_by, nodes)):
                    continue
                seconds = max(0, (report.time - one.heard_at) // 1000)
                if one.node not in silent or seconds < silent[one.node].silent_seconds:
                    silent[one.node] = GoneNode(
                        node=one.node, host=one.host, process=str(one.pid), silent_seconds=seconds
                    )
        with contextlib.suppress(ApiRefusal, TimeoutError, BusError):
            told = await self._jetstream.consumers(self._address.stream, seconds=ATTEMPT_SECONDS)
            for about in told:
                if NODE in about and about[NODE] not in there:
                    silent[about[NODE]] = GoneNode(
                        node=about[NODE],
                        host=about.get(HOST, "an unknown machine"),
                        process=about.get(PROCESS, "unknown"),
                        follows=True,
                    )
        return sorted(silent.values(), key=lambda one: (one.host, one.process))

    async def _following(self) -> dict[str, str]:
        """Return all nodes that follow the log, whether they answer or not, with machine and process."""
        try:
            told = await self._jetstream.consumers(self._address.stream, seconds=self._address.timeout)
        except (ApiRefusal, TimeoutError, BusError):
            what = f"the nodes of {self._address.name} can't be listed"
            raise Unavailable(await servers.no_quorum(self._address, what)) from None
        return {about[NODE]: where_of(about) for about in told if NODE in about}

    async def _serving(self, nodes: list[HeardNode]) -> list[HeardNode]:
        """Return the nodes that serve, those first that wrote last."""
        found = [one for one in nodes if not any(shard.stopped for shard in one.report.shards)]
        if not found:
            await self._log()  # says if the store or the servers are missing
            raise Unavailable(f"no node of {self._address.name} answers: start one")
        return sorted(found, key=lambda one: not any(shard.leads for shard in one.report.shards))

    async def _done(self, nodes: list[HeardNode], call: OperatorCall, *, seconds: float) -> OperatorReply:
        """Have the first node do something."""
        inbox, until = Inbox(self._connection), asyncio.get_running_loop().time() + seconds
        who = nodes[0].report
        try:
            ask(self._connection, self._address, who.node, call, reply=inbox.subject)
            told = await inbox.next(OperatorReply, until=until)
        finally:
            inbox.close()
        if told is None:
            raise Unavailable(f"the node on {who.host} (process {who.pid}) did not answer in {seconds:g} s")
        if told[1].error is not None:
            raise Unavailable(f"the node on {who.host} (process {who.pid}) refused: {told[1].error}")
        return told[1]

    async def _log(self) -> LogStatus:
        told = await self._info()
        state, cluster = told["state"], told.get("cluster") or {}
        known = told["config"].get("metadata") or {}
        peers = cluster.get("replicas") or []
        return LogStatus(
            epoch=known.get("holdfast_epoch", ""),
            shards=int(known.get("holdfast_shards", 1)),
            messages=state["messages"],
            bytes=state["bytes"],
            first=state["first_seq"],
            last=state["last_seq"],
            leader=cluster.get("leader"),
            followers=[peer["name"] for peer in peers],
            behind=[peer["name"] for peer in peers if peer.get("offline") or not peer.get("current")],
            gone=[peer["name"] for peer in peers if peer.get("offline")],
        )

    async def _info(self) -> Any:
        """Ask for the stream until the servers agree, or for too long."""
        name = self._address.name
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._address.timeout):
                while True:
                    try:
                        return await self._jetstream.api(
                            f"STREAM.INFO.{self._address.stream}", seconds=ATTEMPT_SECONDS
                        )
                    except ApiRefusal as refused:
                        if refused.code == NO_STREAM:
                            raise ValidationError(
                                f"the NATS servers at {self._address.shown} keep no store {name}", field="url"
                            ) from None
                    except (TimeoutError, BusError):
                        pass
                    await asyncio.sleep(0.1)
        raise Unavailable(await servers.no_quorum(self._address, f"the log of {name} can't be read"))


def _server_troubles(log: LogStatus, gone: list[str]) -> list[str]:
    """Return what is wrong with servers, in words: the log knows them by name, and the URL by address.

    JetStream takes some seconds to say that a server is not there. Until then, one that is behind is taken
    for one that does not answer.
    """
    if len(gone) == len(log.behind) == 1:
        return [f"the NATS server {log.behind[0]} at {gone[0]} is gone"]
    dead = log.behind if len(gone) >= len(log.behind) else log.gone
    return [
        *(f"the NATS server at {server} is gone" for server in gone),
        *(f"the NATS server {name} is gone" for name in dead),
        *(f"the NATS server {name} lacks a part of the log" for name in log.behind if name not in dead),
    ]


def _troubles(nodes: list[HeardNode]) -> list[str]:
    """Return what is wrong with nodes, in words."""
    found = [] if nodes else ["no node answers"]
    if skew_of(nodes) > MOST_SKEW:
        clocks = ", ".join(f"{one.report.host} {one.offset / 1000:+.1f} s" for one in nodes)
        found.append(f"the clocks of the nodes differ by more than a second: {clocks}")
    for one in nodes:
        for shard in one.report.shards:
            if shard.stopped:
                found.append(f"{one.report.host} does not serve shard {shard.shard}: {shard.stopped}")
            elif shard.behind > FAR_BEHIND:
                found.append(f"{one.report.host} is {shard.behind} messages behind on shard {shard.shard}")
    return found
