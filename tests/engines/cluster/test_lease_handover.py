"""The lease is handed over to another node that wants to write."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from holdfast import seams
from holdfast.bus.protocol import Message
from holdfast.engines.cluster import lease as lease_module
from holdfast.engines.cluster.lease import LeaseHandover, ShardLease


class Queue:
    """The queue of a shard's writers."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        """Have the queue worked off."""
        self.woken.set()


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


class Parts(NamedTuple):
    """The lease of a shard and what hands it over."""

    lease: ShardLease
    queue: Queue
    wire: Wire
    handover: LeaseHandover


def ask(wire: Wire, node: str) -> None:
    """Have a node ask for the shard."""
    wire.take(Message("1", "want", "", node.encode(), b""))


@pytest.fixture
async def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """A shard that this node wrote to last."""
    monkeypatch.setattr(lease_module, "LEAST_HOLD_SECONDS", 0.0)
    lease, queue, wire = ShardLease(), Queue(), Wire()
    lease.leads = True
    writers: Any = queue
    connection: Any = wire
    handover = LeaseHandover(lease, writers, connection, subject="want", node="me")
    handover.listen()
    return Parts(lease, queue, wire, handover)


async def test_the_holder_releases_its_lease_between_two_groups(parts: Parts) -> None:
    """It notes that another node wants the shard, and has its queue do the rest."""
    lease, queue, wire, handover = parts
    lease.grant(seams.ticks(), milliseconds=60_000)
    ask(wire, "other")
    async with asyncio.timeout(60):
        await queue.woken.wait()
    assert handover.wanted
    assert lease.held(), "the message that releases it is still to come"


async def test_a_node_without_a_lease_keeps_off_at_once(parts: Parts) -> None:
    """While several nodes write there is no lease to release, and the one that wrote last waits a moment."""
    lease, _, wire, handover = parts
    ask(wire, "other")
    assert lease.wait > 0
    assert not handover.wanted


async def test_only_the_last_writer_releases_a_lease_and_not_for_itself(parts: Parts) -> None:
    """A node hears its own question too, and only the one that wrote last has anything to release."""
    lease, queue, wire, handover = parts
    handover.ask()
    assert wire.sent == [("want", b"me")]
    ask(wire, "me")
    lease.leads = False
    ask(wire, "other")
    await asyncio.sleep(0)
    assert (lease.wait, handover.wanted, queue.woken.is_set()) == (0.0, False, False)
