"""What the library takes from its surroundings: time, chance, threads, locks on files, and who it is.

The rest of the library takes these things from here and looks them up at each use, as in
`seams.monotonic()`. So a simulation of a whole machine can replace them by setting the attributes of this one
module (`tests/simulation`). A rule of ruff bans what they stand for everywhere else.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread, Timer
from typing import Final, ParamSpec, TypeVar

__all__ = [
    "BUGGIFY",
    "WAITED_FOR",
    "Empty",
    "Lock",
    "SimpleQueue",
    "Thread",
    "Timer",
    "aside",
    "cpu",
    "entropy",
    "flock",
    "host",
    "in_new_thread",
    "maybe",
    "monotonic",
    "pid",
    "pool",
    "quick_flock",
    "secret",
    "sleep",
    "this_machine",
    "ticks",
    "token",
    "uniform",
    "wall",
    "wall_ns",
]

P = ParamSpec("P")
T = TypeVar("T")

# Clocks, in seconds

monotonic: Callable[[], float] = time.monotonic
ticks: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""A monotonic clock that, where the platform allows, also counts while the machine sleeps."""
wall: Callable[[], float] = time.time
wall_ns: Callable[[], int] = time.time_ns
cpu: Callable[[], float] = time.thread_time
"""The CPU time of the current thread."""
sleep: Callable[[float], None] = time.sleep
"""Let the current thread wait. An event loop must not."""

# Chance

entropy: Callable[[int], bytes] = os.urandom
"""Return this many bytes that nobody can guess."""
uniform: Callable[[], float] = random.random
"""Return a number from 0 up to 1, for pauses and samples. It can be guessed."""


def token(size: int) -> str:
    """Return a name that no one else makes, as twice `size` hexadecimal digits."""
    return entropy(size).hex()


def secret(size: int) -> str:
    """Return a secret of `size` bytes, as text that may stand in a URL."""
    return urlsafe_b64encode(entropy(size)).rstrip(b"=").decode("ascii")


# Threads: `Thread`, `Timer`, `Lock` and `SimpleQueue` are those of the standard library

WAITED_FOR: Final[ContextVar[bool]] = ContextVar("holdfast_waited_for", default=False)
"""Whether a thread waits for the current call."""


async def aside(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function in another thread, and await what it returns.

    If a thread waits for the current call, that is a new thread. The event loop has few, and all of them may
    be waiting for such calls.
    """
    if WAITED_FOR.get():
        called = partial(copy_context().run, function, *arguments, **named)
        return await asyncio.wrap_future(in_new_thread(called))
    return await asyncio.to_thread(function, *arguments, **named)


def in_new_thread(function: Callable[[], T]) -> Future[T]:
    """Call a function in a thread of its own, which does not keep the process from ending."""
    future: Future[T] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="holdfast work", daemon=True).start()
    return future


def pool(name: str) -> Executor:
    """Return an executor with one thread, which starts with its first job."""
    # late: it takes 3 ms, and few programs need it
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix=name)


# Locks on files

flock: Callable[[int, int], None] = fcntl.flock


def quick_flock() -> Callable[[int, int], int] | None:
    """Return the system's `flock`, called without releasing the interpreter, or None if it can't be had.

    It is for calls that don't wait, and returns 0 if it succeeded. Releasing the interpreter to the event
    loop and getting it back takes longer than the call.
    """
    try:
        # late: it takes 3 ms, and only a program that writes needs it
        import ctypes

        function: Callable[[int, int], int] = ctypes.PyDLL(None, use_errno=True).flock
    except (ImportError, OSError, AttributeError):
        return None
    return function


# Faults beside the code

BUGGIFY: Final[bool] = False
"""Whether rare things are made to happen, which only a simulation does. See `maybe`."""


def maybe(point: str) -> bool:
    """Return whether the rare thing at a point of the code is to happen now.

    Points are where a turn, a group or a file is handled, never on the way of each request. They ask for
    `BUGGIFY` first, which costs next to nothing. What happens at a point must be allowed to happen at any
    time. A simulation chooses half of the points for a run, and each of them strikes now and then.

    Args:
        point: The name of the point, unlike that of any other.
    """
    return False


# Who this is

pid: Callable[[], int] = os.getpid
host: Callable[[], str] = socket.gethostname


def this_machine() -> str | None:
    """Name what `ticks` belong to: this machine since it was started, and the time namespace of this process.

    A container may have a time namespace, whose ticks are shifted. Returns None where the system does not
    tell, which is anywhere but on Linux.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            started = file.read().strip()
    except (OSError, ValueError):
        return None
    try:
        space = os.readlink("/proc/self/ns/time")
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            shifts = file.read().split()
    except FileNotFoundError:  # a kernel before 5.6 has no time namespaces
        return started
    except (OSError, ValueError):
        return None
    return " ".join([started, space, *shifts])
