"""Publishing a message: what each answer of the servers, or none, says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.bus.errors import NoResponders
from holdfast.engines.cluster import log
from holdfast.engines.cluster.jetstream import WRONG_SEQUENCE, Ack, Fault
from holdfast.engines.cluster.log import Publisher, never
from holdfast.engines.cluster.messages import LogPlace, Proposal
from holdfast.errors import OutcomeUnknown, StorageFull, Unavailable
from tests.cluster import engine_of
from tests.engines.cluster.test_shard import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engines.cluster.shard import Shard
    from tests.cluster import Nodes

FULL = Ack(error=Fault(10077, "maximum bytes exceeded"))
BASE = 3


class Said:
    """What JetStream says to the attempts, one after the other; the last one again and again."""

    def __init__(self, *answers: Ack | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[Any] = []

    async def publish(self, subject: str, parts: Any, *, seconds: float) -> Ack:
        """Answer an attempt."""
        self.sent.append(parts)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Followed:
    """A replica that has the log up to a place, and the message `proposed` if it came."""

    def __init__(self, *, at: int = BASE, brought: int = 0) -> None:
        self.at = LogPlace(at, "last")
        self.brought = brought

    def stored(self, name: str) -> LogPlace | None:
        """Return the place of the message if the consumer has brought it."""
        return LogPlace(self.brought, name) if self.brought else None

    async def reach(self, seq: int) -> None:
        """Be there, or fall behind for ever."""
        if seq > self.at.seq:
            raise TimeoutError


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait between attempts."""
    monkeypatch.setattr(log, "ATTEMPT_PAUSE_SECONDS", 0.0)


@pytest.fixture
async def shard(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Shard:
    """The shard of a node that holds the lease."""
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    store = await nodes.open(1, timeout=1)
    await store.kv("trivia").set("key", 1)
    assert shard_of(store).lease.held()
    return shard_of(store)


def publisher(
    shard: Shard, said: Said, replica: Followed, *, follow_again: Callable[[], None] = lambda: None
) -> Publisher:
    """A publisher to which JetStream says what a test wants it to."""
    jetstream: Any = said
    followed: Any = replica
    return Publisher(
        shard._address,
        shard._connection,
        jetstream,
        replica=followed,
        lease=shard.lease,
        subject="log",
        follow_again=follow_again,
    )


PROPOSAL = Proposal(id="proposed", base=LogPlace(BASE, "last"), node="n", lease=1000, data=b"x")


async def test_a_message_that_is_acknowledged_has_its_place(shard: Shard) -> None:
    """One attempt is enough, and the lease goes on."""
    said = Said(Ack(seq=BASE + 1))
    found = await publisher(shard, said, Followed()).publish(PROPOSAL, never)
    assert (found, len(said.sent), shard.lease.held()) == (LogPlace(BASE + 1, "proposed"), 1, True)


@pytest.mark.usefixtures("hurried")
async def test_an_attempt_without_an_answer_ends_the_lease(shard: Shard) -> None:
    """From then on another node may write without this one knowing; the same message is sent again."""
    said = Said(TimeoutError(), Ack(seq=BASE + 1))
    assert await publisher(shard, said, Followed()).publish(PROPOSAL, never) is not None
    assert not shard.lease.held()
    assert said.sent[0] == said.sent[1]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("refusal", [FULL, Ack(error=Fault(10999, "not today"))])
async def test_a_refusal_after_an_attempt_in_doubt_is_not_certain(shard: Shard, refusal: Ack) -> None:
    """The first attempt may be stored though the second is refused: its outcome is unknown, not a failure."""
    with pytest.raises(OutcomeUnknown):
        await publisher(shard, Said(TimeoutError(), refusal), Followed()).publish(PROPOSAL, never)
    with pytest.raises(StorageFull if refusal is FULL else Unavailable):
        await publisher(shard, Said(refusal), Followed()).publish(PROPOSAL, never)


@pytest.mark.usefixtures("hurried")
async def test_a_late_message_in_doubt_is_not_decided_again(shard: Shard) -> None:
    """A message whose callers have given up is dropped if it was never sent, and unknown if it was."""
    assert await publisher(shard, Said(NoResponders()), Followed()).publish(PROPOSAL, lambda: True) is None
    with pytest.raises(OutcomeUnknown):
        await publisher(shard, Said(TimeoutError()), Followed()).publish(PROPOSAL, lambda: True)


@pytest.mark.usefixtures("hurried")
async def test_a_message_that_the_consumer_brings_is_stored(shard: Shard) -> None:
    """The delivery of a message answers as well as an acknowledgement that is lost."""
    replica = Followed(brought=BASE + 1)
    found = await publisher(shard, Said(TimeoutError()), replica).publish(PROPOSAL, lambda: True)
    assert found == LogPlace(BASE + 1, "proposed")


def taken(last: int) -> Ack:
    """The refusal of a base after which the log has messages up to a sequence."""
    return Ack(error=Fault(WRONG_SEQUENCE, f"wrong last sequence: {last}"))


@pytest.mark.usefixtures("hurried")
async def test_a_taken_place_is_reported_after_reading_the_log_up_to_it(shard: Shard) -> None:
    """The log up to there says whether the message in that place is this one."""
    there = Followed(at=BASE + 2)
    assert await publisher(shard, Said(taken(BASE + 2)), there).publish(PROPOSAL, never) is None
    there.brought = BASE + 1
    for before in ((), (TimeoutError(),)):
        said = Said(*before, taken(BASE + 2))
        assert await publisher(shard, said, there).publish(PROPOSAL, never) == LogPlace(BASE + 1, "proposed")


@pytest.mark.usefixtures("hurried")
async def test_a_node_that_falls_behind_says_whether_the_outcome_is_certain(shard: Shard) -> None:
    """Without an attempt in doubt the message is not stored; with one, nobody here can tell."""
    with pytest.raises(Unavailable, match="is behind the log") as certain:
        await publisher(shard, Said(taken(BASE + 9)), Followed()).publish(PROPOSAL, never)
    assert not isinstance(certain.value, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown, match="is behind the log"):
        await publisher(shard, Said(TimeoutError(), taken(BASE + 9)), Followed()).publish(PROPOSAL, never)


async def test_an_unknown_outcome_costs_one_empty_message(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a write whose outcome is unknown one empty message comes first; later writes need none."""
    store = await nodes.open(1, timeout=1)
    await store.kv("trivia").set("key", 1)
    jetstream = engine_of(store)._jetstream

    async def silent(*given: Any, **more: Any) -> Any:
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(jetstream, "publish", silent)
        with pytest.raises(OutcomeUnknown):
            await store.kv("trivia").set("key", 2)
    sent = []
    publish = jetstream.publish

    async def noted(subject: str, parts: Any, *, seconds: float) -> Any:
        sent.append(bool(parts[0][1]))
        return await publish(subject, parts, seconds=seconds)

    monkeypatch.setattr(jetstream, "publish", noted)
    for number in range(3):
        await store.kv("trivia").set("key", number)
    assert sent == [False, True, True, True]


@pytest.mark.parametrize("moves", [False, True])
async def test_node_that_gets_nothing_more_of_the_log_follows_it_anew(shard: Shard, *, moves: bool) -> None:
    """A consumer may have skipped the last message; one that still brings messages is not disturbed."""
    restarts: list[bool] = []
    replica = Followed()

    async def reach(seq: int) -> None:
        if moves:
            replica.at = LogPlace(BASE + 1, "next")
        raise TimeoutError

    replica.reach = reach  # type: ignore[method-assign]
    said = Said(Ack(error=Fault(WRONG_SEQUENCE, f"wrong last sequence: {BASE + 2}")))
    writer = publisher(shard, said, replica, follow_again=lambda: restarts.append(True))
    with pytest.raises(Unavailable, match="behind the log"):
        await writer.publish(PROPOSAL, never)
    assert bool(restarts) is not moves
