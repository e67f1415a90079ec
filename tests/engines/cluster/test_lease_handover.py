"""Making way for another node that wants to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.bus.protocol import Message
from holdfast.engines.cluster import making_way
from holdfast.engines.cluster.lease import ShardLease, ticks
from holdfast.engines.cluster.making_way import MakingWay


class Turns:
    """The queue of a shard's writers."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        """Have the queue worked off."""
        self.woken.set()


class Shard:
    """The parts of a shard that making way uses."""

    def __init__(self) -> None:
        self.lease = ShardLease()
        self.turns: Any = Turns()
        self.leads = True


class Wire:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.take: Any = None

    def send(self, subject: str, data: bytes) -> bool:
        """Send a message."""
        self.sent.append((subject, data))
        return True

    def listen(self, subject: str, take: Any) -> None:
        """Subscribe."""
        self.take = take


def ask(wire: Wire, node: str) -> None:
    """Have a node ask for the shard."""
    wire.take(Message("1", "want", "", node.encode(), b""))


@pytest.fixture
async def parts(monkeypatch: pytest.MonkeyPatch) -> tuple[Shard, Wire, MakingWay]:
    """A shard that this node wrote to last."""
    monkeypatch.setattr(making_way, "LEAST_HOLD_SECONDS", 0.0)
    shard, wire = Shard(), Wire()
    connection: Any = wire
    way = MakingWay(shard, connection, subject="want", node="me")
    way.listen()
    return shard, wire, way


async def test_the_holder_releases_its_lease_between_two_groups(
    parts: tuple[Shard, Wire, MakingWay],
) -> None:
    """It notes that another node wants the shard, and has its queue do the rest."""
    shard, wire, way = parts
    shard.lease.grant(ticks(), milliseconds=60_000)
    ask(wire, "other")
    async with asyncio.timeout(60):
        await shard.turns.woken.wait()
    assert way.wanted
    assert shard.lease.held(), "the message that releases it is still to come"


async def test_a_node_without_a_lease_keeps_off_at_once(parts: tuple[Shard, Wire, MakingWay]) -> None:
    """While several nodes write there is no lease to release, and the one that wrote last waits a moment."""
    shard, wire, way = parts
    ask(wire, "other")
    assert shard.lease.wait > 0
    assert not way.wanted


async def test_nobody_makes_way_for_itself_or_for_a_shard_of_others(
    parts: tuple[Shard, Wire, MakingWay],
) -> None:
    """A node hears its own question too, and only the one that wrote last has anything to release."""
    shard, wire, way = parts
    way.ask()
    assert wire.sent == [("want", b"me")]
    ask(wire, "me")
    shard.leads = False
    ask(wire, "other")
    await asyncio.sleep(0)
    assert (shard.lease.wait, way.wanted, shard.turns.woken.is_set()) == (0.0, False, False)
