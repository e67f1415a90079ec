"""What nodes tell operators: where they are in the log, what they hold, and how a request of theirs ended.

Law: plain data, as JSON on the wire. A field that a version does not know is ignored, and one that is added
has a default, so that nodes of different versions understand each other.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

import msgspec

NODE: Final = "holdfast_node"
HOST: Final = "holdfast_host"
PROCESS: Final = "holdfast_process"


def about_node(node: str) -> dict[str, str]:
    """Return what the consumers of a node on this machine say about it."""
    return {NODE: node, HOST: socket.gethostname(), PROCESS: str(os.getpid())}


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
