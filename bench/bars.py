"""The bars: what Holdfast must reach, as data, and whether it did.

A bar names a scenario of the book, a side of it, and perhaps a side to be held against. It is judged by
the median, except that what must never happen must not happen in any round. Nothing is measured here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.book import HOLDFAST, Spread, figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.book import Book


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bound on a side of a scenario, or on its ratio to another side."""

    group: str
    scenario: str
    side: str = HOLDFAST
    over: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"{self.scenario}: a bar has one bound")

    @property
    def name(self) -> str:
        """What is held against what."""
        return f"{self.scenario}: {self.side}" + (f" / {self.over}" if self.over else "")

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f">= {figure(self.at_least)}" if self.at_least is not None else f"<= {self.at_most:g}"

    def found(self, book: Book) -> Spread | None:
        """What was measured of it, if it was."""
        scenario = book.scenarios.get(self.scenario)
        if scenario is None or self.side not in scenario.sides:
            return None
        if self.over is None:
            return Spread.of(scenario.sides[self.side])
        return scenario.ratio(self.side, self.over) if self.over in scenario.sides else None

    def reached(self, found: Spread) -> bool:
        """Whether that is enough."""
        if self.at_least is not None:
            return found.median >= self.at_least
        assert self.at_most is not None
        return (found.median if self.at_most else found.high) <= self.at_most


@dataclass(frozen=True)
class Verdict:
    """A bar, what was found of it, and what that means."""

    bar: Bar
    found: Spread
    reached: bool

    def as_dict(self) -> dict[str, Any]:
        """For a file."""
        bar = self.bar
        return {
            "bar": bar.group,
            "name": bar.name,
            "at_least": bar.at_least,
            "at_most": bar.at_most,
            "reached": self.reached,
        } | self.found.as_dict()


def judge(book: Book, bars: Sequence[Bar]) -> list[Verdict]:
    """A verdict on every bar that something was measured of."""
    measured = ((bar, bar.found(book)) for bar in bars)
    return [Verdict(bar, found, bar.reached(found)) for bar, found in measured if found is not None]


def unmeasured(book: Book, bars: Sequence[Bar]) -> list[Bar]:
    """The bars of which nothing was found, because something was left out."""
    return [bar for bar in bars if bar.found(book) is None]


GET, SET, MIXED = "nats.get.128", "nats.set.128", "nats.mixed.128"
FILE_SET, ONE, FOUR = "one_file.set.128", "one process", "four processes"

BARS: Final = (
    Bar(group="1", scenario=GET, over="echo", at_least=0.92),
    Bar(group="1", scenario=GET, over="jetstream", at_least=1.5),
    Bar(group="1", scenario=GET, over="redis", at_least=1.6),
    Bar(group="2", scenario=SET, over="echo", at_least=0.6),
    Bar(group="2", scenario=SET, over="jetstream-sync", at_least=1.4),
    Bar(group="2", scenario=SET, over="redis", at_least=1.15),
    Bar(group="3", scenario=MIXED, over="echo", at_least=0.7),
    Bar(group="3", scenario=MIXED, over="naive", at_least=10),
    Bar(group="4", scenario="nats.get.1.p50", over="echo", at_most=1.3),
    Bar(group="4", scenario="nats.set.1.p50", over="echo", at_most=2.3),
    Bar(group="5", scenario="embedded.set.128", over="diskcache", at_least=3),
    Bar(group="5", scenario="embedded.get.1", over="diskcache", at_least=2),
    Bar(group="5", scenario="embedded.sync-get.1", side="sync", over="diskcache", at_least=1.8),
    Bar(group="logs", scenario="logs.10", side="append", over="set of a new key", at_least=0.5),
    Bar(group="logs", scenario="logs.10", side="append", over="head and item", at_least=3),
    Bar(group="logs", scenario="logs.10", side="set once", over="set with a request id", at_least=0.8),
    Bar(group="file", scenario=FILE_SET, side=FOUR, over=ONE, at_least=0.8),
    Bar(group="file", scenario=FILE_SET, side=FOUR, over="diskcache", at_least=1.2),
    Bar(group="file", scenario="one_file.fairness", side=FOUR, at_most=2),
    Bar(group="file", scenario="one_file.lone-set.p99", side="beside three", at_most=100),
    Bar(group="cluster", scenario="cluster.set.128", side="cluster", over="sqlite", at_least=0.75),
    Bar(group="cluster", scenario="cluster.set.128", side="cluster", over="jetstream-kv", at_least=1.5),
    Bar(group="cluster", scenario="cluster.set.1.p50", side="cluster", at_most=3.5),
    Bar(group="cluster", scenario="cluster.get.1", side="cluster", over="sqlite", at_least=0.9),
    Bar(group="cluster", scenario="cluster.fresh.1000000", side="from a snapshot", at_most=30),
    Bar(group="6", scenario="postgres.set.128", over="asyncpg", at_least=1.5),
    Bar(group="6", scenario="postgres.get.128", over="asyncpg", at_least=1.0),
    Bar(group="7", scenario="growth.nats.get.128", side="10,000,000", over="10,000", at_least=0.95),
    Bar(group="7", scenario="growth.nats.set.128", side="10,000,000", over="10,000", at_least=0.9),
    Bar(group="7", scenario="growth.embedded.get.128", side="10,000,000", over="10,000", at_least=1 / 3),
    Bar(group="7", scenario="growth.embedded.set.128", side="10,000,000", over="10,000", at_least=1 / 3),
    Bar(group="8", scenario="cleanup.10000.seconds", at_most=0.2),
    Bar(group="8", scenario="cleanup.1000000.rate", at_least=20_000),
    Bar(group="8", scenario="cleanup.1000000.get-p99", side="sweeping", over="quiet", at_most=3),
    Bar(group="9", scenario="verbs.list-1000.p50", side="nats", at_most=4),
    Bar(group="9", scenario="growth.nats.list-1000.p50", side="10,000,000", over="10,000", at_most=1.5),
    Bar(group="10", scenario="footprint.idle", at_most=100),
    Bar(group="10", scenario="footprint.more-for-100000", at_most=50),
    Bar(group="10", scenario="startup.first-reply", at_most=3),
    Bar(group="10", scenario="startup.get", at_most=0.3),
    Bar(group="house", scenario="http.get.128", over="starlette echo", at_least=0.6),
    Bar(group="house", scenario="http.set.128", over="starlette echo", at_least=0.4),
    Bar(group="blobs", scenario="blobs.put.megabytes", over="sqlite3", at_least=0.5),
    Bar(group="blobs", scenario="blobs.copy.megabytes", over="sqlite3", at_least=0.5),
    Bar(group="blobs", scenario="blobs.get.megabytes", over="sqlite3 + sha256", at_least=0.5),
    # What was promised before: a commit serves many callers, and one plugin does not starve another.
    Bar(group="house", scenario="group_commit", side="128 in flight", over="1 in flight", at_least=4),
    Bar(group="house", scenario="fairness.p99", side="beside a flood", over="alone", at_most=3),
    Bar(
        group="house",
        scenario="namespaces.set.128",
        side="1,000 plugins",
        over="10 plugins",
        at_least=0.8,
    ),
)

FLOORS: Final = (
    *(
        Bar(group="floor", scenario=f"floors.{verb}.{name}", at_most=bound)
        for verb, bounds in {
            "set": {"p50": 5, "p95": 10, "p99": 20},
            "get": {"p50": 5, "p95": 10, "p99": 15},
            "delete": {"p50": 5, "p95": 10},
            "mixed": {"p95": 10, "p99": 25},
            "list-100": {"p50": 10},
            "list-1000": {"p95": 50},
            "list-10000": {"p99": 100},
        }.items()
        for name, bound in bounds.items()
    ),
    *(
        Bar(group="floor", scenario=f"floors.{name}", at_least=bound)
        for name, bound in {
            "set.sustained": 1_000,
            "set.burst": 5_000,
            "get.sustained": 2_000,
            "get.burst": 10_000,
            "mixed.sustained": 1_500,
            "coverage.lines": 85,
            "coverage.verbs": 90,
            "coverage.whole": 100,
        }.items()
    ),
    Bar(group="floor", scenario="floors.plugins", side="1,000 plugins", over="10 plugins", at_least=0.9),
    Bar(group="floor", scenario="floors.errors", at_most=0.001),
    Bar(group="floor", scenario="cleanup.10000.seconds", at_most=1),
    Bar(group="floor", scenario="footprint.more-for-100000", at_most=50),
    Bar(group="floor", scenario="footprint.row-overhead", at_most=100),
)
