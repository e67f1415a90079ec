"""The list of scenarios and of the runs that are made of them.

Nothing is measured here. A scenario takes a run and writes into its book.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.bars import BARS, FLOORS, Bar
from bench.blobs import blobs
from bench.cluster import cluster
from bench.cluster_days import cluster_failover, cluster_fresh
from bench.embedded import embedded, group_commit, postgres
from bench.fanout import watch
from bench.floors import floors
from bench.footprint import footprint, footprint_small, startup
from bench.growth import growth
from bench.namespaces import namespaces
from bench.one_file import one_file
from bench.over_http import http
from bench.over_nats import fairness, matrix, noise, open_loop, over_nats
from bench.services import services
from bench.sizes import sizes
from bench.steps import steps
from bench.upkeep import cleanup, cleanup_small, items, tables
from bench.verbs import logs, verbs
from bench.where import where

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from bench.run import Run

    Scenario = Callable[[Run], Coroutine[None, None, None]]

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.__name__: scenario
    for scenario in (
        noise,
        over_nats,
        http,
        embedded,
        one_file,
        postgres,
        namespaces,
        matrix,
        open_loop,
        fairness,
        verbs,
        logs,
        group_commit,
        cleanup,
        cleanup_small,
        tables,
        items,
        blobs,
        watch,
        startup,
        footprint,
        footprint_small,
        services,
        sizes,
        steps,
        where,
        growth,
        floors,
        cluster,
        cluster_failover,
        cluster_fresh,
    )
}


FINELY: Final = frozenset({"over_nats", "http", "embedded", "one_file", "postgres", "namespaces", "items"})
"""Those whose bars are ratios of sides: they run in more and shorter turns."""


@dataclass(frozen=True)
class Suite:
    """Scenarios that are run together, how long, and the bars that they are held against."""

    scenarios: tuple[str, ...]
    seconds: float
    bars: tuple[Bar, ...]


def _bars(*groups: str, growing: bool) -> tuple[Bar, ...]:
    """The bars of some groups that need many keys, or those that do not."""
    return tuple(bar for bar in BARS if bar.group in groups and bar.scenario.startswith("growth.") == growing)


SUITES: Final = {
    "quick": Suite(("over_nats", "embedded", "postgres"), seconds=1.0, bars=_bars(*"123456", growing=False)),
    "logs": Suite(("logs",), seconds=1.0, bars=_bars("logs", growing=False)),
    "one_file": Suite(("one_file",), seconds=2.0, bars=_bars("file", growing=False)),
    "floors": Suite(("floors", "cleanup_small", "footprint_small"), seconds=1.5, bars=FLOORS),
    "cluster": Suite(
        ("cluster", "cluster_failover", "cluster_fresh"), seconds=1.0, bars=_bars("cluster", growing=False)
    ),
    "growth": Suite(("growth",), seconds=2.0, bars=_bars("7", "9", growing=True)),
    "full": Suite(
        (
            "noise",
            "over_nats",
            "http",
            "embedded",
            "one_file",
            "postgres",
            "namespaces",
            "open_loop",
            "fairness",
            "verbs",
            "logs",
            "group_commit",
            "watch",
            "startup",
            "footprint",
            "cleanup",
            "tables",
            "items",
            "blobs",
            "where",
            "steps",
            "matrix",
        ),
        seconds=0.8,
        bars=_bars(*"12345689", "10", "blobs", "file", "house", "logs", growing=False),
    ),
}
LEAST_ROUNDS: Final = 5
