"""A shard: a part of the namespaces, with a log, a replica and a lease of its own.

Writing: decide on the rows of this node's replica, publish the outcome on top of the last message that the
replica has applied, and save it once the log has it. If another node was faster, catch up and decide again.

Reading: the node that wrote last answers from its file while its lease runs. Any other node first asks that
one how far the log is, and waits until its own replica is there. If no node holds the lease, the reader takes
it with an empty message.

A message may reach other nodes before its writer knows that it is stored. If one of them answered from it at
once, a later reader could get the older value from the writer. So a node that has read further than the one
with the lease waits until that one has come as far.

Nothing is answered that a newer message could contradict, neither a value nor a refusal, and what was
answered once, no later answer takes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from holdfast import seams
from holdfast.bus.connection import Connection, Requester
from holdfast.bus.errors import BusError
from holdfast.bus.protocol import Message
from holdfast.commands import Command
from holdfast.decide import Outcome
from holdfast.engine import LATER, Later
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.forwarding import Forwarding, Moved
from holdfast.engines.cluster.jetstream import JetStream, NoMajority
from holdfast.engines.cluster.lease import LEASE_MS, RENEW_SECONDS, LeaseHandover, ShardLease
from holdfast.engines.cluster.log import Follower, Publisher, is_late, never
from holdfast.engines.cluster.messages import (
    HEADROOM,
    ForwardedName,
    Logged,
    LogPlace,
    Proposal,
    encode_outcome,
)
from holdfast.engines.cluster.replica import ClosedToWrites, LogGap, Replica
from holdfast.engines.cluster.reports import ShardReport, about_node
from holdfast.engines.cluster.write_queue import NOTHING, WriteQueue, in_halves, no_time
from holdfast.engines.sqlite.errors import DiskFailed
from holdfast.engines.sqlite.sql import Statement
from holdfast.errors import HoldfastError, InternalError, OutcomeUnknown, Refused, Transient, Unavailable
from holdfast.rows import Address, Row

T = TypeVar("T")

WANT_SECONDS: Final = 0.25
"""How often a node that waits for a lease asks its holder to release it."""
RETRY_SECONDS: Final = 1.0
ASK_SECONDS: Final = 0.1
"""How long a reader waits for the node that holds the lease."""
MOST_DIGITS: Final = 20
"""The length of the longest sequence of a log."""
READ_PAUSE_SECONDS: Final = 0.02
"""How long a reader pauses after a question that got no answer. Without a connection it fails at once."""
FOLLOW_SECONDS: Final = 10.0
"""How long a reader waits until its replica has followed the log."""

_log = logging.getLogger("holdfast.cluster")


class Shard:
    """One shard on this node.

    Args:
        number: The number of the shard.
        address: The address of the cluster.
        node: The name of this life of this node.
        connection: The connection.
        requests: Requests over that connection.
        jetstream: JetStream over that connection.
        replica: The shard's file.
    """

    def __init__(
        self,
        number: int,
        address: ClusterAddress,
        *,
        node: str,
        connection: Connection,
        requests: Requester,
        jetstream: JetStream,
        replica: Replica,
    ) -> None:
        self.number = number
        self.name = f"shard {number} of {address.name}"
        self._address = address
        self._node = node
        self._connection = connection
        self.replica = replica
        self.lease = ShardLease()
        self.queue = WriteQueue(self._commit, self._release)
        self._handover = LeaseHandover(
            self.lease, self.queue, connection, subject=address.subject("want", number), node=node
        )
        subject = address.subject("log", number)
        self.follower = Follower(
            connection,
            jetstream,
            stream=address.stream,
            subject=subject,
            start=lambda: replica.at.seq,
            take=self._take,
            lost=replica.lost,
            about=about_node(node),
        )
        self._publisher = Publisher(
            address,
            connection,
            jetstream,
            replica=replica,
            lease=self.lease,
            subject=subject,
            follow_again=self.follower.restart,
        )
        self._following: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self.reads = Reads(self, connection, requests, index=address.subject("index", number))
        self.forwarding = Forwarding(
            address,
            connection,
            number=number,
            node=node,
            replica=replica,
            lease=self.lease,
            queue=self.queue,
        )
        self._doubt = False
        self._halted: HoldfastError | None = None
        self._halted_at = -1
        """The sequence of the last message that was applied before the next one failed."""
        self._suspended: HoldfastError | None = None
        self.loads = False
        """True if this node may use a store into which a load is under way."""

    async def open(self) -> None:
        """Open the replica and begin to follow the log. Return when it has caught up.

        Raises:
            HoldfastError: The file can't be used, contradicts the log, or the log does not come in time.
        """
        await self.replica.open()
        self._handover.listen()
        self._begin_to_follow()
        await self._caught_up()

    async def close(self) -> None:
        """Finish what was accepted, release the lease, and close the file."""
        await self.forwarding.close()
        await self.queue.close()
        # Nothing waits here any more. An empty message that grants no lease lets others write at once.
        if self.lease.held() and self._halted is None:
            self._handover.release()
            await self.queue.close()
        await self.reads.close()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self.replica.close()

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`."""
        self.require()
        if not self.lease.leads and (done := await self.forwarding.send(commands, now)) is not None:
            return done
        self.forwarding.own(now)
        return await self.queue.take(commands, now)

    async def put(
        self,
        data: bytes = b"",
        also: Sequence[Statement] = (),
        *,
        check: str = "",
        allow: Callable[[], None] = lambda: None,
    ) -> None:
        """Have a message stored that needs no decision, with the statements that it stands for.

        `allow` may raise. It is called at the place in the log that the message follows.
        """
        while True:
            await self._turn()
            allow()
            place = await self._publish(self.replica.at, data, NOTHING, never, also=also, check=check)
            if place is not None:
                return

    async def barrier(self) -> None:
        """Wait until the replica has all that was acknowledged before this call."""
        if self.lease.leads or await self.forwarding.send((), no_time) is None:
            await self.queue.take((), no_time)

    def report(self) -> ShardReport:
        """Return what operators want to know of this shard."""
        at, stopped = self.replica.at, self._halted or self._suspended
        return ShardReport(
            shard=self.number,
            seq=at.seq,
            id=at.id,
            behind=self.follower.behind,
            leads=self.lease.leads,
            stopped=None if stopped is None else stopped.message,
            bytes=self.replica.path.stat().st_size if self.replica.path.exists() else 0,
        )

    def require(self) -> None:
        """Raise the error because of which this node can't serve the shard, if there is one.

        That a load is under way is judged by the replica, which may hear a moment late that it has ended. To
        ask the log first would make every reader write to it, between the messages of the load.
        """
        self._require_following()
        if not self.loads:
            self.replica.status.require_finished(self._address.name)

    def _begin_to_follow(self) -> None:
        self._following = asyncio.create_task(self._follow(), name=f"holdfast follows {self.name}")

    def _require_following(self) -> None:
        if self._following is not None and self._following.cancelled():  # as all tasks of the program were
            self._begin_to_follow()
        if (error := self._halted or self._suspended) is not None:
            raise error

    def suspend(self, error: HoldfastError | None) -> None:
        """Serve no more because of an error; serve again with None."""
        self._suspended = error
        if error is not None:
            self.lease.give_up()

    async def _follow(self) -> None:
        while True:
            try:
                if await self.replica.reopen():
                    self.forwarding.skipped(self.replica.at.seq)
                await self.follower.run()
            except LogGap as gap:
                if not await self._renewed(gap):
                    return
            except (Transient, DiskFailed) as error:
                self._halted = Unavailable(f"this node can't follow {self.name}: {error.message}")
                self._halted_at = self.replica.at.seq if self.replica.opened else -1
                _log.error("%s; retrying", self._halted.message)
                await asyncio.sleep(RETRY_SECONDS)
            except OutcomeUnknown as error:
                # The file may lack a message of the log. That is no outcome of what is asked from now on.
                self._halt(Unavailable(f"this node stopped serving {self.name}, restart it: {error.message}"))
                return
            except HoldfastError as error:
                self._halt(error)
                return
            except Exception as defect:
                _log.error("following %s failed", self.name, exc_info=defect)
                self._halt(InternalError(f"this node failed to apply the log of {self.name}"))
                return

    async def _renewed(self, gap: LogGap) -> bool:
        """Go on from a snapshot, or try again: the log was trimmed past this replica. False without one."""
        self._halted = Unavailable(f"this node is fetching a snapshot of {self.name}")
        self._halted_at = -1
        self.lease.give_up()
        try:
            renewed = await self.replica.renew()
        except (Transient, DiskFailed, OSError) as error:
            why = (
                (error.strerror or "the disk failed").lower() if isinstance(error, OSError) else error.message
            )
            self._halted = Unavailable(f"this node needs a snapshot of {self.name}: {why}")
            _log.error("%s; retrying", self._halted.message)
            await asyncio.sleep(RETRY_SECONDS)
            return True
        except HoldfastError as error:
            self._halt(error)
            return False
        except Exception as defect:
            _log.error("fetching a snapshot of %s failed", self.name, exc_info=defect)
            self._halt(InternalError(f"this node failed to fetch a snapshot of {self.name}"))
            return False
        self.forwarding.skipped(self.replica.at.seq)
        if not renewed:
            self._halt(gap)
        return renewed

    def _halt(self, error: HoldfastError) -> None:
        self._halted = error
        self.lease.give_up()
        self.follower.caught_up.set()  # waiting longer would not help
        _log.critical("%s", error.message)

    async def _take(self, entry: Logged) -> bool:
        current, foreign = entry.place.seq >= self.replica.at.seq, entry.node != self._node
        if foreign:
            self.forwarding.saw(entry)
        if foreign and current:
            # Before the file shows the message: a reader must not be answered from it by a lease that this
            # node has lost, since its writer may not know yet that it is stored.
            self.lease.see(entry.place.seq, entry.lease, wrote=bool(entry.data))
        applied = await self.replica.take(entry)
        follows = applied and self.replica.at.seq > self._halted_at  # the last one comes once more
        if follows and isinstance(self._halted, Unavailable):
            _log.warning("this node follows %s again", self.name)
            self._halted = None
        if applied and current and foreign:
            self.lease.leads = False
        return applied

    async def _caught_up(self) -> None:
        caught_up, before = self.follower.caught_up, None
        while not caught_up.is_set():
            if self.replica.at is before:
                raise NoMajority(f"the log of {self.name} did not arrive in time")
            before = self.replica.at
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._address.timeout):
                    await caught_up.wait()
        self._require_following()

    async def _commit(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        force: bool,
        forwarded: Sequence[ForwardedName] = (),
    ) -> Outcome:
        """Decide a group and have the outcome stored."""
        if self._doubt and commands:
            await self._settle_doubt(now)
        confirmed = False
        while True:
            await self._turn()
            await self.replica.settle()
            base = self.replica.at  # before the rows are loaded: what comes meanwhile makes the log refuse
            self.forwarding.require(forwarded)
            try:
                outcome = await self._decided(commands, now)
            except Exception as error:
                if self.replica.at is not base:
                    continue  # it was decided on rows that were changing
                if confirmed or self.lease.held() or not isinstance(error, (Refused, ClosedToWrites)):
                    raise
                # Another node may have written what would not be refused. After a message of this node the
                # replica has all that was acknowledged before.
                await self._commit((), now, True)
                confirmed = True
                continue
            # A refusal or a change of nothing needs no message if it is true of the latest state: this node
            # still holds the lease, so nobody else has written, and nothing was applied here meanwhile.
            if outcome.empty and not force and self.lease.held() and self.replica.at is base:
                return outcome
            data = encode_outcome(outcome)
            large = len(data) > self._connection.max_payload - HEADROOM
            if len(commands) > 1 and (large or (seams.BUGGIFY and seams.maybe("cluster.group_too_large"))):
                if forwarded:
                    raise Moved  # half a group must not take effect here and the whole at its sender
                return await in_halves(lambda half: self._commit(half, now, False), commands)
            late = partial(is_late, outcome.deadline, now)
            if late():
                continue  # deciding again refuses the late commands
            names = tuple(name.id for name in forwarded)
            if await self._publish(base, data, outcome, late, forwarded=names) is not None:
                return outcome
            self._handover.ask()

    async def _decided(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Decide a group on the rows of this node's replica.

        Raises:
            HoldfastError: The group as a whole is refused, as far as the replica knows, or the file failed.
        """
        if not commands:
            return NOTHING
        self.replica.status.require_open(self._address.name)
        return await self.replica.file.decide(commands, now)

    async def _settle_doubt(self, now: Callable[[], int]) -> None:
        """Have an empty message stored before anything else, so that a refusal of what follows is certain."""
        await self._commit((), now, True)
        self._doubt = False

    async def _publish(
        self,
        base: LogPlace,
        data: bytes,
        outcome: Outcome,
        late: Callable[[], bool],
        *,
        also: Sequence[Statement] = (),
        check: str = "",
        forwarded: tuple[str, ...] = (),
    ) -> LogPlace | None:
        """Publish an outcome and save it. Return its place, or None if another message took its place."""
        async with self._writing:
            # Whether the message grants a lease is decided in its turn: the message before it may grant one.
            alone = not self._handover.wanted and not self.lease.shared
            if seams.BUGGIFY and seams.maybe("cluster.no_lease"):
                alone = False
            milliseconds = LEASE_MS if alone else 0
            if not milliseconds:
                self.lease.give_up()  # others may write once they have the message, before this node knows
            proposal = Proposal(
                id=seams.token(8),
                base=base,
                node=self._node,
                lease=milliseconds,
                data=data,
                check=check,
                forwarded=forwarded,
            )
            self.replica.expect(proposal.id, outcome, also, check)
            # The lease counts from the first attempt. The others count theirs from the delivery, which may be
            # that of any attempt, so counting from a later one could outlast them.
            sent = seams.ticks()
            try:
                place = await self._publisher.publish(proposal, late)
            except OutcomeUnknown as error:
                self._doubt = True
                if data:
                    raise
                raise Unavailable(error.message) from None  # an empty message changes nothing
            if place is None:
                return None
            save = partial(self.replica.apply, place, outcome, also, check=check)
            return await self._saved(place, save, sent, milliseconds)

    async def _saved(
        self, place: LogPlace, save: Callable[[], Awaitable[None]], sent: float, milliseconds: int
    ) -> LogPlace:
        """Save what the log has, and take the lease that came with it."""
        try:
            await save()
        except HoldfastError as error:
            # The log has what the file lacks, so the file must answer nothing until it has fetched that.
            self.lease.give_up()
            self.follower.restart()
            raise OutcomeUnknown(
                f"the write is in the log at {place}, but this node could not save it: {error.message}"
            ) from error
        if self.replica.at != place or self.lease.seen > place.seq:  # another node has written since
            return place
        self.lease.leads = True
        if milliseconds:
            with contextlib.suppress(HoldfastError):
                self.require()  # with a lease, readers would be answered at once
                self.lease.grant(sent, milliseconds=milliseconds)
        elif self._handover.wanted:
            self._handover.wanted = False
            self.lease.make_way()
        return place

    async def _turn(self) -> None:
        """Wait until no other node holds the lease, and have its holder asked to release it."""
        asked_at = 0.0
        while (wait := self.lease.wait) > 0:
            self._require_following()
            if seams.monotonic() - asked_at > WANT_SECONDS and not self.lease.leads:
                asked_at = seams.monotonic()
                self._handover.ask()
            moved = self.replica.moved
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, WANT_SECONDS)):
                    await moved.wait()
        self._require_following()

    async def _release(self) -> None:
        """Between groups: release the shard if another node wants it."""
        if self._handover.wanted and self.lease.held():
            with contextlib.suppress(HoldfastError):
                await self._publish(self.replica.at, b"", NOTHING, never)
        self._handover.wanted = False


class Reads:
    """The readers of one shard.

    The lease is checked after the look into the file: one that ended meanwhile does not vouch for what was
    seen. Readers that wait share a round of questions, but none joins a round that has begun: its answer may
    be older than a write that the reader has to see.

    Args:
        shard: The shard.
        connection: The connection.
        requests: Requests over that connection.
        index: The subject at which the holder of the lease says how far the log is.
    """

    def __init__(self, shard: Shard, connection: Connection, requests: Requester, *, index: str) -> None:
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
        rows = self._shard.replica.file.glance(addresses, now)
        left = self._shard.lease.left
        if left < RENEW_SECONDS:
            if left <= 0:
                return LATER
            self._renew()
        return rows

    async def fresh(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what a look into the file finds, at a moment when the file had all that was acknowledged."""
        lease = self._shard.lease
        while True:
            self._shard.require()
            if not lease.held():
                await self._confirmed()
                seen = await look()
                self._shard.require()  # a load may have begun meanwhile
                await self._reached(self._shard.replica.latest)
                return seen
            if lease.ageing:
                self._renew()
            seen = await look()
            if lease.held():
                return seen

    async def recent(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what a look finds, as `fresh` does, but write nothing to the log if no node has a lease."""
        self._shard.require()
        if not self._shard.lease.held():
            await self._ask_holder()
        return await look()

    async def _reached(self, seq: int) -> None:
        """Wait until no node can answer by its lease from before a message that was read here."""
        shard, end = self._shard, seams.monotonic() + FOLLOW_SECONDS
        while seq > self._holder_at and shard.lease.wait:
            shard.require()
            await self._ask_holder(seq)
            if seq > self._holder_at:
                await self._pause(end)

    def _renew(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renewed(), name="holdfast cluster lease")

    async def _renewed(self) -> None:
        if seams.BUGGIFY and seams.maybe("cluster.renewed_late"):
            await asyncio.sleep(LEASE_MS / 1000)
        try:
            await self._shard.queue.take((), no_time, force=True)
        except HoldfastError as error:
            _log.debug("renewing the lease of %s failed: %s", self._shard.name, error.message)

    async def _confirmed(self) -> None:
        """Wait until the replica has all that was acknowledged before this call."""
        if self._queued is None or self._queued.done():  # the program may have cancelled all its tasks
            self._queued = asyncio.create_task(self._round(self._asked), name="holdfast cluster read")
        await asyncio.shield(self._queued)

    async def _round(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._asked, self._queued = self._queued, None  # readers that come from here on need another round
        shard, end = self._shard, seams.monotonic() + FOLLOW_SECONDS
        while not shard.lease.held():
            shard.require()
            if not shard.lease.wait:
                await shard.barrier()  # an empty message, stored only on top of all others
                return
            if await self._ask_holder():
                return
            await self._pause(end)

    async def _pause(self, end: float) -> None:
        """Wait a moment before the node that holds the lease is asked again, at most until its lease ends.

        Raises:
            Unavailable: It is past the end.
        """
        if seams.monotonic() > end:
            self._shard.require()  # perhaps it is this node that does not follow
            raise Unavailable(f"the node that holds {self._shard.name} does not answer")
        await asyncio.sleep(min(READ_PAUSE_SECONDS, self._shard.lease.wait))

    async def _ask_holder(self, least: int = 0) -> bool:
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
        digits = message.data[:MOST_DIGITS]
        least = int(digits) if digits.isdigit() else 0  # an older node sends nothing
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
