"""Timing and telling: rounds in turn, medians, ranges.

Law: nothing here knows Holdfast.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


@dataclass(frozen=True)
class Result:
    """One comparison: what was measured, round by round, and the bar that its median must pass."""

    scenario: str
    unit: str
    base: list[float]
    measured: list[float]
    bar: str
    passed: bool

    @property
    def ratios(self) -> list[float]:
        """Measured over base, round by round."""
        return [measured / base for measured, base in zip(self.measured, self.base, strict=True)]

    def told(self) -> str:
        """One line for people."""
        low, middle, high = min(self.ratios), statistics.median(self.ratios), max(self.ratios)
        return (
            f"{self.scenario:<46} {statistics.median(self.base):>10.2f} "
            f"{statistics.median(self.measured):>10.2f} {self.unit:<8} "
            f"ratio {middle:.2f} ({low:.2f} to {high:.2f})  "
            f"{self.bar}: {'reached' if self.passed else 'MISSED'}"
        )

    def as_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        return asdict(self) | {"ratios": self.ratios, "median_ratio": statistics.median(self.ratios)}


def compare(
    scenario: str, *, unit: str, base: Sequence[float], measured: Sequence[float], bar: str, passed: bool
) -> Result:
    """A comparison of rounds that were run in turn."""
    return Result(scenario, unit, list(base), list(measured), bar, passed)


def machine() -> dict[str, str]:
    """What this was measured on."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "command": " ".join(sys.argv[1:]),
    }


async def throughput(
    operation: Callable[[int], Awaitable[object]], *, in_flight: int, seconds: float
) -> float:
    """Operations per second with so many in flight at a time."""
    done, number = 0, 0
    end = time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done, number
        while time.perf_counter() < end:
            number += 1
            await operation(number)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return done / (time.perf_counter() - began)


async def latencies(
    operation: Callable[[int], Awaitable[object]], *, per_second: float, until: Callable[[], bool]
) -> list[float]:
    """Milliseconds from when each call was due, in an open loop: a stall counts for all that it delays."""
    found: list[float] = []
    calls: set[asyncio.Task[None]] = set()
    began = time.perf_counter()

    async def call(number: int, due: float) -> None:
        await operation(number)
        found.append((time.perf_counter() - due) * 1000)

    number = 0
    while not until():
        due = began + number / per_second
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(call(number, due))
        calls.add(task)
        task.add_done_callback(calls.discard)
        number += 1
    await asyncio.gather(*calls)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
