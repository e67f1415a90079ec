"""Operators of a whole cluster: what they ask, and what every node answers.

An operator is no node. It has no replica and writes nothing to the log; a node does that for it. An answer of
a node never delays the log, except for the moment in which the contents of one place are pinned.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import sqlite3
from collections.abc import Awaitable, Coroutine, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from holdfast import seams
from holdfast.bus.connection import Connection, Requester
from holdfast.bus.errors import BusError, LoginRefused
from holdfast.bus.protocol import Message
from holdfast.engine import ClusterFigures
from holdfast.engines.cluster import servers
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.jetstream import NO_STREAM, ApiRefusal, JetStream, NodeConnection
from holdfast.engines.cluster.membership import Membership, lacking, offline
from holdfast.engines.cluster.messages import LogPlace
from holdfast.engines.cluster.reports import (
    EVERY,
    HOST,
    MOST_SKEW,
    NODE,
    PROCESS,
    ContentsReport,
    Inbox,
    KnownNode,
    NodeReport,
    OperatorCall,
    OperatorReply,
    SnapshotNote,
    TimedReport,
    ask_node,
    lead_of,
    node_reports,
    skew_of,
    tell_nodes,
    where_of,
    wrong_clock,
)
from holdfast.engines.cluster.shard import Shard
from holdfast.engines.cluster.snapshots import SnapshotMaker, Snapshots
from holdfast.engines.sql import sections
from holdfast.engines.sqlite.setup import connect
from holdfast.errors import HoldfastError, PermissionDenied, Unavailable, ValidationError
from holdfast.extras import DISTRIBUTION

FAR_BEHIND: Final = 10_000
"""The number of messages from which a node counts as lagging."""
ATTEMPT_SECONDS: Final = 2.0
WATCH_SECONDS: Final = 15.0
"""How often a node compares its clock with those of the others."""
REMEMBERED_SECONDS: Final = 24 * 3600.0
"""How long a node that has fallen silent is remembered."""
ROWS: Final = 500
"""The number of rows that are read at a time."""
_TABLES: Final = {
    "holdfast_namespaces": (("name",), sections.NAMESPACE),
    **{table.table: (table.key, (*table.key, *table.columns)) for table in sections.TABLES.values()},
}

_log = logging.getLogger("holdfast.cluster")
_call = msgspec.json.Decoder(OperatorCall)


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
    lags: dict[str, int] = {}
    """The messages that a follower has yet to get, by name; only of those that lack some."""


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
        nodes = await node_reports(self._connection, self._address)
        notes = [note for shard in range(log.shards) for note in await self._snapshots.notes(shard)]
        reports = [one.report for one in nodes]
        gone_nodes = await self._gone(reports)
        gone_servers = await servers.missing_of(self._address)
        if len(log.behind) > len(gone_servers):  # the URL does not name all servers; nodes may know them
            known = {server for report in reports for server in report.servers}
            gone_servers = sorted({*gone_servers, *await servers.missing(sorted(known))})
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
        everyone = await node_reports(self._connection, self._address)
        nodes = await self._serving(everyone)
        shards = len(nodes[0].report.shards)
        hosts = {one.report.node: f"{one.report.host} (process {one.report.pid})" for one in everyone}
        serving = {one.report.node for one in nodes}
        stopped = sorted(hosts[node] for node in hosts.keys() - serving)
        unheard = {node: where for node, where in (await self._following()).items() if node not in hosts}
        hosts |= unheard
        waiting = {(node, shard) for node in serving | unheard.keys() for shard in range(shards)}
        inbox, contents = Inbox(self._connection), list[ContentsReport]()
        until = asyncio.get_running_loop().time() + seconds
        try:
            await self._done(nodes, OperatorCall(call="verify", inbox=inbox.subject), seconds=seconds)
            while waiting and (reply := await inbox.next(ContentsReport, until=until)) is not None:
                contents.append(reply[1])
                waiting.discard((reply[1].node, reply[1].shard))
        finally:
            inbox.close()
        return Verification(
            contents=sorted(contents, key=lambda one: (one.shard, one.host, one.node)),
            silent=sorted({hosts[node] for node, _ in waiting}),
            stopped=stopped,
            differing=[
                shard
                for shard in range(shards)
                if len({one.hash for one in contents if one.shard == shard and not one.error}) > 1
            ],
        )

    async def snapshot(self, *, seconds: float) -> OperatorReply:
        """Have a node make a snapshot of every shard and trim the log.

        Raises:
            Unavailable: No node can do it.
        """
        nodes = await self._serving(await node_reports(self._connection, self._address))
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
            for about in await self._jetstream.consumers(self._address.stream, seconds=ATTEMPT_SECONDS):
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
            consumers = await self._jetstream.consumers(self._address.stream, seconds=self._address.timeout)
        except (ApiRefusal, TimeoutError, BusError):
            what = f"the nodes of {self._address.name} can't be listed"
            raise Unavailable(await servers.no_quorum(self._address, what)) from None
        return {about[NODE]: where_of(about) for about in consumers if NODE in about}

    async def _serving(self, nodes: list[TimedReport]) -> list[TimedReport]:
        """Return the nodes that serve, those first that wrote last."""
        serving = [one for one in nodes if not any(shard.stopped for shard in one.report.shards)]
        if not serving:
            await self._log()  # says if the store or the servers are missing
            raise Unavailable(f"no node of {self._address.name} answers: start one")
        return sorted(serving, key=lambda one: not any(shard.leads for shard in one.report.shards))

    async def _done(self, nodes: list[TimedReport], call: OperatorCall, *, seconds: float) -> OperatorReply:
        """Have the first node do something."""
        inbox, until = Inbox(self._connection), asyncio.get_running_loop().time() + seconds
        who = nodes[0].report
        try:
            ask_node(self._connection, self._address, who.node, call, reply=inbox.subject)
            reply = await inbox.next(OperatorReply, until=until)
        finally:
            inbox.close()
        if reply is None:
            raise Unavailable(f"the node on {who.host} (process {who.pid}) did not answer in {seconds:g} s")
        if reply[1].error is not None:
            raise Unavailable(f"the node on {who.host} (process {who.pid}) refused: {reply[1].error}")
        return reply[1]

    async def _log(self) -> LogStatus:
        info = await self._info()
        state, cluster = info["state"], info.get("cluster") or {}
        metadata = info["config"].get("metadata") or {}
        return LogStatus(
            epoch=metadata.get("holdfast_epoch", ""),
            shards=int(metadata.get("holdfast_shards", 1)),
            messages=state["messages"],
            bytes=state["bytes"],
            first=state["first_seq"],
            last=state["last_seq"],
            leader=cluster.get("leader"),
            followers=[peer["name"] for peer in cluster.get("replicas") or []],
            behind=lacking(info),
            gone=offline(info),
            lags={peer["name"]: peer["lag"] for peer in cluster.get("replicas") or [] if peer.get("lag")},
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


def _troubles(nodes: list[TimedReport]) -> list[str]:
    """Return what is wrong with nodes, in words."""
    troubles = [] if nodes else ["no node answers"]
    if skew_of(nodes) > MOST_SKEW:
        clocks = ", ".join(f"{one.report.host} {one.offset / 1000:+.1f} s" for one in nodes)
        troubles.append(f"the clocks of the nodes differ by more than a second: {clocks}")
    for one in nodes:
        for shard in one.report.shards:
            if shard.stopped:
                troubles.append(f"{one.report.host} does not serve shard {shard.shard}: {shard.stopped}")
            elif shard.behind > FAR_BEHIND:
                troubles.append(f"{one.report.host} is {shard.behind} messages behind on shard {shard.shard}")
    return troubles


@functools.cache
def _installed() -> str:
    """Return the version that is installed. It is looked up once: that takes 2 ms."""
    return version(DISTRIBUTION)


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
        self._version = _installed()
        self._maker = maker
        self._host = seams.host()
        self._shards: Sequence[Shard] = ()
        self._reports: list[TimedReport] = []
        self._known: dict[str, KnownNode] = {}
        self._left: dict[str, int] = {}
        self._visits = False
        self._wrong_clock: HoldfastError | None = None
        self.begun = False
        """True once the store has taken its time from this node's clock."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, shards: Sequence[Shard], *, visits: bool = False) -> None:
        """Begin to answer, and to make snapshots as the log grows.

        Args:
            shards: The shards of this node.
            visits: Whether the node is there for one command only.
        """
        self._shards, self._visits = shards, visits
        # A connection that leaves a server listens at two for a while. A queue group gets a message once.
        for who in (EVERY, self._node):
            self._connection.listen(self._address.subject("node", who), self._take, queue=self._node)
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
            pid=seams.pid(),
            version=self._version,
            folder=str(self._address.data.absolute()),
            time=int(seams.wall() * 1000),
            shards=[shard.report() for shard in self._shards],
            known=list(self._known.values()),
            servers=servers.other_servers(self._address),
            visits=self._visits,
            begun=self.begun,
        )

    def figures(self) -> ClusterFigures:
        """See `SharedStorage.figures`."""
        reports = [shard.report() for shard in self._shards]
        return ClusterFigures(
            nodes=max(1, len(self._reports)),
            skew=skew_of(self._reports),
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

    def require_right_clock(self) -> None:
        """Raise the error because of which this node can't go by its clock, if there is one."""
        if self._wrong_clock is not None:
            raise self._wrong_clock

    async def compare_clocks(self, *, opening: bool = False) -> None:
        """Compare the clocks of all nodes, and serve no more while this one's differs from most others.

        Args:
            opening: Whether this node is being opened, and does not wait long for the others.

        Raises:
            HoldfastError: The others can't be asked.
        """
        self._reports = await node_reports(
            self._connection, self._address, opening=self._node if opening else None
        )
        self._remember([one.report for one in self._reports])
        if (skew := skew_of(self._reports)) > MOST_SKEW:
            _log.error(
                "the clocks of the nodes of %s differ by %.1f s, so entries expire at wrong times",
                self._address.name,
                skew,
            )
        lead = lead_of(self._reports, self._node)
        self._wrong_clock = wrong_clock(lead) if abs(lead) > MOST_SKEW else None
        for shard in self._shards:
            shard.suspend(self._wrong_clock)

    def _remember(self, reports: Sequence[NodeReport]) -> None:
        """Remember the nodes that answered, and those that they remember: this one may have started since."""
        now = int(seams.wall() * 1000)
        there = [one for one in reports if not one.visits]
        known = [one for report in reports for one in report.known if one.node not in self._left]
        for one in (*known, *(_known(report, now) for report in there)):
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
            me = _known(self.report(), int(seams.wall() * 1000))
            tell_nodes(self._connection, self._address, OperatorCall(call=call, node=me))

    def _note(self, message: Message) -> None:
        """Note that another node has joined or left."""
        try:
            call = _call.decode(message.data)
        except msgspec.DecodeError:  # of a version that says it otherwise
            return
        now = int(seams.wall() * 1000)
        if call.node is None or call.node.node == self._node:
            return
        if call.call == "left":
            self._left[call.node.node] = now
            self._known.pop(call.node.node, None)
        elif call.call == "joined":
            joined = msgspec.structs.replace(call.node, heard_at=now)
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
        self._begin(self._send_contents(shard, place, contents, inbox))

    async def _send_contents(
        self, shard: int, place: LogPlace, contents: Awaitable[Contents], inbox: str
    ) -> None:
        try:
            hashed = await contents
        except Exception as error:
            self._send(inbox, self._contents(shard, place, error=str(error)))
        else:
            self._send(inbox, self._contents(shard, place, hashed))

    def _contents(
        self, shard: int, place: LogPlace, contents: Contents | None = None, *, error: str | None = None
    ) -> ContentsReport:
        return ContentsReport(
            node=self._node,
            host=self._host,
            shard=shard,
            seq=place.seq,
            rows=0 if contents is None else contents.rows,
            hash="" if contents is None else contents.hash,
            error=error,
        )

    def _take(self, message: Message) -> None:
        if message.reply:
            self._begin(self._answer(message))
        else:
            self._note(message)

    async def _answer(self, message: Message) -> None:
        reply: msgspec.Struct
        try:
            call = _call.decode(message.data)
            reply = self.report() if call.call == "report" else await self._done(call)
        except HoldfastError as error:
            reply = OperatorReply(error=error.message)
        except msgspec.DecodeError as error:
            reply = OperatorReply(error=f"the request can't be read: {error}")
        self._send(message.reply, reply)

    async def _done(self, call: OperatorCall) -> OperatorReply:
        if call.call == "verify":
            for shard in self._shards:
                await shard.put(check=call.inbox)
            return OperatorReply()
        if call.call == "snapshot":
            snapshots, trimmed = await self._maker.make(self._shards)
            return OperatorReply(snapshots=snapshots, trimmed=trimmed)
        raise ValidationError(f"this version of Holdfast does not know the request {call.call!r}")

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


class Contents(msgspec.Struct, frozen=True):
    """The number of rows of a replica, and the hash of all of them, to compare replicas with each other.

    Two replicas that hold the same rows have the same hash, whatever their files look like. What a node keeps
    for itself, its clock and its place in the log, is left out.
    """

    rows: int
    hash: str


async def contents_of(path: Path) -> Awaitable[Contents]:
    """Begin to read a file as it is now. The result, which may take long, is to be awaited."""
    thread = seams.pool("holdfast contents")
    loop = asyncio.get_running_loop()
    try:
        connection = await loop.run_in_executor(thread, _begun, path)
    except BaseException:
        thread.shutdown(wait=False)
        raise
    contents = loop.run_in_executor(thread, _summed, connection)
    thread.shutdown(wait=False)
    return contents


def _begun(path: Path) -> sqlite3.Connection:
    connection = connect(path, patience=5)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM holdfast_meta").fetchone()  # takes the snapshot
    return connection


def _summed(connection: sqlite3.Connection) -> Contents:
    digest, count = hashlib.sha256(), 0
    with contextlib.closing(connection):
        for table, (key, columns) in _TABLES.items():
            digest.update(table.encode())
            cursor = connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(key)}")
            while rows := cursor.fetchmany(ROWS):
                count += len(rows)
                for row in rows:
                    digest.update(msgspec.msgpack.encode(row))
    return Contents(count, digest.hexdigest())
