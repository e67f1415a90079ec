"""Machines with event loops, threads, clocks and disks, in one thread and in virtual time.

A machine runs one process. It has a queue of callbacks that are ready, a clock of its own, and a number that
counts its lives. A step of the world chooses a machine that has something to do and runs one turn of its
event loop. Within a turn callbacks run in their order, as asyncio promises. The seed decides the order of
machines, threads, timers and the network.

A crash begins another life: callbacks, timers and threads of the former one never run again. Nothing is
unwound, no `finally` runs, as when a process is killed. What a dead process had is kept until this process
ends, so that no destructor runs its code.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import os
import traceback
import zlib
from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import greenlet  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from tests.simulation.disk import Disk
    from tests.simulation.network import Network, Wire

EPOCH: Final = 1_700_000_000.0
"""The wall clock's time when a world begins."""
TURN_SECONDS: Final = 0.000_01
"""What a turn of an event loop costs."""
SPIN_READINGS: Final = 200
"""The readings of a clock in one turn after which time passes for the reader: it may be waiting for that."""
STALL_SECONDS: Final = 0.02
"""How long a callback may keep its event loop."""
SLOW_SYNC: Final = 0.000_5
SLOW_WRITE: Final = 0.000_02
SLOW_STATEMENT: Final = 0.000_3
"""What a sync, a write and a statement of many rows take."""
SLOW_WAKE: Final = 0.000_1
"""What it takes until an event loop hears of a thread."""


class Note(NamedTuple):
    """A line of the trace."""

    time: float
    machine: str
    text: str


class Stall(NamedTuple):
    """A callback that kept its event loop for too long."""

    machine: str
    seconds: float
    callback: str
    time: float

    def __str__(self) -> str:
        return f"the event loop of {self.machine} stood still for {self.seconds:.3f} s in {self.callback}"


class Handle:
    """A callback that a machine will run."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "life", "machine", "time")

    def __init__(
        self,
        machine: Machine,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None = None,
        time: float = 0.0,
    ) -> None:
        self.machine = machine
        self.life = machine.life
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False
        self.time = time

    def cancel(self) -> None:
        """Do not run it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """The time of the machine's loop at which it is due."""
        return self.time


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash does not depend on its address, so that sets of tasks have one order in every run."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **more: Any) -> None:
        self.number = number
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self.number

    __eq__ = object.__eq__


class NumberedFuture(asyncio.Future[Any]):
    """A future whose hash does not depend on its address."""

    number = 0

    def __hash__(self) -> int:
        return self.number

    __eq__ = object.__eq__


class Host:
    """A machine with a disk and clocks, on which one or several processes run.

    Attributes:
        number: The number of its first process.
        boots: Counts how often it was switched on.
        rate: The seconds of its clocks in a second.
        wall_offset: By how much its wall clock is ahead.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.boots = 0
        self.rate = 1.0
        self.wall_offset = 0.0
        self.switched_on = -1000.0 * (number + 1)

    @property
    def boot(self) -> str:
        """What its ticks belong to."""
        return f"{self.name} {self.boots}"


class Machine:
    """A machine with one process, or one of several processes of a machine.

    Attributes:
        host: Whose disk and clocks it has.
        life: Counts the processes that have run on it.
        slow: The seconds that each access to its disk takes longer.
        doom: The callbacks after which the process dies.
        sync_cut: The syncs until the process dies, whether the power fails, and whether the last is done.
        cut: The accesses to the disk after which the process dies, and whether the power fails.
        halt: The statements of its threads after which the process stands still, and for how many seconds.
        stall: The statements of its threads after which one of them stalls, and for how many seconds.
        stopping: What a signal to stop calls.
        after_crash: Called after its process has died.
    """

    def __init__(self, world: World, name: str, number: int, host: Host | None) -> None:
        self.world = world
        self.name = name
        self.number = number
        self.host = Host(name, number) if host is None else host
        self.ready: deque[Handle] = deque()
        self.life = 0
        self.up = True
        self.paused_until = 0.0
        self.slow = 0.0
        self.doom: int | None = None
        self.cut: tuple[int, bool] | None = None
        self.halt: tuple[int, float] | None = None
        self.stall: tuple[int, float] | None = None
        self.sync_cut: tuple[int, bool, bool] | None = None
        self.locks: set[int] = set()
        self.told_at = 0.0
        """When the event loop hears of the last thing that a thread has told it."""
        self.wires: dict[int, Wire] = {}
        self.stopping: Callable[[], object] | None = None
        self.after_crash: Callable[[], object] = lambda: None

    def ticks(self, time: float) -> float:
        """The seconds since the machine was switched on, by its own clock."""
        return (time - self.host.switched_on) * self.host.rate

    def time_at(self, ticks: float) -> float:
        """The world's time at a tick."""
        return ticks / self.host.rate + self.host.switched_on

    @property
    def boot(self) -> str:
        """What its ticks belong to."""
        return self.host.boot

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Start a task of its process."""
        with self.world.at_home(self):
            self.world.create_task(coroutine, name=name)


class _AtHome:
    """Runs a block as if a machine did."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world, self._machine, self._before = world, machine, world.here

    def __enter__(self) -> None:
        self._before = self._world.here
        self._world.move_to(self._machine)

    def __exit__(self, *error: object) -> None:
        self._world.move_to(self._before)


class World(asyncio.AbstractEventLoop):
    """The event loop of all machines, and the time.

    Args:
        seed: Decides everything.
        disk: The disks of the machines.
        tracing: Whether to keep all lines of the trace. Their hash is always kept.
    """

    network: Network

    def __init__(self, seed: int, disk: Disk, *, tracing: bool = False) -> None:
        self.seed = seed
        self.disk = disk
        self.chance = Random(f"schedule {seed}")
        self.entropy = Random(f"entropy {seed}")
        self.points = Random(f"points {seed}")
        self.now = 0.0
        self.machines: list[Machine] = []
        self.outside = self.machine("")
        self.here = self.outside
        self.hash = 0
        self.turns = 0
        self.turned_at = 0.0
        """When the last turn began."""
        self.tracing = tracing
        self.notes: list[Note] = []
        self.faults: Counter[str] = Counter()
        self.errors: list[Note] = []
        self.stalls: list[Stall] = []
        self.jumps: list[float] = []
        """When a wall clock was set."""
        self.power_cuts: list[float] = []
        """When the power failed."""
        self.crashed_at = -1000.0
        """When a process died last."""
        self.stop_at = float("inf")
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = 0
        self._readings = 0
        self._hub = greenlet.getcurrent()
        self._kept: list[object] = []
        self.after_power_cut: Callable[[Host], object] = lambda host: None
        disk.seed(seed)
        disk.step = self._disk_step

    def machine(self, name: str, host: Host | None = None) -> Machine:
        """Add a machine, or a process of one that is there already."""
        machine = Machine(self, name, len(self.machines), host)
        self.machines.append(machine)
        self.disk.hosts[machine.number] = machine.host.number
        return machine

    def note(self, machine: str, text: str) -> None:
        """Write a line into the trace."""
        self.hash = zlib.crc32(f"{self.now:.9f} {machine} {text}".encode(), self.hash)
        if self.tracing:
            self.notes.append(Note(self.now, machine, text))

    def detail(self, machine: str, text: str) -> None:
        """Write a line into the trace that the hash does not cover: others look the same without it."""
        if self.tracing:
            self.notes.append(Note(self.now, machine, text))

    def fault(self, kind: str, machine: str, text: str = "") -> None:
        """Count a fault and write it into the trace."""
        self.faults[kind] += 1
        self.note(machine, f"FAULT {kind} {text}".rstrip())

    # Clocks

    def ticks(self) -> float:
        """The monotonic clock of the machine that runs now."""
        self._readings += 1
        if self._readings > SPIN_READINGS:
            self.now += 0.000_1
        return self.here.ticks(self.now)

    def wall(self) -> float:
        """The wall clock of the machine that runs now."""
        return EPOCH + self.now * self.here.host.rate + self.here.host.wall_offset

    # Lives

    def at_home(self, machine: Machine) -> _AtHome:
        """Run a block as if a machine did."""
        return _AtHome(self, machine)

    def move_to(self, machine: Machine) -> None:
        """Run on this machine from now on."""
        self.here = machine
        self.disk.here = machine.number

    def pause(self, machine: Machine, seconds: float) -> None:
        """Let a machine stand still."""
        machine.paused_until = max(machine.paused_until, self.now + seconds)
        self.after(self.outside, seconds + 0.000_001, lambda: None)

    def crash(self, machine: Machine, *, power: bool) -> None:
        """End the process of a machine. With `power`, the machine is switched off with all its processes."""
        if not machine.up:
            return
        self.fault("power cut" if power else "kill", machine.name)
        self.crashed_at = self.now
        if power:
            self.power_cuts.append(self.now)
            for one in self.machines:
                if one.host is machine.host and one.up:
                    self._kill(one)
            self.disk.lose_power(machine.host.number)
            self.after_power_cut(machine.host)
            self.switch_on(machine.host)
        else:
            self._kill(machine)

    def switch_on(self, host: Host) -> None:
        """Let the ticks of a machine begin anew, anywhere."""
        host.boots += 1
        chance = Random(f"boot {self.seed} {host.number} {host.boots}")
        host.switched_on = self.now - chance.choice((1.0, 10_000.0))

    def _kill(self, machine: Machine) -> None:
        self._kept.append(list(machine.ready))
        machine.ready.clear()
        machine.life += 1
        machine.up = False
        machine.paused_until = 0.0
        machine.doom = machine.cut = machine.sync_cut = machine.halt = machine.stall = None
        machine.stopping = None
        self.disk.kill(machine.number)
        for file in sorted(machine.locks):
            os.close(file)
        machine.locks.clear()
        for wire in list(machine.wires.values()):
            wire.end_died(machine)
        machine.wires.clear()
        machine.after_crash()

    # The event loop, as asyncio and the library see it

    def time(self) -> float:
        return self.here.ticks(self.now)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(self.here, callback, args, context)
        self.here.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Run something in the event loop, which learns of it a little later if a thread asks for that."""
        machine = self.here
        if current_thread() is None or self.chance.random() < 0.5:
            delay = 0.0
        else:
            delay = self.chance.expovariate(1 / SLOW_WAKE) * (30 if self.chance.random() < 0.05 else 1)
        machine.told_at = max(self.now + delay, machine.told_at + 1e-7)
        return self._timer(machine, machine.told_at, callback, args, context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self._timer(
            self.here, self.now + max(0.0, delay) / self.here.host.rate, callback, args, context
        )

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self._timer(self.here, max(self.now, self.here.time_at(when)), callback, args, context)

    def _timer(
        self,
        machine: Machine,
        time: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None = None,
    ) -> Handle:
        handle = Handle(machine, callback, args, context, machine.ticks(time))
        self._sequence += 1
        heapq.heappush(self._timers, (time, self._sequence, handle))
        return handle

    def after(self, machine: Machine, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Run something on a machine after a delay."""
        return self._timer(machine, self.now + delay, callback, args)

    def soon(self, machine: Machine, callback: Callable[..., object], *args: Any) -> None:
        """Run something on a machine in its next turn."""
        machine.ready.append(Handle(machine, callback, args))

    def create_future(self) -> NumberedFuture:
        future = NumberedFuture(loop=self)
        self._sequence += 1
        future.number = self._sequence
        return future

    def create_task(self, coro: Any, **more: Any) -> NumberedTask:
        self._sequence += 1
        task = NumberedTask(self._sequence, coro, loop=self, **more)
        self._kept.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        self.here.stopping = callback

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._failed(f"{context.get('message')}: {context.get('exception')!r}")

    def _failed(self, text: str) -> None:
        self.errors.append(Note(self.turned_at, self.here.name, text))
        self.note(self.here.name, f"ERROR {text.splitlines()[0]}")

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: str, port: int, **more: Any
    ) -> tuple[Any, Any]:
        return await self.network.connect(self.here, factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        if executor is not None:
            return asyncio.wrap_future(executor.submit(function, *args), loop=self)
        future = self.create_future()

        def work() -> None:
            try:
                self.call_soon(_settle, future, function(*args), None)
            except BaseException as error:
                self.call_soon(_settle, future, None, error)

        self.start_thread(work)
        return future

    # Threads, as greenlets

    def start_thread(self, target: Callable[[], object]) -> None:
        """Start a thread of the process that runs now."""
        thread = Thread(target, parent=self._hub)
        thread.machine = self.here
        self._kept.append(thread)
        self.after(self.here, self.chance.uniform(0, 0.000_3), self.resume, thread)

    def resume(self, thread: Thread) -> None:
        """Let a thread go on."""
        if not thread.dead:
            thread.switch()

    def park(self, delay: float | None = None) -> None:
        """Let others run. Only a thread may do this; it goes on after a delay, or when it is resumed."""
        thread = current_thread()
        assert thread is not None, "an event loop must not wait"
        if delay is not None:
            self.after(thread.machine, delay, self.resume, thread)
        self._hub.switch()

    def _disk_step(self, operation: str, number: int, amount: int) -> bool:
        """A process is about to use its disk: others may run before it does."""
        thread = current_thread()
        if thread is None:
            if operation == "sleep":  # an event loop that waits for a lock stands still
                self.now += amount / 1e6
            return False
        machine = thread.machine
        if machine.cut is not None and operation != "sleep":
            left, power = machine.cut
            machine.cut = (left - 1, power)
            if left <= 1:
                self.note(machine.name, f"the power fails before a {operation}")
                machine.paused_until = float("inf")
                self.soon(self.outside, lambda: self.crash(machine, power=power))
                self._hub.switch()  # it never comes back
        if operation == "sleep":
            self.park(amount / 1e6)
        elif operation == "sync":
            self.park(self._disk_delay(SLOW_SYNC) + machine.slow)
            if machine.sync_cut is not None:
                left, power, done = machine.sync_cut
                machine.sync_cut = (left - 1, power, done)
                if left <= 1:
                    self._die_at_sync(machine, power=power, done=done)
        elif self.chance.random() < 0.3:
            self.park(self._disk_delay(SLOW_WRITE) + machine.slow)
        return False

    def _die_at_sync(self, machine: Machine, *, power: bool, done: bool) -> None:
        """Let a process die at a sync: before it, or when the disk is done and the process does not know."""
        self.note(machine.name, f"dies {'after' if done else 'before'} a sync")
        if done:
            self.disk.sync_now()
        machine.paused_until = float("inf")
        self.soon(self.outside, lambda: self.crash(machine, power=power))
        self._hub.switch()  # it never comes back

    def before_statement(self, is_commit: bool) -> None:
        """A thread is about to execute a statement: others may run before, or its process may stand still.

        The thread alone may stall, too, but not before a commit: what is decided by then takes effect.
        """
        thread = current_thread()
        if thread is None:
            return
        machine = thread.machine
        if machine.stall is not None and not is_commit:
            left, seconds = machine.stall
            machine.stall = (left - 1, seconds)
            if left <= 1:
                machine.stall = None
                self.fault("stalled thread", machine.name, f"{seconds} s")
                self.park(seconds)
        if machine.halt is not None:
            left, seconds = machine.halt
            machine.halt = (left - 1, seconds)
            if left <= 1:
                machine.halt = None
                self.fault("pause while writing", machine.name, f"{seconds} s")
                self.pause(machine, seconds)
                self.park(0.0)
        if self.chance.random() < 0.3:
            self.park(self.chance.expovariate(1 / SLOW_STATEMENT))

    def _disk_delay(self, usual: float) -> float:
        return self.chance.expovariate(1 / usual) * (100 if self.chance.random() < 0.01 else 1)

    # Running

    def run(self, done: Callable[[], bool]) -> None:
        """Run all machines until `done` is true."""
        asyncio.events._set_running_loop(self)
        timers, machines, chance = self._timers, self.machines, self.chance
        while not done():
            while timers and timers[0][0] <= self.now:
                handle = heapq.heappop(timers)[2]
                if handle.life == handle.machine.life and not handle.is_cancelled:
                    handle.machine.ready.append(handle)
            able = [one for one in machines if one.ready and one.paused_until <= self.now]
            if able:
                self._turn(able[0] if len(able) == 1 else able[int(chance.random() * len(able))])
                self.now += TURN_SECONDS
            else:
                self.now = max(self.now, timers[0][0])
        asyncio.events._set_running_loop(None)

    def _turn(self, machine: Machine) -> None:
        """One round of the event loop of a machine over what is ready."""
        if self.now >= self.stop_at:
            breakpoint()
        self.turned_at = self.now
        self.move_to(machine)
        ready, life = machine.ready, machine.life
        self.hash = zlib.crc32(b"%d %d %.9f" % (machine.number, len(ready), self.now), self.hash)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.is_cancelled or handle.life != life:
                continue
            began, self._readings = self.now, 0
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:
                self._failed(traceback.format_exc())
            if self.now - began > STALL_SECONDS:
                name = getattr(handle.callback, "__qualname__", repr(handle.callback))
                self.stalls.append(Stall(machine.name, self.now - began, name, self.turned_at))
                self.note(machine.name, f"stood still for {self.now - began:.3f} s")
            if machine.doom is not None:
                machine.doom -= 1
                if machine.doom <= 0:
                    self.crash(machine, power=False)
            if machine.life != life:
                break
        self.move_to(self.outside)
        self.turns += 1


class Thread(greenlet.greenlet):  # type: ignore[misc]
    """A thread of a process."""

    machine: Machine


def current_thread() -> Thread | None:
    """The thread that runs now, or None in an event loop."""
    current = greenlet.getcurrent()
    return current if isinstance(current, Thread) else None


def _settle(future: NumberedFuture, result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
