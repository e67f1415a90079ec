"""A shard: a part of the namespaces, with a log, a replica and a lease of its own.

Writing: decide on the rows of this node's replica, publish the outcome on top of the last message that the
replica has applied, and save it once the log has it. If another node was faster, catch up and decide again.

`reading` says how a shard is read.

Law: nothing is answered that a newer message could contradict: neither a value nor a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.decide import Outcome
from holdfast.engines.cluster.forwarding import Forwarding, Moved
from holdfast.engines.cluster.jetstream import NoMajority
from holdfast.engines.cluster.lease import LEASE_MS, ShardLease, ticks
from holdfast.engines.cluster.log import Follower, Publisher, is_late, never
from holdfast.engines.cluster.making_way import MakingWay
from holdfast.engines.cluster.messages import HEADROOM, Proposal, encode_outcome
from holdfast.engines.cluster.reading import Reads
from holdfast.engines.cluster.replica import LogGap, Replica
from holdfast.engines.cluster.reports import ShardReport, about_node
from holdfast.engines.cluster.write_queue import NOTHING, WriteQueue, in_halves, no_time
from holdfast.errors import HoldfastError, InternalError, OutcomeUnknown, Transient, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.bus.connection import Connection, Requester
    from holdfast.commands import Command
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.bringing import Bringer
    from holdfast.engines.cluster.jetstream import JetStream
    from holdfast.engines.cluster.messages import ForwardedName, Logged, LogPlace
    from holdfast.engines.sqlite.sql import Statement

WANT_SECONDS: Final = 0.25
"""How often a node that waits for a lease asks its holder to release it."""
RETRY_SECONDS: Final = 1.0

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
        bringer: Brings the replica up to the newest snapshot.
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
        bringer: Bringer,
    ) -> None:
        self.number = number
        self.name = f"shard {number} of {address.name}"
        self._bringer = bringer
        self._address = address
        self._node = node
        self._connection = connection
        self.replica = replica
        self.lease = ShardLease()
        self._way = MakingWay(self, connection, subject=address.subject("want", number), node=node)
        subject = address.subject("log", number)
        self._publisher = Publisher(
            address, connection, jetstream, replica=replica, lease=self.lease, subject=subject
        )
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
        self.turns = WriteQueue(self._commit, self._release)
        self._following: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self.reads = Reads(self, connection, requests, index=address.subject("index", number))
        self.forwarding = Forwarding(self, address, connection, number=number, node=node)
        self._last_writer = False
        self._doubt = False
        self._halted: HoldfastError | None = None
        self._suspended: HoldfastError | None = None
        self.loads = False
        """True if this node may use a store into which a load is under way."""

    async def open(self) -> None:
        """Open the replica and begin to follow the log. Return when it has caught up.

        Raises:
            HoldfastError: The file can't be used, contradicts the log, or the log does not come in time.
        """
        await self._bringer.bring(self.number, self.replica.path)
        await self.replica.open()
        self._way.listen()
        self._following = asyncio.create_task(self._follow(), name=f"holdfast follows {self.name}")
        await self._caught_up()

    async def close(self) -> None:
        """Finish what was accepted, release the lease, and close the file."""
        await self.forwarding.close()
        await self.turns.close()
        if self.lease.held() and self._halted is None:
            self._way.release()
            await self.turns.close()
        await self.reads.close()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self.replica.close()

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`."""
        self.require()
        if not self._last_writer and (done := await self.forwarding.send(commands, now)) is not None:
            return done
        self.forwarding.own(now)
        return await self.turns.take(commands, now)

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
        if self._last_writer or await self.forwarding.send((), no_time) is None:
            await self.turns.take((), no_time)

    @property
    def leads(self) -> bool:
        """See `Writes.leads`."""
        return self._last_writer

    def report(self) -> ShardReport:
        """Return what operators want to know of this shard."""
        at, stopped = self.replica.at, self._halted or self._suspended
        return ShardReport(
            shard=self.number,
            seq=at.seq,
            id=at.id,
            behind=self.follower.behind,
            leads=self._last_writer,
            stopped=None if stopped is None else stopped.message,
            bytes=self.replica.path.stat().st_size if self.replica.path.exists() else 0,
        )

    def require(self) -> None:
        """Raise the error because of which this node can't serve the shard, if there is one."""
        self._require_following()
        if not self.loads:
            self.replica.status.require_finished(self._address.name)

    def _require_following(self) -> None:
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
                await self.follower.run()
            except LogGap as gap:
                if not await self._brought(gap):
                    return
            except Transient as error:
                self._halted = Unavailable(f"this node can't follow {self.name}: {error.message}")
                _log.error("%s; retrying", self._halted.message)
                await asyncio.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                self._halt(error)
                return
            except Exception as defect:
                _log.error("following %s failed", self.name, exc_info=defect)
                self._halt(InternalError(f"this node failed to apply the log of {self.name}"))
                return

    async def _brought(self, gap: LogGap) -> bool:
        """Go on from a snapshot, or try again: the log was trimmed past this replica. False without one."""
        self._halted = Unavailable(f"this node is fetching a snapshot of {self.name}")
        self.lease.give_up()
        try:
            found = await self.replica.reopen(partial(self._bringer.bring, self.number, self.replica.path))
        except Transient as error:
            self._halted = Unavailable(f"this node needs a snapshot of {self.name}: {error.message}")
            await asyncio.sleep(RETRY_SECONDS)
            return True
        except HoldfastError as error:
            self._halt(error)
            return False
        self.forwarding.skipped(self.replica.at.seq)
        if not found:
            self._halt(gap)
        return found

    def _halt(self, error: HoldfastError) -> None:
        self._halted = error
        self.lease.give_up()
        self.follower.caught_up.set()  # waiting longer would not help
        _log.critical("%s", error.message)

    async def _take(self, entry: Logged) -> bool:
        current, foreign = entry.place.seq >= self.replica.at.seq, entry.node != self._node
        if foreign:
            self.forwarding.saw(entry)
        if foreign and current:  # before the file shows the message
            self.lease.see(entry.lease, wrote=bool(entry.data))
        applied = await self.replica.take(entry)
        if applied and isinstance(self._halted, Unavailable):
            _log.warning("this node follows %s again", self.name)
            self._halted = None
        if applied and current and foreign:
            self._last_writer = False
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
        while True:
            await self._turn()
            base = self.replica.at
            if commands:
                self.replica.status.require_open(self._address.name)
            self.forwarding.require(forwarded)
            try:
                outcome = await self.replica.file.decide(commands, now) if commands else NOTHING
            except Exception:
                if self.replica.at is base:
                    raise
                continue  # it was decided on rows that were changing
            if outcome.empty and not force and self.lease.held() and self.replica.at is base:
                return outcome
            data = encode_outcome(outcome)
            if len(commands) > 1 and len(data) > self._connection.max_payload - HEADROOM:
                if forwarded:
                    raise Moved
                return await in_halves(lambda half: self._commit(half, now, False), commands)
            late = partial(is_late, outcome.deadline, now)
            if late():
                continue  # deciding again refuses the late commands
            names = tuple(name.id for name in forwarded)
            if await self._publish(base, data, outcome, late, forwarded=names) is not None:
                return outcome
            self._way.ask()

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
            milliseconds = 0 if self._way.wanted or self.lease.shared else LEASE_MS
            if not milliseconds:
                self.lease.give_up()  # others may write once they have the message, before this node knows
            proposal = Proposal(
                id=secrets.token_hex(8),
                base=base,
                node=self._node,
                lease=milliseconds,
                data=data,
                check=check,
                forwarded=forwarded,
            )
            self.replica.expect(proposal.id, outcome, also, check)
            sent = ticks()
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
            self.lease.give_up()
            self.follower.restart()
            raise OutcomeUnknown(
                f"the write is in the log at {place}, but this node could not save it: {error.message}"
            ) from error
        if self.replica.at == place:
            self._granted(sent, milliseconds)
        return place

    def _granted(self, sent: float, milliseconds: int) -> None:
        self._last_writer = True
        if milliseconds:
            if self._halted is None and self._suspended is None:
                self.lease.grant(sent, milliseconds=milliseconds)
        elif self._way.wanted:
            self._way.wanted = False
            self.lease.make_way()

    async def _turn(self) -> None:
        """Wait until no other node holds the lease, and have its holder asked to release it."""
        self._require_following()
        asked = 0.0
        while (wait := self.lease.wait) > 0:
            if time.monotonic() - asked > WANT_SECONDS and not self._last_writer:
                asked = time.monotonic()
                self._way.ask()
            moved = self.replica.moved
            try:
                async with asyncio.timeout(min(wait, WANT_SECONDS)):
                    await moved.wait()
            except TimeoutError:
                self._require_following()

    async def _release(self) -> None:
        """Between groups: release the shard if another node wants it."""
        if self._way.wanted and self.lease.held():
            with contextlib.suppress(HoldfastError):
                await self._publish(self.replica.at, b"", NOTHING, never)
        self._way.wanted = False
