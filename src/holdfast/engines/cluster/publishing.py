"""Publishing one message of a shard's log: attempts, doubts and refusals, until the outcome is known.

A message can be stored at most once, however often it is sent: its base admits one message, and its id is
the same at every attempt. So an attempt without an answer is repeated as it is. The consumer delivers what is
stored, also to its writer, which answers as well as an acknowledgement.

Law: an answer says that the message is stored (a place), or that another one took its place (None). If
neither becomes known in time, `OutcomeUnknown` is raised. `Unavailable` means that it is not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import BusError, NoResponders
from holdfast.engines.cluster.jetstream import FOR_A_WHILE, WRONG_SEQUENCE, ApiRefusal
from holdfast.engines.cluster.messages import LogPlace
from holdfast.engines.cluster.servers import no_quorum
from holdfast.errors import OutcomeUnknown, StorageFull, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import Ack, JetStream
    from holdfast.engines.cluster.lease import ShardLease
    from holdfast.engines.cluster.messages import Proposal
    from holdfast.engines.cluster.replica import Replica

ATTEMPT_SECONDS: Final = 1.0
"""How long an attempt waits for its acknowledgement."""
PAUSE_SECONDS: Final = 0.05
LAGS_SECONDS: Final = 3.0
"""How long a server may lead the log that lacks messages which this node has."""
_log = logging.getLogger("holdfast.cluster")
_FULL: Final = frozenset({10023, 10047, 10077, 10122})
"""Codes that say that the servers have no room."""


class Publisher:
    """Publishes the messages of one shard, one at a time.

    Args:
        address: The address of the cluster.
        connection: The connection.
        jetstream: JetStream over that connection.
        replica: The shard's replica, which follows the log.
        lease: The shard's lease, which an attempt in doubt ends.
        subject: The subject of the shard's log.
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
    ) -> None:
        self._address = address
        self._connection = connection
        self._jetstream = jetstream
        self._replica = replica
        self._lease = lease
        self._subject = subject
        self._lagging_since = self._lagged_at = -math.inf

    async def publish(self, proposal: Proposal, late: Callable[[], bool]) -> LogPlace | None:
        """Have a message stored. Return its place, or None if another message took its place.

        Args:
            proposal: The message.
            late: Returns True once its callers have given up.

        Raises:
            OutcomeUnknown: The message may be in the log, or come to be there.
            Unavailable: The message is not stored.
            StorageFull: The servers have no room.
        """
        end = time.monotonic() + self._address.timeout
        parts = proposal.parts(self._connection.max_payload)
        doubt = False
        told = "the servers refuse it"
        while True:
            try:
                ack = await self._jetstream.publish(self._subject, parts, seconds=ATTEMPT_SECONDS)
            except NoResponders:
                told = "no server leads the log"
            except BusError as error:
                told = str(error)
            except TimeoutError:
                doubt = True
                self._lease.give_up()
            else:
                if ack.error is None:
                    return LogPlace(ack.seq, proposal.id)
                told = ack.error.description
                if ack.error.err_code == WRONG_SEQUENCE and ack.last > proposal.base.seq:
                    await self._catch_up(ack.last, end, doubt=doubt)
                    return self._replica.stored(proposal.id)
                if not doubt:
                    _require_passing(ack)
                if ack.error.err_code == WRONG_SEQUENCE:
                    told = await self._lags(ack.last, proposal.base.seq)
            if (place := self._replica.stored(proposal.id)) is not None:
                return place
            if late() and not doubt:
                return None
            if late() or time.monotonic() > end:
                raise await self._given_up(told, doubt=doubt)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _lags(self, last: int, base: int) -> str:
        """Note that the server that leads the log lacks a message that this node has. Return that in words.

        A server that has just begun to lead may not have read all of its files. One that has lost a part of
        them would refuse every message, so that another one has to lead.
        """
        words = f"the server that leads the log has {last} as its last message, and this node has {base}"
        now = time.monotonic()
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
        """Wait until the replica has applied the log up to a sequence, which tells whose message is there."""
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                await self._replica.reach(seq)
        except TimeoutError:
            kind = OutcomeUnknown if doubt else Unavailable
            raise kind(f"this node is behind the log: it has {self._replica.at}, the log {seq}") from None

    async def _given_up(self, told: str, *, doubt: bool) -> OutcomeUnknown | Unavailable:
        if doubt:
            return OutcomeUnknown(
                await no_quorum(self._address, "a message was sent, but not acknowledged in time")
            )
        return Unavailable(await no_quorum(self._address, f"nothing was written, since {told}"))


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
