"""Forwarded groups: what the node that is asked replies, and what its reply carries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.commands import Deleted, Get, Incr, Set
from holdfast.decide import Outcome
from holdfast.engines.cluster import forwarding
from holdfast.errors import Busy, OutcomeUnknown, QuotaExceeded, Unavailable, ValidationError, VersionConflict
from holdfast.origin import Origin
from holdfast.rows import Record
from holdfast.tracing import Trace
from holdfast.upkeep_commands import Expire
from tests.cluster import at_one_place
from tests.engines.cluster.test_shard import shard_of, value_of

if TYPE_CHECKING:
    from tests.cluster import Nodes


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sender look often whether the other node still writes."""
    monkeypatch.setattr(forwarding, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "LAST_SECONDS", 0.05)


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), ZeroDivisionError()])
async def test_a_group_that_may_be_stored_is_not_done_by_its_sender(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """If the node that was asked does not know the outcome, the log is asked: the group is there once."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])
    queue = shard_of(one).queue
    take = queue.take

    async def stored_without_a_word(*given: Any, **named: Any) -> Outcome:
        await take(*given, **named)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(queue, "take", stored_without_a_word)
        with pytest.raises(OutcomeUnknown, match="the write is in the log"):
            await other.kv("trivia").incr("sum")
    assert await value_of(other, "sum") == 2


@pytest.mark.parametrize("error", [Unavailable("no server"), Busy("full"), forwarding.Moved()])
async def test_a_group_that_is_not_stored_is_done_by_its_sender(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A refusal that is certain leaves the group to the node that was called, at once."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])

    async def refused(*given: Any, **named: Any) -> Outcome:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(shard_of(one).queue, "take", refused)
        assert (await asyncio.wait_for(other.kv("trivia").incr("sum"), 60)).value == 2
    assert await value_of(one, "sum") == 2


def test_a_group_arrives_as_it_was_sent() -> None:
    """Commands keep their fields, and the sender says how far it knows the log."""
    commands = [
        Set(namespace="kv/a", key="k", value="1", size=1, origin=Origin(writer="w", request_id="r")),
        Set(
            namespace="kv/a",
            key="k",
            value="1",
            size=1,
            origin=Origin(
                writer="w",
                request_id="t",
                trace=Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=1"),
            ),
        ),
        Get(namespace="kv/a", key="k"),
        Incr(namespace="kv/a", key="n", by=-(2**63), origin=Origin(writer="w", request_id="s")),
    ]
    found = forwarding.group_of_bytes(forwarding.group_as_bytes("name", 7, commands))
    assert found == ("name", 7, commands)
    assert forwarding.can_carry(commands)
    assert not forwarding.can_carry([*commands, Expire(namespace="kv/a", space="kv", keys=("k",))])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode((forwarding.FORMAT + 1, "name", 7, [])),
        msgspec.msgpack.encode((forwarding.FORMAT, "name", 7, [{"type": "Dance"}])),
        msgspec.msgpack.encode((forwarding.FORMAT, "name", 7, [], "more")),
    ],
)
def test_a_group_of_another_version_is_refused_whole(data: bytes) -> None:
    """A node decides nothing of a group that it can't read in full; its sender does it then."""
    with pytest.raises(msgspec.DecodeError):
        forwarding.group_of_bytes(data)


def test_results_and_refusals_arrive_as_they_were_decided() -> None:
    """A refusal keeps its kind, its fields, and by how much a quota was exceeded, which sweeping needs."""
    quota = QuotaExceeded("full", field="value")
    quota.excess = 123
    conflict = VersionConflict("taken", current=None)
    record = Record(namespace="kv/a", version=3, op="delete", key="k", at=4, request_id="r")
    outcome = Outcome(
        results=[Deleted(version=3), quota, conflict, ValidationError("no", field="key")],
        namespaces=[],
        rows={},
        journal=[record],
        trims={},
        expired=True,
    )
    seq, found = forwarding.outcome_of_bytes(forwarding.outcome_as_bytes(outcome, 9))
    assert (seq, found.journal, found.expired, found.results[0]) == (9, [record], True, Deleted(version=3))
    refusals = found.results[1:]
    assert [type(one) for one in refusals] == [QuotaExceeded, VersionConflict, ValidationError]
    assert isinstance(refusals[0], QuotaExceeded)
    assert (refusals[0].excess, refusals[0].message, refusals[0].field) == (123, "full", "value")


async def test_the_parts_of_a_reply_may_come_in_any_order_and_twice(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that leaves a server listens at two for a while, and each delivers in its own time."""
    monkeypatch.setattr(forwarding, "LOOK_SECONDS", 0.25)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", "")
    await at_one_place([one, other])
    connection = shard_of(one).forwarding._connection
    send, parts = connection.send, []

    def held(subject: str, data: bytes, **more: Any) -> bool:
        if data[:1] in (b"+", b"."):
            parts.append((subject, data))
        if data[:1] != b".":
            return data[:1] == b"+" or send(subject, data, **more)
        for part in (*reversed(parts), *parts):
            send(*part)
        return True

    monkeypatch.setattr(connection, "send", held)
    monkeypatch.setattr(forwarding, "HEADROOM", connection.max_payload - 200)
    reply = bytes(range(256)) * 4
    shard_of(one).forwarding._reply(f"{shard_of(other).forwarding._inbox}.name", reply)
    sent = shard_of(other).forwarding._sent["name"] = forwarding.SentGroup()
    async with asyncio.timeout(10):
        assert await sent.reply == reply
    assert len(parts) > 3
