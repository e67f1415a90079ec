"""Making way: a node that wants to write asks the one that wrote last to release the shard.

Law: asking is speed, never safety. A node that hears nothing waits until the lease has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.lease import ShardLease
    from holdfast.engines.cluster.write_queue import WriteQueue

LEAST_HOLD_SECONDS: Final = 0.01
"""How long a node keeps a shard that another one wants, so that a group or two go through."""


class Releases(Protocol):
    """The parts of a shard that making way uses."""

    lease: ShardLease
    turns: WriteQueue

    @property
    def leads(self) -> bool:
        """True if this node wrote the last message of the log, as far as it knows."""
        ...


class MakingWay:
    """The requests of nodes for one shard.

    Args:
        shard: The shard.
        connection: The connection.
        subject: The subject of these requests.
        node: The name of this life of this node.
    """

    def __init__(self, shard: Releases, connection: Connection, *, subject: str, node: str) -> None:
        self._shard = shard
        self._connection = connection
        self._subject = subject
        self._node = node.encode()
        self.wanted = False
        """True while another node wants the lease that this one holds."""

    def listen(self) -> None:
        """Begin to hear the requests of others."""
        self._connection.listen(self._subject, self._on_request)

    def ask(self) -> None:
        """Ask the node that wrote last to let this one write."""
        self._connection.send(self._subject, self._node)

    def release(self) -> None:
        """Have the lease released between two groups."""
        self.wanted = True
        self._shard.turns.wake()

    def _on_request(self, message: Message) -> None:
        if not self._shard.leads or message.data == self._node:
            return
        lease = self._shard.lease
        if lease.held():
            hold = LEAST_HOLD_SECONDS - lease.held_for
            asyncio.get_running_loop().call_later(max(0.0, hold), self._let_go)
        else:
            lease.make_way()

    def _let_go(self) -> None:
        if self._shard.lease.held() and not self.wanted:
            self.release()
