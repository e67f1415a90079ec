"""The lease of a shard: for how long one node may answer reads from its own file, and how it is handed over.

Every message of the log names its writer and how long the others keep off. The writer counts that time from
the moment at which it first sent the message; the others count it from the moment at which they receive it,
with a margin. So the writer's lease ends before any other node writes. While several nodes write, their
messages grant no lease: passing it on would take longer than a lost race for the next place in the log.

Time is that of the machine's own ticks, which go on while it is suspended. Only the last message of a shard
counts: its writer had waited for the leases before it.

A node that wants to write asks the one that wrote last to release the shard. That is speed, never safety: a
node that hears nothing waits until the lease has ended.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast import seams
from holdfast.bus.connection import Connection
from holdfast.bus.protocol import Message
from holdfast.engines.cluster.write_queue import WriteQueue

LEASE_MS: Final = 1000
"""The length of a lease that a message grants to its writer."""
MARGIN: Final = 1.05
"""How much longer the others keep off: clocks of machines run at slightly different rates."""
RENEW_SECONDS: Final = LEASE_MS / 1000 * 0.5
"""How much of a lease is left when a reader has it renewed."""
YIELD_SECONDS: Final = 0.05
"""How long a node makes way for another that wants to write, unless that one writes earlier."""
SHARED_SECONDS: Final = 1.0
"""For how long after another node wrote the messages of this one grant no lease."""
LEAST_HOLD_SECONDS: Final = 0.01
"""How long a node keeps a shard that another one wants, so that a group or two go through."""


class ShardLease:
    """Who may answer for a shard, as far as this node knows. Times are those of `seams.ticks`."""

    def __init__(self) -> None:
        self._until = 0.0
        self._keep_off = 0.0
        self._since = 0.0
        self._foreign = -SHARED_SECONDS
        self.seen = 0
        """The sequence of the last message of another node, which the file may not show yet."""
        self.leads = False
        """True if this node wrote the last message of the log, as far as it knows, lease or not."""

    def held(self) -> bool:
        """True while this node may answer from its file. Ask again after looking into the file."""
        return seams.ticks() < self._until

    @property
    def left(self) -> float:
        """For how many seconds this node may answer from its file; less than 0 if it may not."""
        return self._until - seams.ticks()

    @property
    def ageing(self) -> bool:
        """True if the lease should be renewed because it is being used."""
        return self.left < RENEW_SECONDS

    @property
    def held_for(self) -> float:
        """For how many seconds this node has held the shard without a break."""
        return seams.ticks() - self._since if self.held() else 0.0

    @property
    def shared(self) -> bool:
        """True while another node writes, too."""
        return seams.ticks() - self._foreign < SHARED_SECONDS

    @property
    def wait(self) -> float:
        """The seconds until this node may write; 0 if it may now."""
        return max(0.0, self._keep_off - seams.ticks())

    def grant(self, sent: float, *, milliseconds: int) -> None:
        """Note that a message of this node, first sent at `sent`, is in the log."""
        if not self.held():
            self._since = sent
        self._until = sent + milliseconds / 1000
        self._keep_off = 0.0

    def see(self, seq: int, milliseconds: int, *, wrote: bool) -> None:
        """Note a message of another node, received just now. One that wrote nothing served its readers."""
        self.seen = max(self.seen, seq)
        self._until = 0.0
        now = seams.ticks()
        if wrote:
            self._foreign = now
        self._keep_off = now + milliseconds / 1000 * MARGIN

    def give_up(self) -> None:
        """Stop answering from the file: a message is in doubt, or about to be sent that grants no lease."""
        self._until = 0.0

    def make_way(self) -> None:
        """Keep off for a moment at least, so that another node can write. It may hold a lease already."""
        self._until = 0.0
        self._keep_off = max(self._keep_off, seams.ticks() + YIELD_SECONDS)


class LeaseHandover:
    """The requests of nodes to write to one shard.

    Args:
        lease: The lease of the shard.
        queue: The queue of its writers, which releases the lease between two groups.
        connection: The connection.
        subject: The subject of these requests.
        node: The name of this life of this node.
    """

    def __init__(
        self, lease: ShardLease, queue: WriteQueue, connection: Connection, *, subject: str, node: str
    ) -> None:
        self._lease = lease
        self._queue = queue
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
        self._queue.wake()

    def _on_request(self, message: Message) -> None:
        if not self._lease.leads or message.data == self._node:
            return
        if self._lease.held():
            hold = LEAST_HOLD_SECONDS - self._lease.held_for
            asyncio.get_running_loop().call_later(max(0.0, hold), self._let_go)
        else:
            self._lease.make_way()

    def _let_go(self) -> None:
        if self._lease.held() and not self.wanted:
            self.release()
