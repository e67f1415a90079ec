"""Reading a shard so that every acknowledged write is seen.

The node that wrote last answers from its file while its lease runs. Any other node first asks that one how
far the log is, and waits until its own replica is there. If no node holds the lease, the reader takes it with
an empty message.

A message may reach other nodes before its writer knows that it is stored. If one of them answered from it at
once, a later reader could get the older value from the writer. So a node that has read further than the one
with the lease waits until that one has come as far.

Law: the lease is checked after the look into the file. What was answered once, no later answer takes back.
Readers that wait share a round, but none joins a round that has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from holdfast.bus.errors import BusError
from holdfast.engine import LATER
from holdfast.engines.cluster.lease import RENEW_SECONDS
from holdfast.engines.cluster.write_queue import no_time
from holdfast.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.bus.connection import Connection, Requester
    from holdfast.bus.protocol import Message
    from holdfast.engine import Later
    from holdfast.engines.cluster.lease import ShardLease
    from holdfast.engines.cluster.replica import Replica
    from holdfast.engines.cluster.write_queue import WriteQueue
    from holdfast.rows import Address, Row

T = TypeVar("T")

ASK_SECONDS: Final = 0.1
"""How long a reader waits for the node that holds the lease."""
MOST_DIGITS: Final = 20
"""The length of the longest sequence of a log."""
PAUSE_SECONDS: Final = 0.02
"""How long a reader pauses after a question that got no answer. Without a connection it fails at once."""
FOLLOW_SECONDS: Final = 10.0
"""How long a reader waits until its replica has followed the log."""

_log = logging.getLogger("holdfast.cluster")


class Read(Protocol):
    """The parts of a shard that its readers use."""

    name: str
    lease: ShardLease
    replica: Replica
    turns: WriteQueue

    async def barrier(self) -> None:
        """Wait until the replica has all that was acknowledged before this call."""
        ...

    def require(self) -> None:
        """Raise the error because of which this node can't serve the shard, if there is one."""
        ...


class Reads:
    """The readers of one shard.

    Args:
        shard: The shard.
        connection: The connection.
        requests: Requests over that connection.
        index: The subject at which the holder of the lease says how far the log is.
    """

    def __init__(self, shard: Read, connection: Connection, requests: Requester, *, index: str) -> None:
        self._shard = shard
        self._connection = connection
        self._requests = requests
        self._index = index
        self._asked: asyncio.Task[None] | None = None
        self._queued: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._holder_at = 0
        """How far nodes that held the lease are known to have come."""
        connection.listen(index, self._on_index)

    async def close(self) -> None:
        """Stop what is under way."""
        tasks = [task for task in (self._asked, self._queued, self._renewing) if task is not None]
        tasks += self._telling
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """See `Engine.glance`: the file answers while the lease runs."""
        found = self._shard.replica.file.glance(addresses, now)
        left = self._shard.lease.left
        if left < RENEW_SECONDS:
            if left <= 0:
                return LATER
            self._renew()
        return found

    async def fresh(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what a look into the file finds, at a moment when the file had all that was acknowledged."""
        lease = self._shard.lease
        while True:
            self._shard.require()
            if not lease.held():
                await self._confirmed()
                found = await look()
                await self._reached(self._shard.replica.latest)
                return found
            if lease.ageing:
                self._renew()
            found = await look()
            if lease.held():
                return found

    async def recent(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what a look finds, as `fresh` does, but write nothing to the log if no node has a lease."""
        self._shard.require()
        if not self._shard.lease.held():
            await self._heard()
        return await look()

    async def _reached(self, seq: int) -> None:
        """Wait until no node can answer by its lease from before a message that was read here."""
        shard, end = self._shard, time.monotonic() + FOLLOW_SECONDS
        while seq > self._holder_at and shard.lease.wait:
            shard.require()
            await self._heard(seq)
            if seq > self._holder_at:
                await self._pause(end)

    def _renew(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renewed(), name="holdfast cluster lease")

    async def _renewed(self) -> None:
        try:
            await self._shard.turns.take((), no_time, force=True)
        except HoldfastError as error:
            _log.debug("renewing the lease of %s failed: %s", self._shard.name, error.message)

    async def _confirmed(self) -> None:
        """Wait until the replica has all that was acknowledged before this call."""
        if self._queued is None:
            self._queued = asyncio.create_task(self._round(self._asked), name="holdfast cluster read")
        await asyncio.shield(self._queued)

    async def _round(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._asked, self._queued = self._queued, None  # readers that come from here on need another round
        shard, end = self._shard, time.monotonic() + FOLLOW_SECONDS
        while not shard.lease.held():
            shard.require()
            if not shard.lease.wait:
                await shard.barrier()  # an empty message, stored only on top of all others
                return
            if await self._heard():
                return
            await self._pause(end)

    async def _pause(self, end: float) -> None:
        """Wait a moment before the node that holds the lease is asked again, at most until its lease ends.

        Raises:
            Unavailable: It is past the end.
        """
        if time.monotonic() > end:
            raise Unavailable(f"the node that holds {self._shard.name} does not answer")
        await asyncio.sleep(min(PAUSE_SECONDS, self._shard.lease.wait))

    async def _heard(self, least: int = 0) -> bool:
        """Ask the node that holds the lease how far the log is, and follow until there. False without one.

        That node replies when it has come as far as `least`.
        """
        try:
            reply = await self._requests.ask(self._index, str(least).encode(), seconds=ASK_SECONDS)
            seq = int(reply.data)
            async with asyncio.timeout(FOLLOW_SECONDS):
                await self._shard.replica.reach(seq)
        except (TimeoutError, BusError):
            return False
        self._holder_at = max(self._holder_at, seq)
        return True

    def _on_index(self, message: Message) -> None:
        replica = self._shard.replica
        asked = message.data[:MOST_DIGITS]
        least = int(asked) if asked.isdigit() else 0  # an older node sends nothing
        least = max(least, replica.latest)  # readers here may have seen it
        if replica.at.seq >= least:
            self._tell_index(message)
        elif self._shard.lease.held():
            task = asyncio.create_task(self._tell_index_at(least, message), name="holdfast cluster index")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell_index_at(self, least: int, message: Message) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                await self._shard.replica.reach(least)
            self._tell_index(message)

    def _tell_index(self, message: Message) -> None:
        seq = self._shard.replica.at.seq
        if message.reply and self._shard.lease.held():
            self._connection.send(message.reply, str(seq).encode())
