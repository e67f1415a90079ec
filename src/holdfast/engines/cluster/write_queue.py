"""The queue of a shard's writers: groups that wait for the log become one message.

While a message is on its way, further groups arrive, one for each namespace. The next message carries them
together, as far as they fit. If that fails, each is tried alone.

One message of a shard is on its way at a time. A group's outcome holds only what concerns its own
namespaces. Cancelling a caller stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from holdfast import seams
from holdfast.audit.keyring import Unsettled
from holdfast.commands import Command, Result, WriteCommand
from holdfast.decide import Outcome
from holdfast.engines.cluster.messages import ForwardedName
from holdfast.errors import Defect, HoldfastError, InternalError, TooExpensive, Unavailable
from holdfast.rows import Record

NOTHING: Final = Outcome(results=[], namespaces=[], rows={}, journal=[], trims={})
MOST: Final = 512
"""The number of commands of several groups that go together."""
MOST_FORWARDED: Final = 32
"""The number of forwarded groups that go together: the headers of a message name them."""

_log = logging.getLogger("holdfast.cluster")


class WaitingGroup:
    """A group that waits. One without commands is a barrier. One that another node forwarded has a name."""

    __slots__ = ("commands", "done", "force", "forwarded", "now")

    def __init__(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        *,
        force: bool,
        forwarded: ForwardedName | None,
    ) -> None:
        self.commands = commands
        self.now = now
        self.force = force
        self.forwarded = forwarded
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


class WriteQueue:
    """The queue of a shard.

    Args:
        commit: Has a group decided and stored. With `force`, a message is published even if nothing changes.
            It is given the names of the forwarded groups.
        idle: Called when no group waits, to do what has to be done between groups.
    """

    def __init__(
        self,
        commit: Callable[
            [Sequence[Command], Callable[[], int], bool, Sequence[ForwardedName]], Awaitable[Outcome]
        ],
        idle: Callable[[], Awaitable[None]],
    ) -> None:
        self._commit = commit
        self._idle = idle
        self._waiting: list[WaitingGroup] = []
        self._worker: asyncio.Task[None] | None = None

    async def take(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        *,
        force: bool = False,
        forwarded: ForwardedName | None = None,
    ) -> Outcome:
        """Have a group stored, in its turn. It may share a message with others."""
        group = WaitingGroup(commands, now, force=force, forwarded=forwarded)
        self._waiting.append(group)
        self.wake()
        return await group.done

    def wake(self) -> None:
        """Work off what waits, unless that is under way."""
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="holdfast cluster writer")

    async def close(self) -> None:
        """Wait until every group has had its turn."""
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self) -> None:
        while True:
            while self._waiting:
                groups = self._next()
                if len(groups) == 1 or not await self._together(groups):
                    for group in groups:
                        await self._alone(group)
            await self._idle()
            if not self._waiting:
                return

    def _next(self) -> list[WaitingGroup]:
        """Take the groups that go together: as many as fit, and at least one."""
        size = count = forwarded = 0
        for group in self._waiting:
            size += len(group.commands)
            forwarded += group.forwarded is not None
            alone = seams.BUGGIFY and seams.maybe("cluster.group_alone")
            if count and (size > MOST or forwarded > MOST_FORWARDED or alone):
                break
            count += 1
        groups, self._waiting = self._waiting[:count], self._waiting[count:]
        return groups

    async def _together(self, groups: list[WaitingGroup]) -> bool:
        """Store several groups in one message. Return False if each has to be tried alone."""
        commands = [command for group in groups for command in group.commands]
        now = next((group.now for group in groups if group.commands), groups[0].now)
        try:
            names = [group.forwarded for group in groups if group.forwarded is not None]
            outcome = await self._commit(commands, now, any(group.force for group in groups), names)
        except Exception as error:
            # One of them is at fault and nothing was stored, so each is tried alone. After another error the
            # message may be in the log, or none can be stored: no group is sent a second time.
            if not isinstance(error, HoldfastError) or isinstance(error, (Defect, TooExpensive)):
                return False
            for group in groups:
                _fail(group, error)
            return True
        for group, share in zip(groups, shares(outcome, [group.commands for group in groups]), strict=True):
            if not group.done.done():
                group.done.set_result(share)
        return True

    async def _alone(self, group: WaitingGroup) -> None:
        try:
            names = () if group.forwarded is None else (group.forwarded,)
            outcome = await self._commit(group.commands, group.now, group.force, names)
        except Exception as error:
            _fail(group, error)
        else:
            if not group.done.done():
                group.done.set_result(outcome)


def no_time() -> int:
    """Stand for the clock of a group without commands."""
    return 0


def _fail(group: WaitingGroup, error: Exception) -> None:
    if not group.done.done():
        group.done.set_exception(error)


def shares(outcome: Outcome, groups: Sequence[Sequence[Command]]) -> list[Outcome]:
    """Return the part of an outcome that concerns each of its groups. Its rows are saved by now.

    A change belongs to the group that has its request id, or else to the first one of its namespace.
    """
    by_namespace: dict[str, int] = {}
    by_request: dict[tuple[str, str], int] = {}
    for number, commands in enumerate(groups):
        for command in commands:
            by_namespace.setdefault(command.namespace, number)
            if isinstance(command, WriteCommand):
                by_request.setdefault((command.namespace, command.origin.request_id), number)
    journal: list[list[Record]] = [[] for _ in groups]
    for record in outcome.journal:
        of_namespace = by_namespace.get(record.namespace, 0)
        number = by_request.get((record.namespace, record.request_id or ""), of_namespace)
        journal[number].append(record)
    ends = list(accumulate(map(len, groups), initial=0))
    return [
        Outcome(
            results=outcome.results[ends[number] : ends[number + 1]],
            namespaces=[],
            rows={},
            journal=journal[number],
            trims={},
            runs=[run for run in outcome.runs if by_namespace.get(run.namespace, 0) == number],
            expired=outcome.expired,
        )
        for number in range(len(groups))
    ]


async def in_halves(
    commit: Callable[[Sequence[Command]], Awaitable[Outcome]], commands: Sequence[Command]
) -> Outcome:
    """Store a group as two, because together they are larger than a message may be.

    Once the first half is stored, this raises nothing, since an exception means that nothing was stored.
    """
    middle = len(commands) // 2
    first = await commit(commands[:middle])
    try:
        second = await commit(commands[middle:])
    except Exception as error:
        results: list[Result | HoldfastError] = [_refusal(error)] * (len(commands) - middle)
        second = msgspec.structs.replace(NOTHING, results=results)
    return _joined(first, second)


def _refusal(error: Exception) -> HoldfastError:
    """Return what the callers of the second half of a group are told."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, Unsettled):  # another node has had the audit switched on since the first half
        return Unavailable("the node has to settle first which key signs the audit: try again")
    _log.error("the second half of a large group failed", exc_info=error)
    return InternalError("internal error in a group of writes; see the log")


def _joined(first: Outcome, second: Outcome) -> Outcome:
    """Return the outcome of a group that was stored as two. Its rows are saved by now."""
    return Outcome(
        results=[*first.results, *second.results],
        namespaces=[],
        rows={},
        journal=[*first.journal, *second.journal],
        trims={},
        runs=[*first.runs, *second.runs],
        expired=first.expired or second.expired,
    )
