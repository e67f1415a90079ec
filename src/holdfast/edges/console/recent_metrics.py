"""The figures of the last hour, for the charts of the overview.

Figures are kept in this process alone, in a ring of fixed size. A figure is a difference between two
looks at the metrics, or what a gauge showed at a look.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.monitoring.metrics import Glance, Metrics

EVERY: Final = 10.0
"""Seconds between two looks."""
KEPT: Final = 360
"""Number of looks that are kept: an hour."""


class Point(msgspec.Struct, frozen=True):
    """Figures of the seconds before a time in milliseconds. Percentiles, in seconds, need requests."""

    at: int
    seconds: float
    requests: int
    errors: int
    p50: float | None
    p99: float | None
    commits: int
    commands: int
    waiting: int
    lag: float


class RecentMetrics:
    """The figures of the last hour.

    Args:
        metrics: The metrics that are looked at.
        now: Returns the store's time in milliseconds.
    """

    def __init__(self, metrics: Metrics, now: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now = now
        self._points: deque[Point] = deque(maxlen=KEPT)
        self._since = now()
        self._seen = metrics.glance()

    def look(self) -> None:
        """Add the figures since the last look."""
        now, seen, before = self._now(), self._metrics.glance(), self._seen
        self.keep(_point(now, (now - self._since) / 1000, seen, before))
        self._since, self._seen = now, seen

    def keep(self, point: Point) -> None:
        """Keep figures; those that are older than the last hour go."""
        self._points.append(point)

    async def run(self) -> None:
        """Look every few seconds."""
        while True:
            await asyncio.sleep(EVERY)
            self.look()

    def shown(self) -> list[dict[str, Any]]:
        """Return all points, oldest first, the last one up to now."""
        now, seen = self._now(), self._metrics.glance()
        last = _point(now, (now - self._since) / 1000, seen, self._seen)
        # A short time shows nothing but chance.
        fresh = last.seconds >= EVERY / 2 or (last.seconds > 0 and not self._points)
        points = [*self._points, last] if fresh else list(self._points)
        return [msgspec.structs.asdict(point) for point in points]


def _point(now: int, seconds: float, seen: Glance, before: Glance) -> Point:
    counts = [a - b for a, b in zip(seen.durations, before.durations, strict=True)]
    return Point(
        at=now,
        seconds=seconds,
        requests=sum(counts),
        errors=seen.errors - before.errors,
        p50=percentile(counts, seen.bounds, 0.5),
        p99=percentile(counts, seen.bounds, 0.99),
        commits=seen.commits - before.commits,
        commands=seen.commands - before.commands,
        waiting=seen.waiting,
        lag=seen.lag,
    )


def percentile(counts: list[int], bounds: tuple[float, ...], share: float) -> float | None:
    """Return the upper bound of the bucket that a share of all counts reaches; None if there are none."""
    wanted, reached = share * sum(counts), 0
    if not wanted:
        return None
    for count, bound in zip(counts, (*bounds, bounds[-1]), strict=True):
        reached += count
        if reached >= wanted:
            return bound
    return None
