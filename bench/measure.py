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
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


class Result(Protocol):
    """What a scenario found."""

    @property
    def passed(self) -> bool:
        """Whether every bar was reached."""
        ...

    def told(self) -> str:
        """It, for people."""
        ...

    def as_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        ...


@dataclass(frozen=True)
class Comparison:
    """What was measured beside a base, round by round, and the bar that the median ratio must pass."""

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
            f"{self.bar}: {_verdict(self.passed)}"
        )

    def as_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        return asdict(self) | {"ratios": self.ratios, "median_ratio": statistics.median(self.ratios)}


@dataclass(frozen=True)
class Figures:
    """Several figures, round by round, and for some of them a bar that their median must not be above.

    A bar of 0 is for every round: what must not happen must not happen in most rounds only.
    """

    scenario: str
    figures: dict[str, list[float]]
    bars: dict[str, float]

    @property
    def passed(self) -> bool:
        """Whether every bar was reached."""
        return all(self._reached(name) for name in self.bars)

    def told(self) -> str:
        """A heading, and a line for each figure."""
        return "\n".join([self.scenario, *map(self._line, self.figures)])

    def as_dict(self) -> dict[str, object]:
        """Everything, for a file."""
        medians = {name: statistics.median(found) for name, found in self.figures.items()}
        return asdict(self) | {"medians": medians, "passed": self.passed}

    def _reached(self, name: str) -> bool:
        bar, found = self.bars[name], self.figures[name]
        return (statistics.median(found) if bar else max(found)) <= bar

    def _line(self, name: str) -> str:
        found = self.figures[name]
        spread = f"{statistics.median(found):>10.2f} ({min(found):.2f} to {max(found):.2f})"
        bar = f"  at most {self.bars[name]:g}: {_verdict(self._reached(name))}" if name in self.bars else ""
        return f"    {name:<12} {spread}{bar}"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def machine() -> dict[str, str]:
    """What this was measured on."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
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
