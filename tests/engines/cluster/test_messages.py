"""Messages of the log: their heads, outcomes in several parts, and parts that come twice."""

from __future__ import annotations

import pytest

from holdfast.bus.protocol import Message, block
from holdfast.engines.cluster.messages import (
    HEADROOM,
    MOST_PARTS,
    Assembler,
    Logged,
    LogPlace,
    Proposal,
    base_in,
)
from holdfast.errors import ValueTooLarge

ROOM = 100
PAYLOAD = HEADROOM + ROOM


def proposed(data: bytes, **fields: object) -> Proposal:
    """A message that is to be published."""
    given = {"id": "new", "base": LogPlace(6, "old"), "node": "n", "lease": 1000, "data": data, **fields}
    return Proposal(**given)  # type: ignore[arg-type]


def delivered(proposal: Proposal, first: int = 7) -> list[Message]:
    """What a consumer delivers of a message, whose first part is at a sequence."""
    return [
        Message("1", "log", f"$JS.ACK.stream.consumer.1.{seq}.{seq}.0.0", data, block(headers))
        for seq, (headers, data) in enumerate(proposal.parts(PAYLOAD), first)
    ]


def assembled(messages: list[Message]) -> list[Logged]:
    """The entries that messages complete."""
    assembler = Assembler()
    return [entry for message in messages if (entry := assembler.add(message)) is not None]


@pytest.mark.parametrize("size", [0, 1, ROOM - 1, ROOM, ROOM + 1, 3 * ROOM, 3 * ROOM + 1])
def test_a_message_arrives_as_it_was_sent(size: int) -> None:
    """It arrives whole, however many parts it has; its place is that of its last part."""
    data = bytes(number % 251 for number in range(size))
    sent = proposed(data, check="_INBOX.x", forwarded=("a", "b"))
    parts = delivered(sent)
    assert len(parts) == max(1, -(-size // ROOM))
    [entry] = assembled(parts)
    assert (entry.place, entry.base) == (LogPlace(6 + len(parts), "new"), LogPlace(6, "old"))
    assert (entry.node, entry.lease, entry.data) == ("n", 1000, data)
    assert (entry.check, entry.forwarded) == ("_INBOX.x", ("a", "b"))


def test_only_the_first_part_names_the_base() -> None:
    """JetStream checks the base once, and stores all parts or none: the last one completes the batch."""
    heads = [headers for headers, _ in proposed(b"x" * 3 * ROOM).parts(PAYLOAD)]
    assert ["Nats-Expected-Last-Subject-Sequence" in head for head in heads] == [True, False, False]
    assert ["Nats-Batch-Commit" in head for head in heads] == [False, False, True]
    assert len({head["Nats-Batch-Id"] for head in heads}) == 1
    assert [head["Nats-Batch-Sequence"] for head in heads] == ["1", "2", "3"]


def test_parts_that_were_delivered_before_are_not_mixed_in() -> None:
    """A consumer that begins again in the middle delivers parts twice; the entry holds each of them once."""
    parts = delivered(proposed(b"abc" * ROOM))
    [entry] = assembled([*parts[:2], *parts])
    assert entry.data == b"abc" * ROOM
    whole, part = delivered(proposed(b"first"), first=5), delivered(proposed(b"x" * 2 * ROOM))
    assert [one.data for one in assembled([*whole, *part])] == [b"first", b"x" * 2 * ROOM]


def test_a_last_part_alone_has_a_place_that_can_be_compared() -> None:
    """A replica that has applied a message is sent its last part again, and knows it by its place."""
    [entry] = assembled(delivered(proposed(b"x" * 2 * ROOM))[-1:])
    assert entry.place == LogPlace(8, "new")


@pytest.mark.parametrize("lost", [[0], [1], [2], [1, 2], [0, 1, 2]])
def test_a_message_that_lacks_a_part_is_not_taken_for_whole(lost: list[int]) -> None:
    """A part that a consumer skips leaves a gap: a replica asks again, and applies nothing of the rest."""
    parts = delivered(proposed(b"x" * 4 * ROOM))
    [entry] = assembled([part for place, part in enumerate(parts) if place not in lost])
    assert (entry.place, entry.data) == (LogPlace(10, "new"), b"")
    assert entry.base.seq == 9  # more than a replica has that lacks this message


def test_parts_of_two_messages_are_not_put_together() -> None:
    """The end of a message does not complete another one whose end was skipped."""
    one, other = proposed(b"x" * 4 * ROOM, id="one"), proposed(b"y" * 4 * ROOM, id="other")
    [entry] = assembled([*delivered(one)[:2], *delivered(other, first=11)[2:]])
    assert (entry.place, entry.data, entry.base.seq) == (LogPlace(14, "other"), b"", 13)


def test_a_message_that_fits_no_batch_is_refused() -> None:
    """A write that changes more than the log takes at once says so, before anything is sent."""
    assert len(proposed(b"x" * ROOM * MOST_PARTS).parts(PAYLOAD)) == MOST_PARTS
    with pytest.raises(ValueTooLarge, match="more than the log of the cluster accepts"):
        proposed(b"x" * (ROOM * MOST_PARTS + 1)).parts(PAYLOAD)


def test_the_base_is_read_from_the_head() -> None:
    """A head without one is no message of a log."""
    [(headers, _)] = proposed(b"x").parts(PAYLOAD)
    assert base_in(block(headers)) == 6
    assert base_in(block({"Other": "1"})) == base_in(b"") == -1
