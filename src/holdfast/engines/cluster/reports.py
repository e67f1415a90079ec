"""What nodes tell operators and each other, and how they are asked: all at once, or one of them.

Reports are plain data, as JSON on the wire. A field that a version does not know is ignored, and one that is
added has a default, so that nodes of different versions understand each other.

Every node answers for itself. One that does not answer in time is not there, as far as the asker knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple, TypeVar

import msgspec

from holdfast import seams
from holdfast.bus.connection import Connection
from holdfast.bus.protocol import Message
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.errors import Unavailable

T = TypeVar("T")

NODE: Final = "holdfast_node"
HOST: Final = "holdfast_host"
PROCESS: Final = "holdfast_process"
ANSWER_SECONDS: Final = 1.0
"""How long nodes are given to answer."""
BRIEF_SECONDS: Final = 0.2
"""Seconds that a node which is opened waits for the others' clocks."""
MOST_SKEW: Final = 1.0
"""By how many seconds the clocks of nodes may differ."""
EVERY: Final = "all"
"""Stands for all nodes in the subject of a question."""


def about_node(node: str) -> dict[str, str]:
    """Return what the consumers of a node on this machine say about it."""
    return {NODE: node, HOST: seams.host(), PROCESS: str(seams.pid())}


def where_of(about: Mapping[str, str]) -> str:
    """Return the machine and the process of a node from what its consumer says."""
    return f"{about.get(HOST, 'an unknown machine')} (process {about.get(PROCESS, 'unknown')})"


class ShardReport(msgspec.Struct, frozen=True, kw_only=True):
    """A shard on a node: its place in the log, and whether the node serves it."""

    shard: int
    seq: int
    id: str
    behind: int = 0
    """Messages that the log has and this node has not applied, as far as it knows."""
    leads: bool = False
    """True if the node wrote last: it holds the shard's lease, or takes it with the next call."""
    stopped: str | None = None
    """The error because of which the node does not serve the shard."""
    bytes: int = 0


class KnownNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that another one has heard, and when it did last, by that one's clock in milliseconds."""

    node: str
    host: str
    pid: int
    folder: str
    heard_at: int = 0

    def replaced_by(self, other: NodeReport | KnownNode) -> bool:
        """Return whether another node is this one after it was started again."""
        return self.node != other.node and (self.host, self.folder) == (other.host, other.folder)


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as it sees itself."""

    node: str
    host: str
    pid: int
    version: str
    folder: str
    time: int
    """The node's clock, in milliseconds."""
    shards: list[ShardReport]
    known: list[KnownNode] = []
    """The other nodes that this one has heard, and that have not told it that they leave."""
    servers: list[str] = []
    """The addresses of the other machines' NATS servers, as this node was told them, without logins."""
    visits: bool = False
    """True if it is there for one command, such as a copy, and nobody misses it afterwards."""
    begun: bool = True
    """True once it has taken its time from its clock."""


class ContentsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a shard on a node, right after one message of the log."""

    node: str
    host: str
    shard: int
    seq: int
    rows: int = 0
    hash: str = ""
    error: str | None = None


class SnapshotNote(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a shard that is kept in JetStream."""

    shard: int
    id: str
    seq: int
    """The place in the log of the last message that it contains."""
    first: int
    """The sequence of its first part in the stream of snapshots."""
    parts: int
    bytes: int
    stored: int
    """The size as it is kept, compressed."""
    sha256: str
    made_at: int
    node: str


class OperatorCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request of an operator to a node: `report`, `verify` or `snapshot`.

    Nodes tell each other that they have `joined` or that they have `left`, which nobody answers.
    """

    call: str
    inbox: str = ""
    node: KnownNode | None = None


class OperatorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a request: the snapshots that were made, or an error."""

    snapshots: list[SnapshotNote] = []
    trimmed: int = 0
    """The number of messages that were removed from the log."""
    error: str | None = None


class TimedReport(NamedTuple):
    """The report of a node, and by how many milliseconds its clock is ahead of the asker's."""

    report: NodeReport
    offset: float


class Inbox:
    """The replies to a question, as they arrive.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.subject = connection.new_inbox()
        self._messages: asyncio.Queue[tuple[float, Message]] = asyncio.Queue()
        self._subscription = connection.listen(self.subject, self._take)

    async def next(self, kind: type[T], *, until: float) -> tuple[float, T] | None:
        """Return the next reply with the time of its arrival; None if none comes until a time of the loop."""
        try:
            async with asyncio.timeout_at(until):
                while True:
                    arrived, message = await self._messages.get()
                    if not message.status:
                        return arrived, msgspec.json.decode(message.data, type=kind)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Listen no more."""
        self._subscription.cancel()

    def _take(self, message: Message) -> None:
        self._messages.put_nowait((seams.wall(), message))


def skew_of(nodes: Sequence[TimedReport]) -> float:
    """Return by how many seconds the clocks of nodes differ at most."""
    offsets = [one.offset for one in nodes]
    return (max(offsets) - min(offsets)) / 1000 if offsets else 0.0


def lead_of(nodes: Sequence[TimedReport], node: str) -> float:
    """Return by how many seconds a node's clock is ahead of most others.

    Of fewer than three clocks nobody can tell which is wrong. A node that has not taken its time yet then
    goes by those of the others that have, and all others have a lead of 0.
    """
    own = next((one for one in nodes if one.report.node == node), None)
    if own is None:
        return 0.0
    right = [one.offset for one in nodes]
    if len(nodes) < 3:
        right = [one.offset for one in nodes if one.report.begun and not own.report.begun]
    return (own.offset - median(right)) / 1000 if right else 0.0


def wrong_clock(lead: float) -> Unavailable:
    """Return the error of a node whose clock is so many seconds ahead of most others, or behind them."""
    where = "ahead of" if lead > 0 else "behind"
    return Unavailable(
        f"this node does not serve, because its clock is {abs(lead):.1f} s {where} those of the other nodes: "
        "mend the time service of its machine"
    )


async def node_reports(
    connection: Connection, address: ClusterAddress, *, opening: str | None = None
) -> list[TimedReport]:
    """Return the reports of all nodes that answer, by host and process.

    Args:
        connection: The connection.
        address: The address of the store.
        opening: The node that is being opened and asks. It does not wait long, and no longer than until it
            and two others have answered and their clocks agree.
    """
    inbox, sent = Inbox(connection), seams.wall()
    until = asyncio.get_running_loop().time() + (ANSWER_SECONDS if opening is None else BRIEF_SECONDS)
    reports: dict[str, TimedReport] = {}  # a connection that leaves a server hears each of them twice
    try:
        ask_node(connection, address, EVERY, OperatorCall(call="report"), reply=inbox.subject)
        while (reply := await inbox.next(NodeReport, until=until)) is not None:
            arrived, report = reply
            reports.setdefault(report.node, TimedReport(report, report.time - (sent + arrived) * 500))
            if opening in reports and len(reports) >= 3 and skew_of([*reports.values()]) <= MOST_SKEW:
                break
    finally:
        inbox.close()
    return sorted(reports.values(), key=lambda one: (one.report.host, one.report.pid))


def tell_nodes(connection: Connection, address: ClusterAddress, call: OperatorCall) -> None:
    """Tell all nodes something. Nobody answers, and it is lost if there is no connection."""
    connection.send(address.subject("node", EVERY), msgspec.json.encode(call))


def ask_node(
    connection: Connection, address: ClusterAddress, node: str, call: OperatorCall, *, reply: str
) -> None:
    """Send a question to a node.

    Raises:
        Unavailable: There is no connection.
    """
    if not connection.send(address.subject("node", node), msgspec.json.encode(call), reply=reply):
        raise Unavailable(f"the connection to the NATS servers at {address.shown} is lost")
