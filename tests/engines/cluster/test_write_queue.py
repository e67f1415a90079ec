"""The queue of a shard's writers: which groups share a message, and what each of them gets back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.audit.keyring import Unsettled
from holdfast.commands import Delete, Deleted, Get
from holdfast.decide import Outcome
from holdfast.engines.cluster.messages import HEADROOM, ForwardedName, LogPlace, Proposal
from holdfast.engines.cluster.write_queue import MOST, MOST_FORWARDED, WriteQueue, in_halves, no_time, shares
from holdfast.errors import DatabaseError, InternalError, OutcomeUnknown, TooExpensive, Unavailable
from holdfast.origin import Origin
from holdfast.rows import Record, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.commands import Command
    from holdfast.errors import HoldfastError


def outcome_of(commands: Sequence[Command]) -> Outcome:
    """An outcome with one result for each command."""
    results: list[Any] = [Deleted(version=number) for number, _ in enumerate(commands)]
    return Outcome(results=results, namespaces=[], rows={}, journal=[], trims={})


def group(name: str, count: int = 1) -> list[Command]:
    """Commands of a namespace."""
    return [
        Delete(namespace=name, key=str(number), origin=Origin(writer="w", request_id=f"{name}{number}"))
        for number in range(count)
    ]


class Log:
    """What takes the messages of a queue."""

    def __init__(self) -> None:
        self.queue = WriteQueue(self.commit, self.idle)
        self.messages: list[tuple[list[str], bool, list[str]]] = []
        self.fails: Callable[[Sequence[Command]], Exception | None] = lambda commands: None
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    async def commit(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        force: bool,
        forwarded: Sequence[ForwardedName],
    ) -> Outcome:
        """Take a message."""
        self.messages.append(
            ([command.namespace for command in commands], force, [name.id for name in forwarded])
        )
        self.began.set()
        await self.goes_on.wait()
        error = self.fails(commands)
        if error is not None:
            raise error
        return outcome_of(commands)

    async def idle(self) -> None:
        """Do nothing between groups."""


async def while_one_is_on_its_way(log: Log, *later: Any) -> list[Any]:
    """Have a group wait for the log while others come, and return what became of those."""
    log.goes_on.clear()
    first = asyncio.create_task(log.queue.take(group("first"), no_time))
    await log.began.wait()
    waiting = [asyncio.ensure_future(one) for one in later]
    await asyncio.sleep(0)
    log.goes_on.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    await first
    return found


async def test_groups_that_wait_share_a_message() -> None:
    """What arrives while a message is on its way goes into the next one, and each gets its own results."""
    log = Log()
    found = await while_one_is_on_its_way(
        log, log.queue.take(group("a", 2), no_time), log.queue.take(group("b", 3), no_time)
    )
    assert [names for names, _, _ in log.messages] == [["first"], ["a", "a", "b", "b", "b"]]
    assert [[result.version for result in one.results] for one in found] == [[0, 1], [2, 3, 4]]


async def test_a_message_has_a_bounded_number_of_commands() -> None:
    """Groups that do not fit go into the message after it, in their order, and a large one goes alone."""
    log = Log()
    await while_one_is_on_its_way(
        log,
        log.queue.take(group("a", MOST + 1), no_time),
        log.queue.take(group("b", MOST - 1), no_time),
        log.queue.take(group("c"), no_time),
        log.queue.take(group("d"), no_time),
    )
    assert [(len(names), names[-1]) for names, _, _ in log.messages] == [
        (1, "first"),
        (MOST + 1, "a"),
        (MOST, "c"),
        (1, "d"),
    ]


async def test_the_names_of_forwarded_groups_fit_the_head_of_a_message() -> None:
    """A message names the forwarded groups in it; as many as there may be leave it within its bounds."""
    log = Log()
    count = 2 * MOST_FORWARDED + 1
    await while_one_is_on_its_way(
        log,
        *(
            log.queue.take(group("a"), no_time, forwarded=ForwardedName(f"{number:016x}", 1))
            for number in range(count)
        ),
    )
    names = [forwarded for _, _, forwarded in log.messages]
    assert [len(some) for some in names] == [0, MOST_FORWARDED, MOST_FORWARDED, 1]
    proposal = Proposal(
        id="0" * 16,
        base=LogPlace(10**18, "0" * 16),
        node="0" * 8,
        lease=1000,
        data=b"x",
        check="_INBOX." + "x" * 40,
        forwarded=tuple(names[1]),
    )
    [(headers, _)] = proposal.parts(1_000_000)
    assert len("".join(f"{name}: {said}\r\n" for name, said in headers.items())) < HEADROOM - 100


async def test_a_barrier_that_must_be_stored_is_stored_beside_others() -> None:
    """A group that changes nothing may need no message; one that asks for it gets one, whatever it shares."""
    log = Log()
    await while_one_is_on_its_way(
        log, log.queue.take(group("a"), no_time), log.queue.take((), no_time, force=True)
    )
    assert [force for _, force, _ in log.messages] == [False, True]


@pytest.mark.parametrize("error", [DatabaseError("poison"), TooExpensive("poison"), ValueError("poison")])
async def test_a_group_that_fails_does_so_alone(error: Exception) -> None:
    """Groups of other namespaces that shared a message with it are tried again without it."""
    log = Log()
    log.fails = lambda commands: error if any(one.namespace == "poison" for one in commands) else None
    good, bad, other = await while_one_is_on_its_way(
        log,
        log.queue.take(group("a"), no_time),
        log.queue.take(group("poison"), no_time),
        log.queue.take(group("b"), no_time),
    )
    assert bad is error
    assert [type(one) for one in (good, other)] == [Outcome, Outcome]
    assert [names for names, _, _ in log.messages[2:]] == [["a"], ["poison"], ["b"]]


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), Unavailable("no server")])
async def test_groups_whose_message_may_be_stored_are_not_tried_again(error: Exception) -> None:
    """What the log did not answer concerns all groups of the message, and none is sent a second time."""
    log = Log()
    log.fails = lambda commands: error if len(commands) == 2 else None
    found = await while_one_is_on_its_way(
        log, log.queue.take(group("a"), no_time), log.queue.take(group("b"), no_time)
    )
    assert found == [error, error]
    assert len(log.messages) == 2


async def test_a_caller_that_is_cancelled_stops_nothing() -> None:
    """The group of a caller that has gone is stored with the others."""
    log = Log()
    log.goes_on.clear()
    gone = asyncio.create_task(log.queue.take(group("gone"), no_time))
    await log.began.wait()
    gone.cancel()
    later = asyncio.create_task(log.queue.take(group("later"), no_time))
    await asyncio.sleep(0)
    log.goes_on.set()
    assert len((await later).results) == 1
    assert gone.cancelled()
    await log.queue.close()


def test_listeners_hear_of_a_run_of_expiries_once() -> None:
    """A run belongs to the first group of its namespace; groups of other namespaces hear nothing of it."""
    groups = [group("a"), group("b"), group("b")]
    runs = [Run(namespace="b", first=1, count=2, at=3, until=4)]
    record = Record(namespace="a", version=1, op="delete", key="0", at=0, request_id="a0")
    outcome = Outcome(
        results=[Deleted(version=number) for number in range(3)],
        namespaces=[],
        rows={},
        journal=[record],
        trims={},
        runs=runs,
    )
    found = shares(outcome, groups)
    assert [one.runs for one in found] == [[], runs, []]
    assert [one.journal for one in found] == [[record], [], []]


async def test_the_half_that_is_stored_is_not_reported_as_failed() -> None:
    """If the second half of a group can't be stored, its commands fail, and not those of the first half."""
    halves: list[int] = []

    async def commit(commands: Sequence[Command]) -> Outcome:
        halves.append(len(commands))
        if len(halves) == 2:
            raise Unavailable("no server")
        return outcome_of(commands)

    found = await in_halves(commit, group("a", 5))
    assert halves == [2, 3]
    assert [type(result) for result in found.results] == [Deleted, Deleted, *[Unavailable] * 3]
    with pytest.raises(Unavailable):
        await in_halves(_no_server, [Get(namespace="a", key="k")] * 2)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unsettled(), Unavailable),
        (RuntimeError("a defect"), InternalError),
        (TooExpensive("x"), TooExpensive),
    ],
)
async def test_no_group_is_stored_again_whose_first_half_is_stored(
    error: Exception, told: type[HoldfastError]
) -> None:
    """Whatever the second half fails with, the groups that went together are not tried again, one by one."""
    stored: list[Sequence[Command]] = []

    async def commit(
        commands: Sequence[Command], now: Callable[[], int], force: bool, names: Sequence[ForwardedName]
    ) -> Outcome:
        async def half(some: Sequence[Command]) -> Outcome:
            if stored:
                raise error
            stored.append(some)
            return outcome_of(some)

        return await in_halves(half, commands)

    async def idle() -> None:
        pass

    queue = WriteQueue(commit, idle)
    first, second = await asyncio.gather(*(queue.take(group(name, 2), no_time) for name in "ab"))
    assert [type(result) for result in first.results] == [Deleted, Deleted]
    assert [type(result) for result in second.results] == [told, told]
    assert len(stored) == 1


async def _no_server(commands: Sequence[Command]) -> Outcome:
    raise Unavailable("no server")
