"""Timing: so many in flight, or at a rate, and what came of it.

Nothing here knows what it times. At a rate, the latency of a call counts from when it was due, so that a
stall counts for all that it delays. What is asked for the time is passed in, so that tests can do without it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    Operation = Callable[[int], Awaitable[object]]

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Timer(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Seconds, from anywhere."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait, or at least let others run."""
        ...


class RealTimer:
    """The machine's own."""

    def now(self) -> float:
        """Seconds that only go forward."""
        return time.perf_counter()

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        await asyncio.sleep(seconds)


REAL: Final = RealTimer()


class Window(msgspec.Struct, kw_only=True):
    """What came of a while of calling: the milliseconds of each call that succeeded, and errors by name."""

    seconds: float = 0.0
    latencies: list[float] = []
    errors: dict[str, int] = {}

    @property
    def per_second(self) -> float:
        """Calls that succeeded, by the second."""
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    @property
    def error_rate(self) -> float:
        """The share of calls that failed."""
        failed = sum(self.errors.values())
        return failed / max(1, failed + len(self.latencies))

    def percentiles(self) -> dict[str, float]:
        """The latencies that are told, by name."""
        return {name: percentile(self.latencies, share) for name, share in SHARES.items()}


def merged(windows: Sequence[Window]) -> Window:
    """Windows of the same while, of several processes, as one."""
    errors = sum((Counter(window.errors) for window in windows), Counter[str]())
    return Window(
        seconds=max(window.seconds for window in windows),
        latencies=[taken for window in windows for taken in window.latencies],
        errors=dict(errors),
    )


class _Tally:
    """Runs calls and keeps the books of them."""

    def __init__(self, operation: Operation, timer: Timer) -> None:
        self._operation = operation
        self._timer = timer
        self.window = Window()

    async def call(self, number: int, due: float) -> None:
        try:
            await self._operation(number)
        except Exception as error:
            name = getattr(error, "code", None) or type(error).__name__
            self.window.errors[str(name)] = self.window.errors.get(str(name), 0) + 1
        else:
            self.window.latencies.append((self._timer.now() - due) * 1000)


async def closed_loop(
    operation: Operation, *, in_flight: int, seconds: float, timer: Timer = REAL, first: int = 0
) -> Window:
    """Call with so many in flight: each caller calls again when it has its answer."""
    tally, number, began = _Tally(operation, timer), first, timer.now()
    end = began + seconds

    async def caller() -> None:
        nonlocal number
        while (now := timer.now()) < end:
            number += 1
            await tally.call(number, now)

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    tally.window.seconds = timer.now() - began
    return tally.window


async def open_loop(
    operation: Operation,
    *,
    per_second: float,
    seconds: float = math.inf,
    until: Callable[[], bool] = lambda: False,
    timer: Timer = REAL,
) -> Window:
    """Call at a rate, whatever becomes of earlier calls, for so long or until something is so."""
    tally, calls, began, number = _Tally(operation, timer), set[asyncio.Task[None]](), timer.now(), 0
    while number < per_second * seconds and not until():
        due = began + number / per_second
        await timer.sleep(max(0.0, due - timer.now()))
        task = asyncio.create_task(tally.call(number, due))
        calls.add(task)
        task.add_done_callback(calls.discard)
        number += 1
    await asyncio.gather(*calls)
    tally.window.seconds = timer.now() - began
    return tally.window


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of all are not above; nothing has none, and is told as infinite."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else math.inf
