"""Grouping of pending commands: callers submit commands one by one, and the engine gets them in groups.

Law: no timers. A group forms while the one before it commits, so one commit serves every command submitted
meanwhile, and a lone caller waits for no one else. Commands of a namespace keep the order of submission. A
write does not overtake a slow read that was submitted before it. Commands of one namespace that have to wait
or that take long do not hold up those of another. Callers get their results before listeners are notified.
Cancelling a caller cancels only its wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.commands import KeyChange, SetPolicy, WriteCommand, written_keys
from holdfast.errors import HoldfastError, InternalError, Unavailable
from holdfast.pace import ALONE, MAX_GROUP
from holdfast.upkeep_commands import ExpireRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

    from holdfast.commands import Command, Result

_log = logging.getLogger("holdfast")

MAX_GROUP_BYTES: Final = 4 * 1024 * 1024
DEAR: Final = 96 * 1024
"""Cost of a command above which it is executed alone, unless it is bulky. A key with the largest value costs
less, and 400 small writes in one call cost more."""


class GroupDone(msgspec.Struct, frozen=True):
    """The outcome of a group: a result or an error for each command, and the call that notifies listeners."""

    results: list[Result | HoldfastError]
    tell: Callable[[], Awaitable[None]] | None = None


class _Waiting(msgspec.Struct, frozen=True):
    """A pending command and the callback for its result. A barrier has no command.

    `touched` lists what the command may change. `after` holds the reads that were running when the command
    was submitted and that must not see its effect.
    """

    command: Command | None
    tell: Callable[[Any], None]
    touched: Sequence[tuple[str, str | None]] = ()
    after: Collection[asyncio.Future[None]] = ()

    @property
    def namespace(self) -> str:
        """The namespace in which this keeps its place."""
        assert self.command is not None
        return self.command.namespace

    @property
    def held(self) -> bool:
        """True while one of the reads is running that must not see the effect."""
        return not all(read.done() for read in self.after)


class _Barrier(_Waiting, frozen=True):
    """Waits for the commands of a namespace that were submitted before it."""

    of: str = ""

    @property
    def namespace(self) -> str:
        """The namespace in which this keeps its place."""
        return self.of


class _Lane:
    """A queue of commands whose groups take effect one after the other."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.idle: asyncio.Future[None] | None = None
        """Set while every pending command waits for a read; a new command ends the wait."""
        self._owed = False  # a dear command let cheap ones pass, so that it is next

    def take(self, most: int) -> list[_Waiting]:
        """Remove and return the next group: as many pending commands as fit and need not wait for a read.

        A dear command is a group by itself. Cheap commands of other namespaces pass it once. The group is
        empty if every command waits for a read.
        """
        return (self._owed and self._take_dear()) or self._take_cheap(most) or self._take_dear()

    def _take_cheap(self, most: int) -> list[_Waiting]:
        group: list[_Waiting] = []
        stays: list[_Waiting] = []
        behind: set[str] = set()  # namespaces with a command that stays
        room = MAX_GROUP_BYTES
        runs: bool | None = None  # True for a group of expiry runs, which are not mixed with other commands
        pending = self.waiting
        while pending and len(group) < most:
            waiting = pending[0]
            command = waiting.command
            cost = 0 if command is None else command.cost
            room -= cost
            if cost > DEAR or waiting.after or behind:
                dear = _is_dear(command)
                if dear or waiting.namespace in behind or waiting.held:
                    self._owed |= dear
                    room += cost
                    behind.add(waiting.namespace)
                    stays.append(pending.popleft())
                    continue
            if room < 0 and group:
                break
            if command is not None:
                run = type(command) is ExpireRun
                if runs not in (None, run):
                    break
                runs = run
            group.append(pending.popleft())
            if type(command) is SetPolicy:
                break  # the policy decides which rows the commands after it need to load
        if stays:
            pending.extendleft(reversed(stays))
        return group

    def _take_dear(self) -> list[_Waiting]:
        """Remove and return the first dear command that is the first of its namespace."""
        self._owed = False
        behind: set[str] = set()
        for place, waiting in enumerate(self.waiting):
            if waiting.namespace not in behind:
                behind.add(waiting.namespace)
                if _is_dear(waiting.command) and not waiting.held:
                    del self.waiting[place]
                    return [waiting]
        return []

    async def wait(self) -> None:
        """Wait until a read ends that commands wait for, or until there is a new command."""
        self.idle = asyncio.get_running_loop().create_future()
        reads = {read for waiting in self.waiting for read in waiting.after if not read.done()}
        await asyncio.wait([self.idle, *reads], return_when=asyncio.FIRST_COMPLETED)
        self.idle = None


class Batcher:
    """Groups commands for `run`.

    Args:
        run: Executes a group. If it raises a `HoldfastError`, every command of the group fails with it. Any
            other exception is a defect of `run`.
        lane_per_namespace: Whether groups of different namespaces may run concurrently.

    `most` is the largest number of commands in a group. `turns` is for servers with remote callers: if
    several commands are pending, or the previous group had several, the event loop gets this many turns
    before the next group is taken. A caller that is alone gets one turn to send its reply before listeners
    are notified.
    """

    def __init__(
        self,
        run: Callable[[list[Command]], Awaitable[GroupDone]],
        *,
        lane_per_namespace: bool,
    ) -> None:
        self._run = run
        self._lane_per_namespace = lane_per_namespace
        self._lanes: dict[str, _Lane] = {}
        self._drains: set[asyncio.Task[None]] = set()
        self._unsettled: dict[tuple[str, str | None], int] = {}
        self._reads: defaultdict[tuple[str, str | None], set[asyncio.Future[None]]] = defaultdict(set)
        self._closed = False
        self._lone = 0
        self.most = MAX_GROUP
        self.turns = 0
        self.grouped: Callable[[int], None] | None = None

    @property
    def waiting(self) -> int:
        """The number of pending commands."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def submit(self, command: Command) -> asyncio.Future[Result]:
        """Submit a command. The future gets its result or raises the error that refused it."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.hand_over(command, partial(_resolve, future))
        return future

    def hand_over(self, command: Command, tell: Callable[[Result | HoldfastError], None]) -> None:
        """Submit a command. `tell` is called with its result or the error that refused it.

        This saves a server with many callers one future and one turn of the event loop per command.
        """
        if self._closed:
            raise Unavailable("the store is closed")
        touched, unsettled = _touched(command), self._unsettled
        for address in touched:
            unsettled[address] = unsettled.get(address, 0) + 1
        after = self._reads_of(touched) if self._reads else ()
        self._lane(command.namespace).waiting.append(_Waiting(command, tell, touched, after))

    @property
    def busy(self) -> bool:
        """True while a caller's write is pending."""
        return bool(self._unsettled)

    def writing(self, namespace: str, key: str) -> bool:
        """Return True while a write of this key is pending."""
        return (namespace, key) in self._unsettled

    async def settled(self, namespace: str) -> None:
        """Wait until every command submitted so far for a namespace is done."""
        if (namespace, None) in self._unsettled:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._lane(namespace).waiting.append(_Barrier(None, partial(_resolve, turn), of=namespace))
            await turn

    @contextmanager
    def reading(self, namespace: str, keys: Iterable[str] | None = None) -> Iterator[None]:
        """Hold back writes submitted during this context, so that a read of these keys misses them.

        Without keys, the read covers the whole namespace.
        """
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        addresses = [(namespace, None)] if keys is None else [(namespace, key) for key in keys]
        for address in addresses:
            self._reads[address].add(read)
        try:
            yield
        finally:
            for address in addresses:
                self._reads[address].discard(read)
                if not self._reads[address]:
                    del self._reads[address]
            read.set_result(None)

    def _reads_of(self, touched: Iterable[tuple[str, str | None]]) -> set[asyncio.Future[None]]:
        """Return the running reads that could see a change of these addresses."""
        return {read for address in touched for read in self._reads.get(address, ())}

    async def aclose(self) -> None:
        """Refuse new commands, and wait until all pending ones are done."""
        self._closed = True
        while self._drains:
            await asyncio.wait(self._drains)

    def _lane(self, namespace: str) -> _Lane:
        name = namespace if self._lane_per_namespace else ""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            drain = asyncio.create_task(self._drain(name, lane), name=f"holdfast batcher {name}")
            self._drains.add(drain)
            drain.add_done_callback(self._drains.discard)
        elif lane.idle is not None and not lane.idle.done():
            lane.idle.set_result(None)
        return lane

    async def _drain(self, name: str, lane: _Lane) -> None:
        while lane.waiting:
            for _ in range(self.turns if not self._lone or len(lane.waiting) > 1 else 0):
                await asyncio.sleep(0)
            group = lane.take(self.most)
            if not group:
                await lane.wait()
                continue
            self._lone = self._lone + 1 if len(group) == 1 else 0
            commands = [waiting.command for waiting in group if waiting.command is not None]
            done = await self._done(commands) if commands else GroupDone([])
            self._settle(group, iter(done.results))
            if done.tell is not None:
                await self._tell(done.tell)
        del self._lanes[name]

    async def _tell(self, tell: Callable[[], Awaitable[None]]) -> None:
        if self.turns and self._lone >= ALONE:
            await asyncio.sleep(0)
        try:
            await tell()
        except Exception as defect:  # the next groups must still run
            _log.error("notifying listeners of a group failed", exc_info=defect)

    async def _done(self, commands: list[Command]) -> GroupDone:
        if self.grouped is not None:
            self.grouped(len(commands))
        try:
            return await self._run(commands)
        except HoldfastError as error:
            return GroupDone([error] * len(commands))
        except Exception as defect:
            # Callers must not wait forever because of an unexpected failure.
            _log.error("a group of %d commands failed", len(commands), exc_info=defect)
            failure = InternalError("the group failed for a reason that Holdfast did not foresee")
            return GroupDone([failure] * len(commands))

    def _settle(self, group: list[_Waiting], results: Iterator[Result | HoldfastError]) -> None:
        unsettled = self._unsettled
        for waiting in group:
            for address in waiting.touched:
                left = unsettled[address] - 1
                if left:
                    unsettled[address] = left
                else:
                    del unsettled[address]
        for waiting in group:
            try:
                waiting.tell(None if waiting.command is None else next(results))
            except Exception as defect:  # the other callers must still get their results
                _log.error("handing a command's result to its caller failed", exc_info=defect)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Set a future's result or error, unless its caller has stopped waiting."""
    if future.done():
        return
    if isinstance(result, HoldfastError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _is_dear(command: Command | None) -> bool:
    return command is not None and command.cost > DEAR and not command.bulky


def _touched(command: Command) -> Sequence[tuple[str, str | None]]:
    """Return the keys that a caller's command may change, with None for the namespace as a whole.

    Upkeep changes nothing that a reader can see, so reads do not wait for it.
    """
    namespace = command.namespace
    if isinstance(command, KeyChange):
        return (namespace, None), (namespace, command.key)
    if not isinstance(command, WriteCommand):
        return ()
    return [(namespace, None), *((namespace, key) for key in written_keys(command))]
