"""Bugs of the cluster engine, to be planted in a node of a campaign: the checkers must find each.

A plant changes the engine of this process by a seed, so that it can be repeated; nothing outside it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast.engines.cluster.forwarding import Forwarding
from holdfast.engines.cluster.lease import LeaseHandover, ShardLease
from holdfast.engines.cluster.shard import Reads, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from holdfast.commands import Command
    from holdfast.decide import Outcome

OFTEN: Final = 0.3
"""The share of messages that a bug strikes. A short round has few of them."""
LAG_SECONDS: Final = 0.05
HELD_SECONDS: Final = 0.15
"""For how long a node does not hear that its lease is over, by the processor time that its clients need."""


def stale_read(patch: Any, chance: Random) -> None:
    """A node answers from its replica without asking how far the log is, and its replica lags."""

    async def confirmed(reads: Reads) -> None:
        """Return at once."""

    patch.setattr(Reads, "_confirmed", confirmed)
    _lag(patch, chance)


def lost_ack(patch: Any, chance: Random) -> None:
    """Now and then a node acknowledges what it decided, and never sends it."""
    right = Shard._commit

    async def commit(
        shard: Shard, commands: Sequence[Command], now: Callable[[], int], force: bool, *names: Any
    ) -> Outcome:
        if commands and chance.random() < OFTEN:
            await shard._turn()
            return await shard.replica.file.decide(commands, now)
        return await right(shard, commands, now, force, *names)

    patch.setattr(Shard, "_commit", commit)


def double_apply(patch: Any, chance: Random) -> None:
    """Now and then a node decides and sends a group again that is in the log already."""
    right = Shard._commit

    async def commit(
        shard: Shard, commands: Sequence[Command], now: Callable[[], int], force: bool, *names: Any
    ) -> Outcome:
        outcome = await right(shard, commands, now, force, *names)
        if commands and chance.random() < OFTEN:
            await right(shard, commands, now, force)
        return outcome

    patch.setattr(Shard, "_commit", commit)


def past_lease(patch: Any, chance: Random) -> None:
    """A node writes while another one holds the lease, which is not asked and hears of it a little late."""
    patch.setattr(ShardLease, "wait", property(lambda lease: 0.0))
    patch.setattr(LeaseHandover, "ask", lambda handover: None)
    patch.setattr(Forwarding, "send", _not_sent)
    _lag(patch, chance, held=True)


def _lag(patch: Any, chance: Random, *, held: bool = False) -> None:
    """Apply a message of another node a little late: now and then, or always while this one has the lease."""
    right = Shard._take

    async def take(shard: Shard, entry: Any) -> bool:
        late = shard.lease.held() if held else chance.random() < OFTEN
        if entry.node != shard._node and late:
            await (_while_held(shard) if held else asyncio.sleep(LAG_SECONDS))
        return await right(shard, entry)

    patch.setattr(Shard, "_take", take)


async def _not_sent(forwarding: Forwarding, *group: Any) -> None:
    """Leave every group to the node that was called."""


async def _while_held(shard: Shard) -> None:
    end = time.process_time() + HELD_SECONDS
    while time.process_time() < end and shard.lease.held():  # noqa: ASYNC110 - processor time has no event
        await asyncio.sleep(0.005)


PLANTS: Final = {
    "stale-read": stale_read,
    "lost-ack": lost_ack,
    "double-apply": double_apply,
    "past-lease": past_lease,
}
"""The bugs by name."""


class Patch:
    """Sets attributes for good, in a process that ends with its bug."""

    def setattr(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute."""
        setattr(owner, name, value)
