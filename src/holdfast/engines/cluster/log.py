"""The log of a store: the stream that holds it, and how it is published to, followed and trimmed.

The stream is created once and checked at every start. It discards nothing by itself. It says which life of
the store it is (its epoch) and how many shards the store has; a replica of another life is refused. No log is
made where a replica of one exists.

A message can be stored at most once, however often it is sent: its base admits one message, and its id is
the same at every attempt. So an attempt without an answer is repeated as it is. The consumer delivers what is
stored, also to its writer, which answers as well as an acknowledgement.

The stream refuses deletions, so that nothing else can remove a message. It is trimmed by a limit of messages
per shard, which is set for a moment and then lifted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast import seams
from holdfast.bus.connection import Connection
from holdfast.bus.errors import BusError, NoResponders
from holdfast.bus.protocol import Message
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.jetstream import (
    FOR_A_WHILE,
    HEARTBEAT_SECONDS,
    NAME_IN_USE,
    NANOSECONDS,
    NO_PEERS,
    NO_STREAM,
    STREAM_EXISTS,
    WRONG_SEQUENCE,
    Ack,
    ApiRefusal,
    JetStream,
    NoMajority,
    delivered_of,
    pending_of,
)
from holdfast.engines.cluster.lease import ShardLease
from holdfast.engines.cluster.messages import Assembler, Logged, LogPlace, Proposal
from holdfast.engines.cluster.replica import Differs, Replica
from holdfast.engines.cluster.servers import no_quorum
from holdfast.errors import OutcomeUnknown, StorageFull, Unavailable, Unsupported

DUPLICATES_SECONDS: Final = 120
EPOCH: Final = "holdfast_epoch"
_SHARDS: Final = "holdfast_shards"
LIMIT: Final = "max_msgs_per_subject"
NO_LIMIT: Final = -1
TRIM_MARGIN: Final = 1000
"""The number of messages that stay although they are not needed: others arrive while the limit is set."""
TRIM_SECONDS: Final = 5.0
LIFT_ATTEMPTS: Final = 5
ATTEMPT_SECONDS: Final = 1.0
"""How long an attempt to publish waits for its acknowledgement."""
ATTEMPT_PAUSE_SECONDS: Final = 0.05
LAGS_SECONDS: Final = 3.0
"""How long a server may lead the log that lacks messages which this node has."""
_FULL: Final = frozenset({10023, 10047, 10077, 10122})
"""Codes that say that the servers have no room."""
SILENCE_SECONDS: Final = 3 * HEARTBEAT_SECONDS
"""How long a consumer may send nothing, not even a heartbeat."""
LACKING_SECONDS: Final = 15.0
"""How long the log may lack messages. An election takes a few seconds."""
FOLLOW_PAUSE_SECONDS: Final = 0.1
CONSUME_SECONDS: Final = 2.0

_log = logging.getLogger("holdfast.cluster")


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has to know of the stream."""

    epoch: str
    shards: int
    replicas: int


async def ensure(
    address: ClusterAddress, jetstream: JetStream, *, known: str | None, creates: bool, seconds: float
) -> Stream:
    """Return the stream of a store; create it if there is none, unless this node has a replica already.

    Args:
        address: The address of the store.
        jetstream: JetStream.
        known: The epoch of this node's replica, if it has one.
        creates: Whether to create a stream.
        seconds: The timeout of each call.

    Raises:
        Unsupported: The stream is not one that Holdfast made, or may lose messages.
        Unavailable: JetStream refuses for now.
        TimeoutError: Too few servers are there by now.
        Differs: The stream is that of another store than this node's replica, or there is none.
    """
    try:
        info = await jetstream.api(f"STREAM.INFO.{address.stream}", seconds=seconds)
    except ApiRefusal as refused:
        if refused.code in FOR_A_WHILE:
            raise TimeoutError("the servers are electing a leader") from None
        if refused.code != NO_STREAM:
            raise Unavailable(f"JetStream does not show the stream {address.stream}: {refused}") from None
        if known is not None:
            raise _no_second(address, known, "have no log of this name") from None
        if not creates:
            raise Unavailable(f"there is no store {address.name} at {address.shown} yet") from None
        info = await _create(address, jetstream, seconds)
    stream = _checked(address, info["config"])
    if info["config"].get(LIMIT, NO_LIMIT) > 0:  # a node died while it trimmed the log
        await lift(address, jetstream, info["config"])
    if known is not None and stream.epoch != known:
        raise _no_second(address, known, f"keep the log of another store, with the epoch {stream.epoch}")
    return stream


def _no_second(address: ClusterAddress, known: str, what: str) -> Differs:
    return Differs(
        f"{address.data} is a replica of a store {address.name} with the epoch {known}, but the NATS servers "
        f"at {address.shown} {what}. They are not the servers of that store, or they have lost its files. "
        f"Name the right servers; for a node of another store, name another folder with data= in the URL"
    )


async def _create(address: ClusterAddress, jetstream: JetStream, seconds: float) -> Any:
    body = {
        "name": address.stream,
        "subjects": [address.subject("log", "*")],
        "storage": "file",
        "num_replicas": address.replicas,
        "retention": "limits",
        "discard": "new",
        "deny_purge": True,
        "deny_delete": True,
        "allow_atomic": True,
        "duplicate_window": DUPLICATES_SECONDS * NANOSECONDS,
        "metadata": {EPOCH: seams.token(8), _SHARDS: str(address.shards)},
    }
    try:
        return await jetstream.api(f"STREAM.CREATE.{address.stream}", body, seconds=seconds)
    except ApiRefusal as refused:
        if refused.code == STREAM_EXISTS:  # another node was faster
            return await jetstream.api(f"STREAM.INFO.{address.stream}", seconds=seconds)
        if refused.code == NAME_IN_USE:
            raise Unsupported(
                f"another stream has the subjects of the store {address.name}: choose another name"
            ) from None
        if refused.code == NO_PEERS:
            raise TimeoutError("too few servers are there") from None
        raise Unavailable(
            f"JetStream can't create the stream {address.stream} on {address.replicas} servers: {refused}"
        ) from None


def _checked(address: ClusterAddress, config: Any) -> Stream:
    metadata = config.get("metadata") or {}
    if EPOCH not in metadata:
        raise Unsupported(f"the stream {address.stream} was not created by Holdfast: choose another name")
    wrong = [
        name
        for name, right in {
            "storage": "file",
            "deny_purge": True,
            "deny_delete": True,
            "allow_atomic": True,
        }.items()
        if config.get(name) != right
    ]
    wrong += [name for name in ("max_age", "max_msgs", "max_bytes") if config.get(name, -1) > 0]
    if wrong:
        raise Unsupported(
            f"the stream {address.stream} may lose what it keeps: these of its settings were changed: "
            f"{', '.join(wrong)}"
        )
    return Stream(epoch=metadata[EPOCH], shards=int(metadata[_SHARDS]), replicas=int(config["num_replicas"]))


async def trim(
    address: ClusterAddress, jetstream: JetStream, *, needed: int, margin: int = TRIM_MARGIN
) -> int:
    """Remove messages that come before a sequence, except for a margin. Return how many were removed.

    What comes after the oldest snapshot that is kept has to stay.

    Raises:
        Unavailable: JetStream refuses.
    """
    info = await _info(address, jetstream)
    state = info["state"]
    keep = max(1, state["last_seq"] - needed + 1 + margin)
    if state["messages"] <= keep:
        return 0
    try:
        await _update(address, jetstream, {**info["config"], LIMIT: keep})
    finally:
        await lift(address, jetstream, info["config"])
    removed = int(state["messages"]) - int((await _info(address, jetstream))["state"]["messages"])
    _log.info("trimmed the log of %s by %d messages, up to a snapshot", address.name, removed)
    return max(0, removed)


async def lift(address: ClusterAddress, jetstream: JetStream, config: dict[str, Any]) -> None:
    """Remove the limit, which a node that died may have left behind."""
    for attempt in range(LIFT_ATTEMPTS):
        try:
            await _update(address, jetstream, {**config, LIMIT: NO_LIMIT})
        except Unavailable:
            if attempt == LIFT_ATTEMPTS - 1:
                raise
            await asyncio.sleep(1)
        else:
            return


async def _info(address: ClusterAddress, jetstream: JetStream) -> Any:
    return await _call(jetstream, f"STREAM.INFO.{address.stream}", None)


async def _update(address: ClusterAddress, jetstream: JetStream, config: dict[str, Any]) -> None:
    await _call(jetstream, f"STREAM.UPDATE.{address.stream}", config)


async def _call(jetstream: JetStream, call: str, body: dict[str, Any] | None) -> Any:
    try:
        return await jetstream.api(call, body, seconds=TRIM_SECONDS)
    except ApiRefusal as refused:
        kind = NoMajority if refused.code in FOR_A_WHILE else Unavailable
        raise kind(f"the log can't be trimmed: {refused}") from None
    except (BusError, TimeoutError) as error:
        raise NoMajority(f"the log can't be trimmed: {str(error) or 'no answer in time'}") from None


class Publisher:
    """Publishes the messages of one shard, one at a time.

    Args:
        address: The address of the cluster.
        connection: The connection.
        jetstream: JetStream over that connection.
        replica: The shard's replica, which follows the log.
        lease: The shard's lease, which an attempt in doubt ends.
        subject: The subject of the shard's log.
        follow_again: Has another consumer follow the log, since nothing more comes from this one.
    """

    def __init__(
        self,
        address: ClusterAddress,
        connection: Connection,
        jetstream: JetStream,
        *,
        replica: Replica,
        lease: ShardLease,
        subject: str,
        follow_again: Callable[[], None],
    ) -> None:
        self._address = address
        self._connection = connection
        self._jetstream = jetstream
        self._replica = replica
        self._lease = lease
        self._subject = subject
        self._follow_again = follow_again
        self._lagging_since = self._lagged_at = -math.inf

    async def publish(self, proposal: Proposal, late: Callable[[], bool]) -> LogPlace | None:
        """Have a message stored. Return its place, or None if another message took its place.

        If neither becomes known in time, `OutcomeUnknown` is raised. `Unavailable` means that it is not
        stored.

        Args:
            proposal: The message.
            late: Returns True once its callers have given up.

        Raises:
            OutcomeUnknown: The message may be in the log, or come to be there.
            Unavailable: The message is not stored.
            StorageFull: The servers have no room.
        """
        end = seams.monotonic() + self._address.timeout
        parts = proposal.parts(self._connection.max_payload)
        doubt = False
        reason = "the servers refuse it"
        while True:
            try:
                ack = await self._jetstream.publish(self._subject, parts, seconds=ATTEMPT_SECONDS)
            except NoResponders:
                reason = "no server leads the log"
            except BusError as error:
                reason = str(error)
            except TimeoutError:
                # The message may be stored, and another node may write on top of it before this one knows. So
                # this node stops answering from its file until the log has said what became of it.
                doubt = True
                self._lease.give_up()
            else:
                if ack.error is None:
                    return LogPlace(ack.seq, proposal.id)
                reason = ack.error.description
                if ack.error.err_code == WRONG_SEQUENCE and ack.last > proposal.base.seq:
                    # Something is in its place: another node's message, or this one by an earlier attempt.
                    await self._catch_up(ack.last, end, doubt=doubt)
                    place = self._replica.stored(proposal.id)
                    if place is None and doubt and self._replica.skipped_from(proposal.base.seq):
                        raise OutcomeUnknown("a snapshot has brought what is in the place of the message")
                    return place
                if not doubt:  # a refusal says nothing about an earlier attempt in doubt
                    _require_passing(ack)
                if ack.error.err_code == WRONG_SEQUENCE:
                    reason = await self._lags(ack.last, proposal.base.seq)
            if (place := self._replica.stored(proposal.id)) is not None:
                return place
            if late() and not doubt:
                return None
            if late() or seams.monotonic() > end:
                raise await self._given_up(reason, doubt=doubt)
            await asyncio.sleep(ATTEMPT_PAUSE_SECONDS)

    async def _lags(self, last: int, base: int) -> str:
        """Note that the server that leads the log lacks a message that this node has. Return that in words.

        A server that has just begun to lead may not have read all of its files. One that has lost a part of
        them would refuse every message, so that another one has to lead.
        """
        words = f"the server that leads the log has {last} as its last message, and this node has {base}"
        now = seams.monotonic()
        if now - self._lagged_at > LAGS_SECONDS:
            self._lagging_since = now
        self._lagged_at = now
        if now - self._lagging_since > LAGS_SECONDS:
            self._lagging_since = now
            _log.warning("%s: asking another server to lead it", words)
            with contextlib.suppress(ApiRefusal, BusError, TimeoutError):
                call = f"STREAM.LEADER.STEPDOWN.{self._address.stream}"
                await self._jetstream.api(call, seconds=ATTEMPT_SECONDS)
        return words

    async def _catch_up(self, seq: int, end: float, *, doubt: bool) -> None:
        """Wait until the replica has applied the log up to a sequence, which tells whose message is there.

        A consumer that skipped the last message of the log waits for the next one, and nobody can write that
        while every node lacks the last one.
        """
        before = self._replica.at
        try:
            async with asyncio.timeout(max(0.0, end - seams.monotonic())):
                await self._replica.reach(seq)
        except TimeoutError:
            if self._replica.at is before:
                self._follow_again()
            kind = OutcomeUnknown if doubt else Unavailable
            raise kind(f"this node is behind the log: it has {self._replica.at}, the log {seq}") from None

    async def _given_up(self, reason: str, *, doubt: bool) -> OutcomeUnknown | Unavailable:
        if doubt:
            return OutcomeUnknown(
                await no_quorum(self._address, "a message was sent, but not acknowledged in time")
            )
        return Unavailable(await no_quorum(self._address, f"nothing was written, since {reason}"))


def is_late(deadline: int | None, now: Callable[[], int]) -> bool:
    """Return whether a deadline has passed."""
    return deadline is not None and now() > deadline


def never() -> bool:
    """Stand for a deadline that there is not."""
    return False


def _require_passing(ack: Ack) -> None:
    """Raise the error for a refusal that repeating the message would not change.

    A sequence that is not beyond the base comes from a leader that knows less than this node.
    """
    assert ack.error is not None
    code = ack.error.err_code
    if code in _FULL:
        raise StorageFull(f"the NATS servers have no room for the log: {ack.error.description}")
    if code not in FOR_A_WHILE and code != WRONG_SEQUENCE:
        raise Unavailable(f"the NATS servers refuse to store the write: {ack.error.description}")


class Follower:
    """A consumer of one shard's log that is replaced when it falls silent or leaves a gap.

    Messages are passed on in the order of the log, each at least once.

    Args:
        connection: The connection.
        jetstream: JetStream over that connection.
        stream: The name of the stream.
        subject: The subject of the shard's log.
        start: Returns the sequence of the last message that was applied. Delivery begins with that message.
        take: Applies an entry. Returns False if a message before it is missing.
        about: What the consumer says about this node to those who list the consumers.
        lost: Makes the error to raise if the log keeps lacking messages that were applied, or come next.
    """

    def __init__(
        self,
        connection: Connection,
        jetstream: JetStream,
        *,
        stream: str,
        subject: str,
        start: Callable[[], int],
        take: Callable[[Logged], Awaitable[bool]],
        lost: Callable[[], Exception],
        about: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = stream
        self._subject = subject
        self._start = start
        self._take = take
        self._lost = lost
        self._about = about
        self._lacking: tuple[int, float] | None = None
        self._latest: Message | None = None
        self._again = asyncio.Event()
        self.caught_up = asyncio.Event()
        """Set once everything was applied that the log held when this node began to follow it."""

    @property
    def behind(self) -> int:
        """How many messages the log had beyond the last one that was delivered."""
        return 0 if self._latest is None else pending_of(self._latest)

    def restart(self) -> None:
        """Start a new consumer at once: the connection was lost."""
        self._again.set()

    async def run(self) -> None:
        """Follow the log until cancelled, or until `take` raises an error."""
        while True:
            inbox = self._connection.new_inbox()
            messages: asyncio.Queue[Message] = asyncio.Queue()
            subscription = self._connection.listen(inbox, messages.put_nowait)
            self._again.clear()
            try:
                await self._follow(inbox, messages)
            except (TimeoutError, BusError, ApiRefusal) as error:
                _log.debug("following %s is interrupted: %r", self._subject, error)
                await asyncio.sleep(FOLLOW_PAUSE_SECONDS)
            finally:
                subscription.cancel()

    async def _follow(self, inbox: str, messages: asyncio.Queue[Message]) -> None:
        """Apply what one consumer delivers, until it leaves a gap or falls silent."""
        start = self._start()
        there = left = await self._jetstream.consume(
            self._stream,
            self._subject,
            start=start,
            inbox=inbox,
            seconds=CONSUME_SECONDS,
            about=self._about,
        )
        if not left and start:  # delivery begins with a message that was applied
            await self._lack(start)
            return
        if not left:
            self.caught_up.set()
        assembler = Assembler()
        while not self._again.is_set():
            message = await _next(messages)
            if message.status:
                if self._answer(message) and messages.empty() and left > 0:
                    return  # the server has sent everything, but not all of it came
                continue
            # A connection that leaves a server may get a message twice.
            left = min(left, there - delivered_of(message))
            self._latest = message
            entry = assembler.add(message)
            if entry is not None:
                if not await self._take(entry):
                    await self._lack(self._start())
                    return
                self._lacking = None
            if left <= 0:
                self.caught_up.set()

    async def _lack(self, start: int) -> None:
        """Pause before the log is asked again. Servers that have just started may not know all of it yet."""
        now = asyncio.get_running_loop().time()
        if self._lacking is None or self._lacking[0] != start:
            self._lacking = (start, now)
        if now - self._lacking[1] > LACKING_SECONDS:
            raise self._lost()
        await asyncio.sleep(FOLLOW_PAUSE_SECONDS)

    def _answer(self, message: Message) -> bool:
        """Answer the server's flow control. Return True if the message says that nothing is left to send."""
        answer = message.reply or message.header("Nats-Consumer-Stalled")
        if answer:
            self._connection.send(answer, b"")
        return not answer


async def _next(messages: asyncio.Queue[Message]) -> Message:
    if not messages.empty():
        return messages.get_nowait()
    async with asyncio.timeout(SILENCE_SECONDS):
        return await messages.get()
