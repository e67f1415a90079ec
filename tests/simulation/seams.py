"""Everything that the simulation replaces, and every name of the library that it knows.

Import this module before the library: what reads a clock, makes a token or starts a thread is looked up once
at import in some places. While there is no world, everything behaves as usual.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import gc
import importlib
import logging
import os
import pkgutil
import queue
import random
import socket
import sqlite3
import sys
import threading
import time
from collections import deque
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.world import World, current_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Thread

real_time: Final = time.perf_counter
cpu_time: Final = time.process_time

_world: World | None = None


def enter(world: World) -> None:
    """Let this process be the machines of a world from now on."""
    global _world  # noqa: PLW0603 - the one world of this process
    _world = world
    random.seed(world.seed)


def _instead(owner: Any, name: str, simulated: Callable[..., Any]) -> None:
    """Call `simulated` with the world instead of a function, once there is a world."""
    usual = getattr(owner, name)

    def chosen(*args: Any, **fields: Any) -> Any:
        return usual(*args, **fields) if _world is None else simulated(_world, *args, **fields)

    setattr(owner, name, chosen)


def _instead_of_class(owner: Any, name: str, simulated: Callable[..., Any]) -> None:
    """Make an object of another class, once there is a world. Subclasses stay as they are."""
    usual = getattr(owner, name)

    def new(cls: type, *args: Any, **fields: Any) -> Any:
        if _world is None or cls is not chosen:
            return object.__new__(cls)
        return simulated(*args, **fields)

    chosen = type(name, (usual,), {"__new__": new})
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


def _connect(world: World, *args: Any, **fields: Any) -> sqlite3.Connection:
    """A connection whose thread may be interrupted before each statement."""
    connection: sqlite3.Connection = _real_connect(*args, **fields)
    connection.set_trace_callback(world.before_statement)
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


_real_flock: Final = fcntl.flock
_real_close: Final = os.close
_real_connect: Final = sqlite3.connect

for _name in ("monotonic", "perf_counter", "thread_time"):
    _instead(time, _name, lambda world: world.ticks())
_instead(time, "monotonic_ns", lambda world: int(world.ticks() * 1e9))
_instead(time, "clock_gettime", lambda world, which: world.ticks())
_instead(time, "time", lambda world: world.wall())
_instead(time, "time_ns", lambda world: int(world.wall() * 1e9))
_instead(os, "urandom", lambda world, size: world.entropy.randbytes(size))
random._urandom = os.urandom  # type: ignore[attr-defined]
_instead(os, "getpid", lambda world: 1000 + world.here.number)
_instead(os, "close", _close)
_instead(socket, "gethostname", lambda world: world.here.name)
_instead(fcntl, "flock", _flock)
_instead(sqlite3, "connect", _connect)
_instead_of_class(threading, "Thread", ThreadOfWorld)
_instead_of_class(threading, "Timer", TimerOfWorld)
_instead_of_class(concurrent.futures, "ThreadPoolExecutor", PoolOfWorld)
_instead(queue, "SimpleQueue", lambda world: SimpleQueue())
_instead(gc, "collect", lambda world, *generation: 0)
_instead(gc, "freeze", lambda world: None)
_instead(sys, "setswitchinterval", lambda world, seconds: None)


# The library. No other module of the simulation imports more of it than `holdfast` and `holdfast.errors`.

import holdfast  # noqa: E402 - after what it looks up at import
import holdfast.clock  # noqa: E402
from holdfast.edges import serve as _serving  # noqa: E402
from holdfast.edges.settings.table import Config  # noqa: E402

PACKAGES: Final = (
    *(
        "decide",
        "engines.sqlite",
        "client",
        "engines.remote",
        "engines.cluster",
        "operators",
        "pipeline",
        "wire",
    ),
)
"""Where the library has modules that it imports when they are needed."""

_instead(holdfast.clock, "this_machine", lambda world: world.here.boot)


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


async def serve(url: str, *, nats: str, folder: str) -> None:
    """Run a service on a store until it is told to stop."""
    config = Config(
        db=url,
        data_dir=folder,
        nats=nats,
        http_port=0,
        console=False,
        kv_cleanup_interval_seconds=2.0,
    )
    await _serving.serve(config, say=lambda line: None)
