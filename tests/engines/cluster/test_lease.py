"""The lease of a shard, with clocks that the tests move."""

from __future__ import annotations

import pytest

from holdfast import seams
from holdfast.engines.cluster.lease import LEASE_MS, RENEW_SECONDS, SHARED_SECONDS, YIELD_SECONDS, ShardLease

START = 1_000.0


class Ticks:
    """The ticks of the machine on which a node runs."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """Ticks that stand still until they are moved."""
    ticks = Ticks()
    monkeypatch.setattr(seams, "ticks", ticks)
    return ticks


@pytest.mark.parametrize("rate", [0.96, 1.0, 1.04])
def test_nobody_writes_while_the_holder_may_answer(ticks: Ticks, rate: float) -> None:
    """Another node waits past the end of the holder's lease, also if its clock runs 4 % faster or slower.

    Nothing gives it more time than a message that arrives at the instant at which it is sent.
    """
    holder, other = ShardLease(), ShardLease()
    holder.grant(ticks.now, milliseconds=LEASE_MS)
    other.see(1, LEASE_MS, wrote=True)
    free = []
    for milliseconds in range(2 * LEASE_MS):
        passed = milliseconds / 1000
        ticks.now = START + passed
        answers = holder.held()
        ticks.now = START + passed * rate
        writes = not other.wait
        assert not (answers and writes), f"both {passed} s after the message"
        free.append(writes)
    assert free[-1], "the other node is kept off for ever"


def test_a_lease_counts_from_the_sending_of_its_message(ticks: Ticks) -> None:
    """An answer that takes long shortens the lease, and one that takes longer than the lease grants none."""
    mine = ShardLease()
    ticks.now += 0.75
    mine.grant(START, milliseconds=LEASE_MS)
    assert (mine.held(), mine.left) == (True, 0.25)
    ticks.now = START + LEASE_MS / 1000
    assert not mine.held()
    mine.grant(START, milliseconds=LEASE_MS)
    assert not mine.held()


def test_a_message_of_another_node_ends_the_lease(ticks: Ticks) -> None:
    """The node that held the lease answers no more from its file, whatever was left of its time."""
    mine = ShardLease()
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    mine.see(1, 0, wrote=True)
    assert (mine.held(), mine.wait, mine.held_for) == (False, 0.0, 0.0)
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    mine.give_up()
    assert not mine.held()


def test_a_lease_is_renewed_in_its_second_half(ticks: Ticks) -> None:
    """A lease that is used is renewed early enough, and the time that a node has held it goes on."""
    mine = ShardLease()
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    assert not mine.ageing
    ticks.now += LEASE_MS / 1000 - RENEW_SECONDS + 0.01
    assert (mine.ageing, mine.held()) == (True, True)
    before = mine.held_for
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    assert (mine.ageing, mine.held_for) == (False, before)
    ticks.now += 2
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    assert mine.held_for == 0.0


def test_only_nodes_that_write_share_a_shard(ticks: Ticks) -> None:
    """A node whose messages carry nothing served its readers, and does not keep the writer from a lease."""
    mine, seen = ShardLease(), []
    seen.append(mine.shared)
    for wrote in (False, True):
        mine.see(1, LEASE_MS, wrote=wrote)
        seen.append(mine.shared)
    ticks.now += SHARED_SECONDS
    seen.append(mine.shared)
    assert seen == [False, False, True, False]


def test_a_node_that_released_its_lease_waits_a_moment_for_the_other(ticks: Ticks) -> None:
    """It neither answers nor writes for a moment, and may write again if the other one does not."""
    mine = ShardLease()
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    mine.make_way()
    assert not mine.held()
    assert mine.wait == pytest.approx(YIELD_SECONDS)
    ticks.now += YIELD_SECONDS + 0.001
    assert mine.wait == 0.0
    mine.see(1, LEASE_MS, wrote=True)
    mine.grant(ticks.now, milliseconds=LEASE_MS)
    assert mine.wait == 0.0, "a message of this node came after the other one's"


def test_a_node_that_makes_way_still_keeps_off_for_the_whole_lease_of_another(ticks: Ticks) -> None:
    """Another node may have got a lease before this one hears that it should make way."""
    mine = ShardLease()
    mine.see(1, LEASE_MS, wrote=True)
    kept_off = mine.wait
    mine.make_way()
    assert mine.wait == kept_off
