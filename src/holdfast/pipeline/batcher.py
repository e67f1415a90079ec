"""Grouping of pending commands: callers submit commands one by one, and the engine gets them in groups.

There are no timers. A group forms while the one before it commits, so one commit serves every command
submitted meanwhile, and a lone caller waits for no one else. What holds:

- Commands of a namespace keep the order of submission, and no namespace is in two groups at a time.
- A write does not overtake a slow read that was submitted before it.
- Commands of one namespace that have to wait or that take long do not hold up those of another: an expensive
  one runs beside the groups of other namespaces.
- Callers get their results before listeners are notified. Cancelling a caller cancels only its wait.

A lane is a queue of commands whose groups take effect one after the other. Most engines have one lane. One
whose transactions of different namespaces run side by side has a lane for each namespace, drained by a task
of its own. If such an engine can also put several namespaces into one transaction, `Carriers` gather the
plain changes of several lanes into one group, so that they share a commit again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from holdfast import families, seams, tracing
from holdfast.commands import Command, Result, SetPolicy, Touched, WriteCommand
from holdfast.engine import CannotShareTransaction, Sharer
from holdfast.errors import HoldfastError, InternalError, OutcomeUnknown, Unavailable
from holdfast.pace import ALONE, CARRIERS, LANES_WORTH_A_GROUP, MAX_GROUP, SHARED_GROUP, gather
from holdfast.tracing import Spans
from holdfast.upkeep_commands import ExpireRun

_log = logging.getLogger("holdfast")

MAX_GROUP_BYTES: Final = 4 * 1024 * 1024
EXPENSIVE: Final = 96 * 1024
"""Cost of a command above which it is executed alone, unless it is bulky. A key with the largest value costs
less, and 400 small writes in one call cost more. One such command runs at a time, beside the groups of other
namespaces."""


class GroupDone(msgspec.Struct, frozen=True):
    """The outcome of a group: a result or an error for each command, and the call that notifies listeners."""

    results: list[Result | HoldfastError]
    tell: Callable[[], Awaitable[None]] | None = None


class PendingCommand(msgspec.Struct, frozen=True):
    """A pending command and the callback for its result. A barrier has no command.

    `touched` lists what the command may change. `after` holds the reads that were running when the command
    was submitted and that must not see its effect. `cost` is that of the command, summed up once.
    """

    command: Command | None
    tell: Callable[[Any], None]
    touched: Sequence[Touched] = ()
    after: Collection[asyncio.Future[None]] = ()
    cost: int = 0

    @property
    def namespace(self) -> str:
        """The namespace in which this keeps its place."""
        assert self.command is not None
        return self.command.namespace

    @property
    def read_namespaces(self) -> Sequence[str]:
        """The namespaces that decide what this does: its own, and that of the lock of its fence."""
        command = self.command
        if isinstance(command, WriteCommand) and command.origin.fence is not None:
            return self.namespace, families.locks(self.namespace)
        return (self.namespace,)

    @property
    def held(self) -> bool:
        """True while one of the reads is running that must not see the effect."""
        return not all(read.done() for read in self.after)


class Barrier(PendingCommand, frozen=True):
    """Waits for the commands of a namespace that were submitted before it."""

    of: str = ""

    @property
    def namespace(self) -> str:
        """The namespace in which this keeps its place."""
        return self.of


class _Lane(msgspec.Struct, eq=False):
    """A queue of commands whose groups take effect one after the other.

    `idle` is set while no pending command can be taken; a new one ends the wait, or the end of an expensive
    one. `away` is the namespace of the expensive command that is running; no other command of it is taken
    meanwhile. `expensive` says that the last group has left an expensive command.
    """

    name: str
    waiting: deque[PendingCommand] = msgspec.field(default_factory=deque)
    idle: asyncio.Future[None] | None = None
    away: set[str] = set()
    expensive: bool = False

    def take(self, most: int, *, plain: bool = False) -> list[PendingCommand]:
        """Remove and return the next group: as many cheap commands as fit and need not wait.

        The group is empty if every command is expensive, waits for a read or is behind one that does. With
        `plain`, it ends before the first command that is not a plain change of a key.
        """
        pending = self.waiting
        self.expensive = False
        if len(pending) == 1 and not self.away and not plain:
            sole = pending[0]
            if not sole.after and sole.cost <= EXPENSIVE:
                return [pending.popleft()]
        group: list[PendingCommand] = []
        stays: list[PendingCommand] = []
        behind = set(self.away)  # namespaces with a command that stays
        room = MAX_GROUP_BYTES
        runs: bool | None = None  # True for a group of expiry runs, which are not mixed with other commands
        while pending and len(group) < most:
            waiting = pending[0]
            command = waiting.command
            if plain and command is not None and not command.shares:
                break
            cost = waiting.cost
            room -= cost
            if cost > EXPENSIVE or waiting.after or behind:
                expensive = _is_expensive(waiting)
                if expensive or not behind.isdisjoint(waiting.read_namespaces) or waiting.held:
                    self.expensive |= expensive
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

    def take_expensive(self, group: Sequence[PendingCommand]) -> PendingCommand | None:
        """Remove and return the first expensive command that may run beside a group, if none runs.

        It is the first of its namespace, and the group holds no command that is of that namespace or reads a
        lock of it: both would be decided from what the last commit of the namespace left, and the later of
        them would be wrong.
        """
        if self.away:
            return None
        behind = {name for waiting in group for name in waiting.read_namespaces}
        for place, waiting in enumerate(self.waiting):
            if waiting.namespace not in behind:
                behind.add(waiting.namespace)
                if _is_expensive(waiting) and not waiting.held:
                    del self.waiting[place]
                    self.away.add(waiting.namespace)
                    return waiting
        return None

    def wake(self) -> None:
        """End the wait, if there is one: something may be taken now."""
        if self.idle is not None and not self.idle.done():
            self.idle.set_result(None)

    async def wait(self) -> None:
        """Wait for the end of a read or an expensive command that others wait for, or for a new command."""
        self.idle = asyncio.get_running_loop().create_future()
        reads = {read for waiting in self.waiting for read in waiting.after if not read.done()}
        await asyncio.wait([self.idle, *reads], return_when=asyncio.FIRST_COMPLETED)
        self.idle = None


class Reading:
    """The context of a read; see `Batcher.reading`. It is a class because every call on a table has one.

    Args:
        reads: The running reads by what they read.
        addresses: What this one reads.
    """

    __slots__ = ("_addresses", "_end", "_reads")

    def __init__(
        self,
        reads: defaultdict[Touched, set[asyncio.Future[None]]],
        addresses: Sequence[Touched],
    ) -> None:
        self._reads = reads
        self._addresses = addresses

    def __enter__(self) -> None:
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for address in self._addresses:
            self._reads[address].add(self._end)

    def __exit__(self, *error: object) -> None:
        for address in self._addresses:
            self._reads[address].discard(self._end)
            if not self._reads[address]:
                del self._reads[address]
        self._end.set_result(None)


class Batcher:
    """Groups commands for `run`.

    Args:
        run: Executes a group. If it raises a `HoldfastError`, every command of the group fails with it. Any
            other exception is a defect of `run`.
        lane_per_namespace: Whether groups of different namespaces may run concurrently.
        sharer: The engine, if it can execute a group of several namespaces (see `Carriers`).

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
        sharer: Sharer | None = None,
    ) -> None:
        self._run = run
        self._carriers = None if sharer is None else Carriers(self, sharer)
        self._lane_per_namespace = lane_per_namespace
        self._lanes: dict[str, _Lane] = {}
        self._drains: set[asyncio.Task[None]] = set()
        self._unsettled: dict[Touched, PendingCommand] = {}
        """The last of the pending commands that may change a key or a namespace, by which they may change."""
        self._reads: defaultdict[Touched, set[asyncio.Future[None]]] = defaultdict(set)
        self._closed = False
        self._lone = 0
        self.most = MAX_GROUP
        self.turns = 0
        self.grouped: Callable[[int], None] | None = None

    @property
    def waiting(self) -> int:
        """The number of pending commands."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def call(self, command: Command) -> asyncio.Future[Result]:
        """Submit a command. The future gets its result or raises the error that refused it."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.submit(command, partial(_resolve, future))
        return future

    def call_first(self, command: Command) -> asyncio.Future[Result]:
        """Submit a read that takes effect before all pending commands of its namespace."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._closed:
            raise Unavailable("the store is closed")
        self._lane(command.namespace).waiting.appendleft(PendingCommand(command, partial(_resolve, future)))
        return future

    def submit(self, command: Command, tell: Callable[[Result | HoldfastError], None]) -> None:
        """Submit a command. `tell` is called with its result or the error that refused it.

        This saves a server with many callers one future and one turn of the event loop per command.
        """
        if self._closed:
            raise Unavailable("the store is closed")
        if tracing.spans is not None:
            command, tell = _traced(tracing.spans, command, tell)
        touched = command.touched
        after = self._reads_of(touched) if self._reads else ()
        pending = PendingCommand(command, tell, touched, after, command.cost)
        self._unsettled.update(dict.fromkeys(touched, pending))
        self._lane(command.namespace).waiting.append(pending)

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
            self._lane(namespace).waiting.append(Barrier(None, partial(_resolve, turn), of=namespace))
            await turn

    def reading(self, namespace: str, keys: Iterable[str] | None = None) -> Reading:
        """Hold back writes submitted during this context, so that a read of these keys misses them.

        Without keys, the read covers the whole namespace.
        """
        addresses = [(namespace, None)] if keys is None else [(namespace, key) for key in keys]
        return Reading(self._reads, addresses)

    def _reads_of(self, touched: Iterable[Touched]) -> set[asyncio.Future[None]]:
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
            lane = self._lanes[name] = _Lane(name)
            if self._carriers is None or not self._carriers.add(lane):
                self.drain_alone(lane)
        elif lane.idle is not None:
            lane.wake()
        return lane

    def spawn(
        self, work: Coroutine[Any, Any, None], name: str, cancelled: Callable[[], None]
    ) -> asyncio.Task[None]:
        """Run work in a task that closing waits for.

        A program that cancels all its tasks cancels this one too, perhaps before its first step, when no
        `finally` of the work runs. Then `cancelled` is called, to refuse what the work has left.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._drains.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._drains.discard(task)
            if task.cancelled():
                cancelled()

        task.add_done_callback(ended)
        return task

    def drain_alone(self, lane: _Lane) -> None:
        """Execute what a lane holds in groups of its own."""
        self.spawn(self._drain(lane), f"holdfast batcher {lane.name}", partial(self.give_up, lane))

    def give_up(self, lane: _Lane) -> None:
        """Refuse what a lane holds, and forget it: the task that would have executed it was cancelled.

        Nothing of it is executed later, since most of the callers are gone.
        """
        left = list(lane.waiting)
        lane.waiting.clear()
        self.drop(lane)
        self._refuse(left)

    def _refuse(self, left: list[PendingCommand]) -> None:
        refusal = Unavailable("the program cancelled the task that would have executed this")
        self._settle(left, iter([refusal] * len(left)))

    def drop(self, lane: _Lane) -> None:
        """Forget a lane that is empty."""
        del self._lanes[lane.name]

    def turns_before(self, pending: int) -> int:
        """Return how many turns others get before a group is taken."""
        return self.turns if not self._lone or pending > 1 else 0

    async def _drain(self, lane: _Lane) -> None:
        while lane.waiting or lane.away:
            if before := self.turns_before(len(lane.waiting)):
                await gather(before)
            lone = seams.BUGGIFY and seams.maybe("batcher.group_of_one")
            group = lane.take(1 if lone else self.most)
            if lane.expensive:
                self._begin_expensive(lane, group)
            if not group:
                if lane.waiting or lane.away:  # an expensive command may have ended while this gathered
                    await lane.wait()
                continue
            await self.carry(group)
            if self._lone and not lane.waiting and not self.turns:
                await asyncio.sleep(0)  # a lone caller who goes on at once needs no other task and turn
            if self._carriers is not None and lane.waiting and not lane.away and self._carriers.add(lane):
                return
        self.drop(lane)

    def _begin_expensive(self, lane: _Lane, group: Sequence[PendingCommand]) -> None:
        """Execute the next expensive command, if there is one, beside this group and later ones."""
        waiting = lane.take_expensive(group)
        if waiting is None:
            return
        left = [waiting]

        def end() -> None:
            self._refuse(left)
            lane.away.clear()
            lane.wake()

        async def execute() -> None:
            await self.carry([left.pop()], beside=True)
            end()

        self.spawn(execute(), "holdfast expensive command", end)

    async def carry(self, group: list[PendingCommand], *, beside: bool = False) -> None:
        """Execute a group and pass on its results, also if it fails: callers must not wait forever.

        A group `beside` others is not that of a caller alone.

        Raises:
            CannotShareTransaction: The namespaces of the group can't share a transaction. Nothing was done,
                and no caller has been told.
        """
        if not beside:
            self._lone = self._lone + 1 if len(group) == 1 else 0
        commands = [waiting.command for waiting in group if waiting.command is not None]
        if self.grouped is not None and commands:
            self.grouped(len(commands))
        try:
            done = await self._run(commands) if commands else GroupDone([])
        except CannotShareTransaction:
            raise
        except asyncio.CancelledError:
            unknown = OutcomeUnknown("the program cancelled the task that executed this")
            self._settle(group, iter([unknown] * len(commands)))
            raise
        except HoldfastError as error:
            done = GroupDone([error] * len(commands))
        except Exception as defect:
            _log.error("a group of %d commands failed", len(commands), exc_info=defect)
            failure = InternalError("internal error in a group of writes; see the log")
            done = GroupDone([failure] * len(commands))
        self._settle(group, iter(done.results))
        if done.tell is None:
            return
        if self.turns and self._lone >= ALONE:
            await asyncio.sleep(0)
        try:
            await done.tell()
        except Exception as defect:  # the next groups must still run
            _log.error("notifying listeners of a group failed", exc_info=defect)

    def _settle(self, group: list[PendingCommand], results: Iterator[Result | HoldfastError]) -> None:
        unsettled = self._unsettled
        for waiting in group:
            for address in waiting.touched:
                if unsettled.get(address) is waiting:
                    del unsettled[address]
        for waiting in group:
            try:
                waiting.tell(None if waiting.command is None else next(results))
            except Exception as defect:  # the other callers must still get their results
                _log.error("handing a command's result to its caller failed", exc_info=defect)


class Carriers:
    """Groups of several namespaces, for an engine whose transactions can hold them.

    Each namespace keeps a lane of its own. Lanes with pending commands wait here, and a carrier takes from as
    many as fit into one group. A lane stays with its carrier until the group is done, so commands of a
    namespace keep their order. A few carriers work at a time: while one waits for its commit, the next one
    gathers.

    Only plain changes of keys share a group. A lane with anything else, or with a command that has to wait,
    is drained alone, and so are all lanes of a group whose namespaces the engine can't put into one
    transaction: no namespace waits for more than a moment because of what another does.
    """

    def __init__(self, owner: Batcher, sharer: Sharer) -> None:
        self._owner = owner
        self._shares = sharer.shares
        self._most_lanes = sharer.shared
        self._ready: deque[_Lane] = deque()
        self._carrying: set[asyncio.Task[None]] = set()
        self._executing = 0

    def add(self, lane: _Lane) -> bool:
        """Take on a lane that no carrier has. Return False if it must be drained alone."""
        if not self._shares(lane.name):
            return False
        self._ready.append(lane)
        if len(self._carrying) < CARRIERS:
            self._carrying.add(self._owner.spawn(self._carry(), "holdfast carrier", self._give_up))
        return True

    def _give_up(self) -> None:
        """Forget a carrier that was cancelled, and refuse what is left if it was the last one."""
        self._carrying = {carrier for carrier in self._carrying if not carrier.done()}
        while self._ready and not self._carrying:
            self._owner.give_up(self._ready.popleft())

    async def _carry(self) -> None:
        try:
            while self._ready:
                pending = len(self._ready) + len(self._ready[0].waiting) - 1
                if before := self._owner.turns_before(pending):
                    await gather(before)
                taken = self._gather()
                if taken:
                    self._executing += 1
                    try:
                        await self._execute(taken)
                    finally:
                        self._executing -= 1
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._carrying.discard(task)

    def _gather(self) -> list[tuple[_Lane, list[PendingCommand]]]:
        """Take from waiting lanes what fits into one group."""
        taken: list[tuple[_Lane, list[PendingCommand]]] = []
        ready, room = self._ready, self._owner.most
        most_lanes = self._most_lanes_now()
        while ready and room > 0 and len(taken) < most_lanes:
            lane = ready.popleft()
            alone = not ready and not taken
            some = lane.take(room if alone else min(room, SHARED_GROUP), plain=not alone)
            if some and not lane.expensive:
                taken.append((lane, some))
                room -= len(some)
            else:
                lane.waiting.extendleft(reversed(some))
                self._owner.drain_alone(lane)
        return taken

    def _most_lanes_now(self) -> int:
        """Return from how many lanes a group may take: half of many, so that the next group overlaps it."""
        ready = len(self._ready)
        if self._executing or ready < 2 * LANES_WORTH_A_GROUP:
            return self._most_lanes
        return min(self._most_lanes, (ready + 1) // 2)

    async def _execute(self, taken: list[tuple[_Lane, list[PendingCommand]]]) -> None:
        try:
            await self._owner.carry([waiting for _, some in taken for waiting in some])
        except CannotShareTransaction:
            for lane, some in taken:
                lane.waiting.extendleft(reversed(some))
                self._owner.drain_alone(lane)
            return
        except asyncio.CancelledError:
            for lane, _ in taken:
                self._owner.give_up(lane)
            raise
        for lane, _ in taken:
            if not lane.waiting:
                self._owner.drop(lane)
            elif not self.add(lane):
                self._owner.drain_alone(lane)


def _traced(
    spans: Spans, command: Command, tell: Callable[[Any], None]
) -> tuple[Command, Callable[[Any], None]]:
    """Begin the span of a command from its submission to its outcome, around what the engine does."""
    origin = command.origin if isinstance(command, WriteCommand) else None
    if origin is None or isinstance(origin.trace, UnsetType) or not origin.trace.sampled:
        return command, tell
    span = spans.begin("commit", origin.trace)
    if span is None:
        return command, tell

    def ended(result: Any) -> None:
        span.end(result.code if isinstance(result, HoldfastError) else None)
        tell(result)

    return msgspec.structs.replace(command, origin=msgspec.structs.replace(origin, trace=span.trace)), ended


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Set a future's result or error, unless its caller has stopped waiting."""
    if future.done():
        return
    if isinstance(result, HoldfastError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _is_expensive(waiting: PendingCommand) -> bool:
    """Return whether a command runs beside groups of other namespaces.

    One with a fence on a lock of another namespace does not: somebody could take the lock meanwhile.
    """
    if waiting.cost <= EXPENSIVE or waiting.command is None or waiting.command.bulky:
        return False
    return len(set(waiting.read_namespaces)) == 1
