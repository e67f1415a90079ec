"""Questions to all nodes of a store at once.

Law: every node answers for itself. One that does not answer in time is not there, as far as the asker knows.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from holdfast.engines.cluster.reports import NodeReport, OperatorCall
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.address import ClusterAddress

T = TypeVar("T")

ANSWER_SECONDS: Final = 1.0
"""How long nodes are given to answer."""
MOST_SKEW: Final = 1.0
"""By how many seconds the clocks of nodes may differ."""
EVERY: Final = "all"
"""Stands for all nodes in the subject of a question."""


class HeardNode(NamedTuple):
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
        self._messages.put_nowait((time.time(), message))


def skew_of(nodes: Sequence[HeardNode]) -> float:
    """Return by how many seconds the clocks of nodes differ at most."""
    offsets = [one.offset for one in nodes]
    return (max(offsets) - min(offsets)) / 1000 if offsets else 0.0


def lead_of(nodes: Sequence[HeardNode], node: str) -> float:
    """Return by how many seconds a node's clock is ahead of most others; 0 with fewer than three clocks."""
    own = [one.offset for one in nodes if one.report.node == node]
    if not own or len(nodes) < 3:
        return 0.0
    return (own[0] - median(one.offset for one in nodes)) / 1000


def wrong_clock(lead: float) -> Unavailable:
    """Return the error of a node whose clock is so many seconds ahead of most others, or behind them."""
    where = "ahead of" if lead > 0 else "behind"
    return Unavailable(
        f"this node does not serve, because its clock is {abs(lead):.1f} s {where} those of the other nodes: "
        "mend the time service of its machine"
    )


async def heard(connection: Connection, address: ClusterAddress) -> list[HeardNode]:
    """Return the reports of all nodes that answer, by host and process."""
    inbox, sent = Inbox(connection), time.time()
    until = asyncio.get_running_loop().time() + ANSWER_SECONDS
    found: list[HeardNode] = []
    try:
        ask(connection, address, EVERY, OperatorCall(call="report"), reply=inbox.subject)
        while (told := await inbox.next(NodeReport, until=until)) is not None:
            arrived, report = told
            found.append(HeardNode(report, report.time - (sent + arrived) * 500))
    finally:
        inbox.close()
    return sorted(found, key=lambda one: (one.report.host, one.report.pid))


def tell(connection: Connection, address: ClusterAddress, call: OperatorCall) -> None:
    """Tell all nodes something. Nobody answers, and it is lost if there is no connection."""
    connection.send(address.subject("node", EVERY), msgspec.json.encode(call))


def ask(
    connection: Connection, address: ClusterAddress, node: str, call: OperatorCall, *, reply: str
) -> None:
    """Send a question to a node.

    Raises:
        Unavailable: There is no connection.
    """
    if not connection.send(address.subject("node", node), msgspec.json.encode(call), reply=reply):
        raise Unavailable(f"the connection to the NATS servers at {address.shown} is lost")
