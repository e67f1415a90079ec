"""Forwarding writes to the node that wrote to a shard last, so that nodes do not compete for the log.

A node whose callers write while another node writes sends the group to that one. It decides the group beside
its own, in the same messages of the log, and returns the results. If it does not take the group, the sender
takes its turn at the log instead.

The sender names the last place in the log that it knows. The other node takes the group only if no other node
has written since then. If no reply comes, the sender stores an empty message: after that the group can't come
to be stored, and the log says whether it was, since a message names the forwarded groups that it contains.

Forwarding is speed, never safety. A group takes effect once, wherever it is decided.

Both sides may have different versions. A group that the other side can't read is refused whole; commands that
are not listed here are decided by the node that was called.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias, Union

import msgspec

from holdfast import seams, tracing
from holdfast.audit.keyring import Unsettled
from holdfast.bus.connection import Connection
from holdfast.bus.protocol import Message
from holdfast.commands import Command, Deleted, Done, Got, Missed, Result, Stored, Versions, kinds_of
from holdfast.decide import Outcome
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.lease import ShardLease
from holdfast.engines.cluster.messages import HEADROOM, ForwardedName, Logged
from holdfast.engines.cluster.replica import Replica
from holdfast.engines.cluster.write_queue import WriteQueue
from holdfast.errors import HoldfastError, OutcomeUnknown, QuotaExceeded
from holdfast.rows import Record, Run
from holdfast.wire.errors import error_fields, error_of

LOOK_SECONDS: Final = 0.25
"""How often a sender looks whether the other node still writes."""
LAST_SECONDS: Final = 1.0
"""How long a sender waits for the results of a group that is in the log."""
OWN_SECONDS: Final = 1.0
"""For how long after a group of its own a node takes those of others. Later it lets them write themselves."""

FORMAT: Final = 2
"""The number of the format of groups and of their replies, which every group names first."""

if TYPE_CHECKING:
    Carried: TypeAlias = Command
else:
    Carried = Union[tuple(kind for kind in kinds_of(Command) if kind.forwards)]  # noqa: UP007 - of their number
CarriedResult: TypeAlias = Stored | Missed | Got | Deleted | Versions | Done

_NOT_TAKEN: Final = b"-"
_DOUBT: Final = b"?"
_MORE: Final = b"+"
_LAST: Final = b"."
_PART: Final = struct.Struct(">cI")
"""What a part of a reply begins with: whether it is the last one, and its number."""

_log = logging.getLogger("holdfast.cluster")


class ForwardedGroup(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A group of commands, its id, and the last sequence of the log that its sender knew."""

    format: int
    id: str
    after: int
    commands: list[Carried]


class _Refusal(msgspec.Struct, tag="_Refusal"):
    """An error, as JSON, and the number of bytes over a quota."""

    fields: bytes
    excess: int = 0


class ForwardedOutcome(msgspec.Struct, array_like=True):
    """The results of a group, the changes to tell listeners of, and the place in the log that has them."""

    seq: int
    results: list[CarriedResult | _Refusal]
    journal: list[Record]
    runs: list[Run]
    expired: bool


_forwards = attrgetter("forwards")
_encoder = msgspec.msgpack.Encoder()
_group = msgspec.msgpack.Decoder(ForwardedGroup)
_outcome = msgspec.msgpack.Decoder(ForwardedOutcome)


def can_carry(commands: Sequence[Command]) -> bool:
    """Return whether a group can be forwarded."""
    return all(map(_forwards, commands))


def group_as_bytes(name: str, after: int, commands: Sequence[Command]) -> bytes:
    """Return a group as bytes."""
    return _encoder.encode((FORMAT, name, after, commands))


def group_of_bytes(data: bytes) -> tuple[str, int, list[Carried]]:
    """Return the id of a group, the last sequence that its sender knew, and its commands.

    Raises:
        msgspec.DecodeError: This version can't read it.
    """
    group = _group.decode(data)
    if group.format != FORMAT:
        raise msgspec.DecodeError(f"format {group.format} instead of {FORMAT}")
    return group.id, group.after, group.commands


def outcome_as_bytes(outcome: Outcome, seq: int) -> bytes:
    """Return what the sender of a group needs of its outcome, which the log has by a sequence."""
    results = [_refusal(one) if isinstance(one, HoldfastError) else one for one in outcome.results]
    return _encoder.encode((seq, results, outcome.journal, outcome.runs, outcome.expired))


def outcome_of_bytes(data: bytes) -> tuple[int, Outcome]:
    """Return the outcome of a group that another node has stored, and the sequence that the log had then."""
    decided = _outcome.decode(data)
    results: list[Result | HoldfastError] = [
        _error(one) if isinstance(one, _Refusal) else one for one in decided.results
    ]
    return decided.seq, Outcome(
        results=results,
        namespaces=[],
        rows={},
        journal=decided.journal,
        trims={},
        runs=decided.runs,
        expired=decided.expired,
    )


def _refusal(error: HoldfastError) -> _Refusal:
    excess = error.excess if isinstance(error, QuotaExceeded) else 0
    return _Refusal(msgspec.json.encode(error_fields(error)), excess)


def _error(refusal: _Refusal) -> HoldfastError:
    error = error_of(msgspec.json.decode(refusal.fields))
    if isinstance(error, QuotaExceeded):
        error.excess = refusal.excess
    return error


class Moved(Exception):
    """A forwarded group is not decided here, since another node has written meanwhile. Nothing is stored."""


class SentGroup:
    """A group that was sent and waits for its reply. `logged` once the log is known to have it."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.count = 0
        """How many parts the reply has, once that is known."""
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.logged = False


class Forwarding:
    """The groups of one shard that this node sends to others, and takes from them.

    Args:
        address: The address of the cluster.
        connection: The connection.
        number: The number of the shard.
        node: The name of this life of this node.
        replica: The file of the shard.
        lease: The lease of the shard.
        queue: The queue of its writers.
    """

    def __init__(
        self,
        address: ClusterAddress,
        connection: Connection,
        *,
        number: int,
        node: str,
        replica: Replica,
        lease: ShardLease,
        queue: WriteQueue,
    ) -> None:
        self._name = f"shard {number} of {address.name}"
        self._replica = replica
        self._lease = lease
        self._queue = queue
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
        # A connection that leaves a server listens at two for a while. A queue group gets a message once.
        connection.listen(f"{self._at}.{node}", self._on_group, queue=node)
        connection.listen(f"{self._inbox}.*", self._on_reply)

    def own(self, now: Callable[[], int]) -> None:
        """Note that a caller of this node writes here."""
        self._clock = now
        self._own_until = seams.monotonic() + OWN_SECONDS

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
        if not self._lease.shared or not can_carry(commands):
            return None
        name = seams.token(8)
        try:
            data = group_as_bytes(name, self._replica.at.seq, commands)
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
            seq, outcome = outcome_of_bytes(reply)
        except msgspec.DecodeError:
            raise OutcomeUnknown(
                "another node has decided the write, but this version of Holdfast can't read the result"
            ) from None
        try:
            async with asyncio.timeout(self._timeout):
                await self._replica.reach(seq)
        except TimeoutError:
            return None if needed else outcome
        return outcome

    async def _replied(self, sent: SentGroup) -> bytes:
        """Wait for the reply for as long as the other node writes."""
        end = seams.monotonic() + self._timeout
        while not sent.reply.done():
            await asyncio.wait([sent.reply], timeout=LOOK_SECONDS)
            if not sent.reply.done() and (not self._lease.shared or seams.monotonic() > end):
                return _DOUBT
        return sent.reply.result()

    async def _settled(self, sent: SentGroup, now: Callable[[], int]) -> bytes:
        """Find out whether a group took effect."""
        try:
            await self._queue.take((), now, force=True)
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
        if kind not in (_MORE, _LAST) or len(message.data) < _PART.size:
            sent.reply.set_result(_NOT_TAKEN if kind == _NOT_TAKEN else _DOUBT)
            return
        # A connection that leaves a server may get parts in another order, or twice.
        _, number = _PART.unpack_from(message.data)
        sent.parts[number] = message.data[_PART.size :]
        if kind == _LAST:
            sent.count = number + 1
        if len(sent.parts) == sent.count:
            sent.reply.set_result(b"".join(sent.parts[number] for number in range(sent.count)))

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
            _log.debug("a forwarded group of %s is left to its sender: %r", self._name, error)
            self._connection.send(message.reply, _NOT_TAKEN)
        except Exception as defect:
            _log.error("a forwarded group of %s failed", self._name, exc_info=defect)
            self._connection.send(message.reply, _DOUBT)
        else:
            self._reply(message.reply, data)

    def _reply(self, inbox: str, data: bytes) -> None:
        room = self._connection.max_payload - HEADROOM
        for number, start in enumerate(range(0, len(data), room)):
            sign = _LAST if start + room >= len(data) else _MORE
            self._connection.send(inbox, _PART.pack(sign, number) + data[start : start + room])

    async def _decided(self, data: bytes) -> bytes:
        """Decide a group and return the results."""
        if not self._lease.leads or self._clock is None or seams.monotonic() > self._own_until:
            raise Moved
        name, after, commands = group_of_bytes(data)
        self.require([ForwardedName(name, after)])
        began = 0 if tracing.spans is None else seams.wall_ns()
        outcome = await self._queue.take(commands, self._clock, forwarded=ForwardedName(name, after))
        if tracing.spans is not None:
            tracing.spans.record_engine(commands, began, forwarded=True)
        return outcome_as_bytes(outcome, self._replica.at.seq)
