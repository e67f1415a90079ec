"""Everything that the simulation replaces, and every name of the library that it knows.

The library takes time, chance and threads from `holdfast.seams`. While there is no world, everything behaves
as usual.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import logging
import os
import pkgutil
import queue
import random
import re
import sqlite3
import sys
import time
from collections import Counter, deque
from concurrent.futures import Executor, Future
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import holdfast
import holdfast.seams
from holdfast.edges import serve as _serving
from holdfast.edges.settings.table import Config
from holdfast.engines.cluster.shard import Shard
from tests.simulation.world import World, current_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import HoldfastError
    from tests.simulation.world import Thread

real_time: Final = time.perf_counter
cpu_time: Final = time.process_time

_world: World | None = None
points: Counter[str] = Counter()
"""How often each point that is on in this world was reached."""
_on: dict[str, bool] = {}

RESTART_SECONDS: Final = 3.0
"""How long a node that asks to be restarted waits for that."""
STRIKES: Final = 0.05
"""How often a point that is on strikes."""
DRAWS: Final = 0.25
"""How often a constant has another value than usual."""
OFTEN: Final = dict.fromkeys(("LEASE_MS", "SHARED_SECONDS", "LOOK_SECONDS", "HEADROOM"), 0.5)
"""How often those have that rare cases depend on."""
DRAWN: Final[tuple[tuple[str, tuple[str, ...], tuple[float, ...]], ...]] = (
    ("MAX_GROUP", ("pipeline.batcher",), (1, 2, 8)),
    ("IN_A_GROUP", ("edges.intake.service",), (1, 3, 16)),
    ("MANY_ROWS", ("pace", "engines.sqlite.engine", "pipeline.executor"), (2, 16)),
    ("PART_ROWS", ("engines.sqlite.decider",), (1, 4)),
    ("CHECKPOINT_PAGES", ("engines.sqlite.writer",), (1, 16)),
    ("IDLE_SECONDS", ("engines.sqlite.writer",), (0.01, 2.0)),
    ("MOST_RECORDS", ("pipeline.watch",), (1, 5)),
    ("STEP", ("pipeline.listing",), (2,)),
    ("MOST", ("engines.cluster.write_queue",), (1, 8)),
    ("LEASE_MS", ("engines.cluster.shard",), (150, 3000)),
    ("RENEW_SECONDS", ("engines.cluster.lease", "engines.cluster.shard"), (0.05, 0.9)),
    ("SHARED_SECONDS", ("engines.cluster.lease",), (0.05, 0.3)),
    ("LOOK_SECONDS", ("engines.cluster.forwarding",), (0.02,)),
    ("ATTEMPT_SECONDS", ("engines.cluster.log",), (0.2,)),
    ("HEADROOM", ("engines.cluster.messages", "engines.cluster.shard"), (1_046_000, 1_020_000)),
)
"""Constants that a seed may change, the modules that have them, and their other values."""


def enter(world: World) -> None:
    """Let this process be the machines of a world from now on."""
    global _world  # noqa: PLW0603 - the one world of this process
    _world = world
    random.seed(world.seed)
    chance = Random(f"constants {world.seed}")
    for name, modules, values in DRAWN:
        value = chance.choice(values)
        if chance.random() < OFTEN.get(name, DRAWS):
            world.note("", f"{name} is {value}")
            for module in modules:
                setattr(importlib.import_module(f"holdfast.{module}"), name, value)
    setattr(holdfast.seams, "BUGGIFY", True)  # noqa: B010 - it is final for everybody else


def _maybe(world: World, point: str) -> bool:
    """Half of the points are on in a world, and each of them strikes now and then."""
    if point not in _on:
        _on[point] = Random(f"{point} {world.seed}").random() < 0.5
    if not _on[point]:
        return False
    points[point] += 1
    if world.points.random() >= STRIKES:
        return False
    world.fault(point, world.here.name)
    return True


def all_points() -> set[str]:
    """The points that the library has."""
    code = "".join(file.read_text() for file in Path(holdfast.__file__).parent.rglob("*.py"))
    return set(re.findall(r'seams\.BUGGIFY and seams\.maybe\("([^"]+)"\)', code))


def _instead(owner: Any, name: str, simulated: Callable[..., Any]) -> None:
    """Call `simulated` with the world instead of a function, once there is a world."""
    usual = getattr(owner, name)

    def chosen(*args: Any, **fields: Any) -> Any:
        return usual(*args, **fields) if _world is None else simulated(_world, *args, **fields)

    setattr(owner, name, chosen)


def _flock(world: World, file: int, how: int) -> None:
    """A lock that blocks its thread, not the world."""
    while True:
        try:
            _real_flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if how & fcntl.LOCK_NB or current_thread() is None:
                raise
            world.park(0.001)
        else:
            world.here.locks.add(file)
            return


def _close(world: World, file: int) -> None:
    world.here.locks.discard(file)
    _real_close(file)


def _halt(shard: Shard, error: HoldfastError) -> None:
    """A node that asks to be restarted is restarted, as an operator would."""
    _real_halt(shard, error)
    if _world is not None and "restart it" in error.message:
        machine, life, world = _world.here, _world.here.life, _world

        def restart() -> None:
            if machine.life == life:
                world.crash(machine, power=False)

        world.after(world.outside, RESTART_SECONDS, restart)


def _connect(world: World, *args: Any, **fields: Any) -> sqlite3.Connection:
    """A connection whose thread may be interrupted before each statement."""
    connection: sqlite3.Connection = _real_connect(*args, **fields)
    world.disk.trace(connection, world.before_statement)
    return connection


class SimpleQueue:
    """What `queue.SimpleQueue` is, for threads that are greenlets."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Thread] = deque()

    def put(self, item: Any) -> None:
        """Add an item, and wake a thread that waits for one."""
        assert _world is not None
        self._items.append(item)
        if self._waiting:
            thread = self._waiting.popleft()
            _world.after(thread.machine, _world.chance.expovariate(20_000), _world.resume, thread)

    def empty(self) -> bool:
        """Whether there is no item."""
        return not self._items

    def get(self, timeout: float | None = None) -> Any:
        """Wait for an item and take it."""
        world, thread = _world, current_thread()
        assert world is not None
        assert thread is not None
        end = None if timeout is None else world.now + timeout
        while not self._items:
            if end is not None and world.now >= end:
                raise queue.Empty
            self._waiting.append(thread)
            if end is not None:
                world.after(thread.machine, end - world.now, self._give_up, thread)
            world.park()
        return self._items.popleft()

    def _give_up(self, thread: Thread) -> None:
        if thread in self._waiting:
            self._waiting.remove(thread)
            assert _world is not None
            _world.resume(thread)


class ThreadOfWorld:
    """What `threading.Thread` is, as a greenlet."""

    def __init__(self, target: Callable[[], object], name: str = "", daemon: bool | None = None) -> None:
        self._target = target
        self.name = name
        self.daemon = daemon
        self._ended = False
        self._joining: list[Thread] = []

    def start(self) -> None:
        """Start it."""
        assert _world is not None
        _world.start_thread(self._run)

    def _run(self) -> None:
        self._target()
        self._ended = True
        assert _world is not None
        for thread in self._joining:
            _world.after(thread.machine, 0.000_01, _world.resume, thread)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self._ended

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        assert _world is not None
        thread = current_thread()
        assert thread is not None
        while not self._ended:
            self._joining.append(thread)
            _world.park()


class LockOfWorld:
    """What `threading.Lock` is."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True) -> bool:
        """Take it. A thread waits for it; an event loop does not."""
        assert _world is not None
        while self._held:
            if not blocking:
                return False
            _world.park(0.000_1)
        self._held = True
        return True

    def release(self) -> None:
        """Give it back."""
        self._held = False

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class PoolOfWorld(Executor):
    """What `ThreadPoolExecutor` is."""

    def __init__(self, max_workers: int = 4, thread_name_prefix: str = "") -> None:
        self._most = max_workers
        self._jobs = SimpleQueue()
        self._threads: list[ThreadOfWorld] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in one of the threads."""
        future: Future[Any] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        if len(self._threads) < self._most:
            self._threads.append(ThreadOfWorld(self._work))
            self._threads[-1].start()
        self._jobs.put(job)
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the threads once they have done their work."""
        for _ in self._threads:
            self._jobs.put(None)
        if wait and current_thread() is not None:
            for thread in self._threads:
                thread.join()


class TimerOfWorld:
    """What `threading.Timer` is."""

    def __init__(self, interval: float, function: Callable[[], object]) -> None:
        self._interval = interval
        self._function = function
        self._handle: Any = None

    def start(self) -> None:
        """Call the function after the interval."""
        assert _world is not None
        self._handle = _world.call_later(self._interval, self._function)

    def cancel(self) -> None:
        """Do not call it."""
        self._handle.cancel()

    def join(self, timeout: float | None = None) -> None:
        """Return: it has no thread."""


_real_flock: Final = holdfast.seams.flock
_real_halt: Final = Shard._halt
_real_close: Final = os.close
_real_connect: Final = sqlite3.connect

_instead(holdfast.seams, "monotonic", lambda world: world.ticks())
_instead(holdfast.seams, "ticks", lambda world: world.ticks())
_instead(holdfast.seams, "cpu", lambda world: world.ticks())
_instead(holdfast.seams, "wall", lambda world: world.wall())
_instead(holdfast.seams, "wall_ns", lambda world: int(world.wall() * 1e9))
_instead(holdfast.seams, "sleep", lambda world, seconds: world.park(seconds))
_instead(holdfast.seams, "entropy", lambda world, size: world.entropy.randbytes(size))
_instead(holdfast.seams, "uniform", lambda world: world.entropy.random())
_instead(holdfast.seams, "Thread", lambda world, **fields: ThreadOfWorld(**fields))
_instead(holdfast.seams, "Timer", lambda world, *args: TimerOfWorld(*args))
_instead(holdfast.seams, "Lock", lambda world: LockOfWorld())
_instead(holdfast.seams, "SimpleQueue", lambda world: SimpleQueue())
_instead(holdfast.seams, "pool", lambda world, name: PoolOfWorld(1))
_instead(holdfast.seams, "maybe", _maybe)
_instead(holdfast.seams, "flock", _flock)
_instead(holdfast.seams, "quick_flock", lambda world: None)
_instead(holdfast.seams, "pid", lambda world: 1000 + world.here.number)
_instead(holdfast.seams, "host", lambda world: world.here.name)
_instead(holdfast.seams, "this_machine", lambda world: world.here.boot)

# What the library uses of the standard library without asking anybody else

_instead(os, "close", _close)
setattr(Shard, "_halt", _halt)  # noqa: B010 - this is no method of another class
_instead(sqlite3, "connect", _connect)
_instead(gc, "collect", lambda world, *generation: 0)
_instead(gc, "freeze", lambda world: None)
_instead(sys, "setswitchinterval", lambda world, seconds: None)

PACKAGES: Final = (
    *(
        "decide",
        "engines.sqlite",
        "client",
        "engines.cluster",
        "moves",
        "operators",
        "pipeline",
        "wire",
    ),
)
"""Where the library has modules that it imports when they are needed."""


def prepare() -> None:
    """Do once what every seed would have to do."""
    logging.disable(logging.CRITICAL)
    importlib.import_module("encodings.idna")
    importlib.import_module("importlib.readers")
    for name in PACKAGES:
        try:
            package = importlib.import_module(f"holdfast.{name}")
        except ImportError:
            continue
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
            importlib.import_module(module.name)
    for name, modules, _ in DRAWN:
        assert all(hasattr(importlib.import_module(f"holdfast.{module}"), name) for module in modules), name


async def serve(url: str, *, nats: str, folder: str, cache_bytes: int) -> None:
    """Run a service on a store until it is told to stop."""
    config = Config(
        db=url,
        data_dir=folder,
        nats=nats,
        http_port=0,
        console=False,
        cache_bytes=cache_bytes,
        kv_cleanup_interval_seconds=2.0,
    )
    await _serving.serve(config, say=lambda line: None)
