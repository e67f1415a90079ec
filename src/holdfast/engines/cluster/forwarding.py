"""Forwarding writes to the node that wrote to a shard last, so that nodes do not compete for the log.

A node whose callers write while another node writes sends the group to that one. It decides the group beside
its own, in the same messages of the log, and returns the results. If it does not take the group, the sender
takes its turn at the log instead.

The sender names the last place in the log that it knows. The other node takes the group only if no other node
has written since then. If no reply comes, the sender stores an empty message: after that the group can't come
to be stored, and the log says whether it was, since a message names the forwarded groups that it contains.

Law: forwarding is speed, never safety. A group takes effect once, wherever it is decided.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast.audit.keyring import Unsettled
from holdfast.engines.cluster import forwarded
from holdfast.engines.cluster.messages import HEADROOM, ForwardedName
from holdfast.errors import HoldfastError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.lease import ShardLease
    from holdfast.engines.cluster.messages import Logged
    from holdfast.engines.cluster.replica import Replica
    from holdfast.engines.cluster.write_queue import WriteQueue

LOOK_SECONDS: Final = 0.25
"""How often a sender looks whether the other node still writes."""
LAST_SECONDS: Final = 1.0
"""How long a sender waits for the results of a group that is in the log."""
OWN_SECONDS: Final = 1.0
"""For how long after a group of its own a node takes those of others. Later it lets them write themselves."""

_NOT_TAKEN: Final = b"-"
_DOUBT: Final = b"?"
_MORE: Final = b"+"
_LAST: Final = b"."

_log = logging.getLogger("holdfast.cluster")


class Moved(Exception):
    """A forwarded group is not decided here, since another node has written meanwhile. Nothing is stored."""


class SentGroup:
    """A group that was sent and waits for its reply. `logged` once the log is known to have it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.logged = False


class Writes(Protocol):
    """The parts of a shard that forwarding uses."""

    name: str
    lease: ShardLease
    replica: Replica
    turns: WriteQueue

    @property
    def leads(self) -> bool:
        """True if this node wrote the last message of the log, as far as it knows."""
        ...


class Forwarding:
    """The groups of one shard that this node sends to others, and takes from them.

    Args:
        shard: The shard.
        address: The address of the cluster.
        connection: The connection.
        number: The number of the shard.
        node: The name of this life of this node.
    """

    def __init__(
        self, shard: Writes, address: ClusterAddress, connection: Connection, *, number: int, node: str
    ) -> None:
        self._shard = shard
        self._connection = connection
        self._at = address.subject("forward", number)
        self._inbox = connection.new_inbox()
        self._timeout = address.timeout
        self._writer = ""
        self._foreign = 0
        self._clock: Callable[[], int] | None = None
        self._own_until = 0.0
        self._sent: dict[str, SentGroup] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        connection.listen(f"{self._at}.{node}", self._on_group)
        connection.listen(f"{self._inbox}.*", self._on_reply)

    def own(self, now: Callable[[], int]) -> None:
        """Note that a caller of this node writes here."""
        self._clock = now
        self._own_until = time.monotonic() + OWN_SECONDS

    def saw(self, entry: Logged) -> None:
        """Note a message of another node, before it is applied."""
        if entry.place.seq > self._foreign:
            self._foreign = entry.place.seq
            self._writer = entry.node
        for name in entry.forwarded:
            if name in self._sent:
                self._sent[name].logged = True

    def skipped(self, seq: int) -> None:
        """Note that the replica was replaced: what the log had up to a sequence was not seen here."""
        self._foreign = max(self._foreign, seq)
        for sent in self._sent.values():
            sent.logged = True

    def require(self, names: Sequence[ForwardedName]) -> None:
        """Refuse forwarded groups if a message of another node has come since they were sent.

        Raises:
            Moved: One has.
        """
        if any(self._foreign > name.after for name in names):
            raise Moved

    async def close(self) -> None:
        """Stop answering."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # The sender.

    async def send(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome | None:
        """Have the node that writes now decide a group. Return None if this node has to do it.

        A group without commands is a barrier: afterwards the replica has all that was acknowledged before.

        Raises:
            OutcomeUnknown: The group took effect, or may have, but its results are lost.
        """
        if not self._shard.lease.shared or not forwarded.can_carry(commands):
            return None
        name = secrets.token_hex(8)
        try:
            data = forwarded.group_as_bytes(name, self._shard.replica.at.seq, commands)
        except OverflowError:  # a number that the format does not hold
            return None
        if len(data) > self._connection.max_payload - HEADROOM:
            return None
        sent = self._sent[name] = SentGroup()
        try:
            if not self._connection.send(f"{self._at}.{self._writer}", data, reply=f"{self._inbox}.{name}"):
                return None
            reply = await self._replied(sent)
            if reply == _DOUBT:
                reply = await self._settled(sent, now) if commands else _NOT_TAKEN
        finally:
            del self._sent[name]
        return None if reply == _NOT_TAKEN else await self._followed(reply, needed=not commands)

    async def _followed(self, reply: bytes, *, needed: bool) -> Outcome | None:
        """Return the outcome in a reply, once the replica has it as well. Only a barrier needs that."""
        try:
            seq, outcome = forwarded.outcome_of_bytes(reply)
        except msgspec.DecodeError:
            raise OutcomeUnknown(
                "another node has decided the write, but this version of Holdfast can't read the result"
            ) from None
        try:
            async with asyncio.timeout(self._timeout):
                await self._shard.replica.reach(seq)
        except TimeoutError:
            return None if needed else outcome
        return outcome

    async def _replied(self, sent: SentGroup) -> bytes:
        """Wait for the reply for as long as the other node writes."""
        end = time.monotonic() + self._timeout
        while not sent.reply.done():
            await asyncio.wait([sent.reply], timeout=LOOK_SECONDS)
            if not sent.reply.done() and (not self._shard.lease.shared or time.monotonic() > end):
                return _DOUBT
        return sent.reply.result()

    async def _settled(self, sent: SentGroup, now: Callable[[], int]) -> bytes:
        """Find out whether a group took effect."""
        try:
            await self._shard.turns.take((), now, force=True)
        except HoldfastError as error:
            raise OutcomeUnknown(
                f"another node was asked to write, and did not reply: {error.message}"
            ) from None
        if not sent.logged:
            return _NOT_TAKEN
        await asyncio.wait([sent.reply], timeout=LAST_SECONDS)
        if not sent.reply.done() or sent.reply.result() == _DOUBT:
            raise OutcomeUnknown(
                "the write is in the log, but the node that made it did not report the result"
            )
        return sent.reply.result()

    def _on_reply(self, message: Message) -> None:
        sent = self._sent.get(message.subject.rpartition(".")[2])
        if sent is None or sent.reply.done():
            return
        kind = _NOT_TAKEN if message.status else message.data[:1]
        sent.parts.append(message.data[1:])
        if kind == _LAST:
            sent.reply.set_result(b"".join(sent.parts))
        elif kind != _MORE:
            sent.reply.set_result(kind)

    # The node that is asked.

    def _on_group(self, message: Message) -> None:
        task = asyncio.create_task(self._answer(message), name="holdfast cluster forwarded")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Message) -> None:
        try:
            data = await self._decided(message.data)
        except OutcomeUnknown:
            self._connection.send(message.reply, _DOUBT)
        except (Moved, Unsettled, HoldfastError, msgspec.DecodeError) as error:
            _log.debug("a forwarded group of %s is left to its sender: %r", self._shard.name, error)
            self._connection.send(message.reply, _NOT_TAKEN)
        except Exception as defect:
            _log.error("a forwarded group of %s failed", self._shard.name, exc_info=defect)
            self._connection.send(message.reply, _DOUBT)
        else:
            self._reply(message.reply, data)

    def _reply(self, inbox: str, data: bytes) -> None:
        room = self._connection.max_payload - HEADROOM
        for start in range(0, len(data), room):
            sign = _LAST if start + room >= len(data) else _MORE
            self._connection.send(inbox, sign + data[start : start + room])

    async def _decided(self, data: bytes) -> bytes:
        """Decide a group and return the results."""
        if not self._shard.leads or self._clock is None or time.monotonic() > self._own_until:
            raise Moved
        name, after, commands = forwarded.group_of_bytes(data)
        self.require([ForwardedName(name, after)])
        outcome = await self._shard.turns.take(commands, self._clock, forwarded=ForwardedName(name, after))
        return forwarded.outcome_as_bytes(outcome, self._shard.replica.at.seq)
