"""The metrics of a running service, in Prometheus' format.

Counting costs next to nothing and is done only on the event loop. A scrape takes a copy there and renders it
on a thread, so that no request waits for it. Labels are bounded: the busiest plugins have their own and the
rest are counted together, and so are unknown purposes.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from holdfast import seams
from holdfast.commands import Command, LetterStored, Result, Stored, Versions
from holdfast.edges.calls import blobs, keys, operators, tables
from holdfast.edges.intake.request_log import DROPPED, Operation
from holdfast.edges.monitoring.counters import (
    LOCK,
    MOST_PLUGINS,
    OTHER,
    UNKNOWN,
    Counts,
    Families,
    PluginLabels,
    Tally,
    process_text,
    purpose_label,
    writes_of,
)
from holdfast.edges.monitoring.gauges import Gauges, Sums
from holdfast.errors import StorageFull, VersionConflict
from holdfast.families import has_keys, has_tables
from holdfast.letter_commands import Escalate
from holdfast.rows import Record
from holdfast.store import Store
from holdfast.wire.subjects import OPERATOR

if TYPE_CHECKING:
    from holdfast.edges.intake.service import RequestService
    from holdfast.edges.nats.links import Link
    from holdfast.edges.nats.service import NatsService

VERBS: Final = tuple(sorted(keys.VERBS))
TABLE_VERBS: Final = tuple(sorted(tables.VERBS | blobs.VERBS))

RANKING: Final = 60.0
"""Minimum time in seconds between two rankings of the busiest plugins, which a scrape triggers."""
SWEEPS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0)
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
POINT_SECONDS: Final = 10.0
"""Seconds between two looks of `RecentMetrics`."""
RANGES: Final = {"hour": (10, 360), "day": (300, 288), "week": (3_600, 168)}
"""The seconds that a point of `RecentMetrics` covers and how many are kept, by range."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Figures that the services and connections count themselves."""

    requests_waiting: int = 0
    commands_waiting: int = 0
    under_way: int = 0
    events: int = 0
    dropped: dict[str, int] = {}
    reconnects: int = 0
    connected: int = 0


class MetricTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since the start: counts of durations by bucket, errors, commits and their commands.

    `waiting` and `under_way` are numbers of requests now, and `lag` is the delay of the last expiries in
    seconds.
    """

    bounds: tuple[float, ...]
    durations: list[int]
    errors: int
    commits: int
    commands: int
    waiting: int
    under_way: int
    lag: float


ByPlugin: TypeAlias = dict[str, Tally]

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
OWN_BOUNDS: Final = frozenset({0.001, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5})
"""The bounds for all plugins together, and those shown for each plugin."""
FORMER: Final = 1_000
"""Number of plugins whose figures are kept after they lost their label."""


class Durations:
    """Tallies of the durations of requests by verb and plugin, for keys and for tables.

    No figure that is shown ever decreases. A plugin that loses its label keeps its figures, which continue
    from there if it gets a label again. The totals of all plugins keep them too.

    Args:
        labels: The labels of plugins.
        keys: The verbs on keys.
        tables: The verbs on tables.
        forgotten: Called with a plugin whose figures are dropped.
    """

    def __init__(
        self,
        labels: PluginLabels,
        *,
        keys: Iterable[str],
        tables: Iterable[str],
        forgotten: Callable[[str], None],
    ) -> None:
        self._labels = labels
        self._forgotten = forgotten
        self.keys: dict[str, ByPlugin] = {verb: {} for verb in keys}
        self.tables: dict[str, ByPlugin] = {verb: {} for verb in tables}
        self._hidden = {verb: Tally(BOUNDS) for verb in sorted({*self.keys, *self.tables})}
        self._former: dict[str, list[tuple[str, ByPlugin, Tally]]] = {}
        self._before: dict[str, int] = {}
        self._sums: dict[str, float] = {}

    def tally(self, plugins: ByPlugin, owner: str) -> Tally:
        """Return the tally for a request whose plugin has none under its own name."""
        label = self._labels.of(owner)
        if label is OTHER:
            self._labels.heard(owner)
        return plugins.setdefault(label, Tally(BOUNDS))

    def rank(self) -> None:
        """Assign labels to the busiest plugins."""
        totals = self._totals()
        since = {name: total - self._before.get(name, 0) for name, total in totals.items()}
        for old, new in self._labels.rank(since):
            self._hide(old)
            self._bring_back(new)
        self._before = self._totals()

    def each(self) -> list[tuple[str, str, Tally]]:
        """Return plugin, verb and tally of everything that is shown."""
        return [
            (plugin, verb, tally)
            for verb, plugins in (*self.keys.items(), *self.tables.items())
            for plugin, tally in plugins.copy().items()
        ]

    def whole(self) -> dict[str, Tally]:
        """Return the durations by verb of all plugins, shown or not."""
        sums = {verb: hidden.copy() for verb, hidden in self._hidden.items()}
        for _, verb, tally in self.each():
            sums[verb].take_in(tally)
        for verb, tally in sums.items():  # the rounding of a sum depends on its order
            tally.total = self._sums[verb] = max(tally.total, self._sums.get(verb, 0.0))
        return sums

    def counts(self) -> list[int]:
        """Return how many requests there were in each bucket, of all verbs and plugins."""
        tallies = [*self._hidden.values(), *(tally for *_, tally in self.each())]
        return [sum(bucket) for bucket in zip(*(tally.counts for tally in tallies), strict=True)]

    def _totals(self) -> dict[str, int]:
        totals = dict.fromkeys(self._labels.named, 0)
        for plugin, _, tally in self.each():
            if plugin in totals:
                totals[plugin] += sum(tally.counts)
        return totals

    def _hide(self, plugin: str) -> None:
        tallies = [
            (verb, plugins, plugins.pop(plugin))
            for verb, plugins in (*self.keys.items(), *self.tables.items())
            if plugin in plugins
        ]
        for verb, _, tally in tallies:
            self._hidden[verb].take_in(tally)
        self._former[plugin] = tallies
        if len(self._former) > FORMER:
            oldest = next(iter(self._former))
            del self._former[oldest]
            self._forgotten(oldest)

    def _bring_back(self, plugin: str) -> None:
        for verb, plugins, tally in self._former.pop(plugin, ()):
            self._hidden[verb].take_in(tally, sign=-1)
            plugins[plugin] = tally


class Metrics:
    """All metrics of a service.

    Args:
        prefix: The prefix of every name.
        store: The store, which is read at a scrape and measured at work.
        most_plugins: Number of plugins with labels of their own.
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(
        self,
        prefix: str,
        store: Store,
        *,
        most_plugins: int = MOST_PLUGINS,
        ticks: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._labels = PluginLabels(most_plugins)
        self._families = Families(prefix)
        self._gauges = Gauges(self._families, store, self._labels)
        self._durations = Durations(self._labels, keys=VERBS, tables=TABLE_VERBS, forgotten=self._forget)
        self._operations, self._on_tables = self._durations.keys, self._durations.tables
        self._ticks = seams.monotonic if ticks is None else ticks
        self._ranked = self._ticks()
        self._scraping = asyncio.Lock()
        self._group_sizes = Tally(SIZES)
        self._sweeps = Tally(SWEEPS)
        self._removed = 0
        self._failed_sweeps = 0
        self._began = store.now()
        self._lag = 0.0
        self.full: str | None = None
        """What the storage said when it last refused a write for want of room; None once it stores again."""
        self._by_plugin: list[Counts] = []
        self._errors = self._of_plugins("kv_errors", "Requests that were refused.", "error_code")
        self._conflicts = self._of_plugins("conflicts", "Requests refused with VERSION_CONFLICT.")
        self._slow = self._of_plugins("slow", "Operations at or above the slow threshold.", "verb")
        self._writes = self._of_plugins("writes", "Writes to the storage, by outcome.", "purpose", "outcome")
        self._expirations = self._of_plugins("expirations", "Expired entries that were noticed.", "purpose")
        self._retries = self._of_plugins("retries", "Writes retried or given up.", "error_code", "outcome")
        self._unknown = self._of_plugins("unknown_fields", "Unknown fields in requests.")
        name = self._families.name
        self._admin = Counts(name("admin"), "Requests of operators.", ("verb",))
        self._astray = Counts(name("astray"), "Requests to unknown verbs.", ("plugin",))
        self._dropped = Counts(name("dropped"), "Messages dropped.", ("reason",))
        for reason in DROPPED:  # `increase` does not see the first step of a counter that appears with it
            self._dropped.add(reason, by=0)
        self._traffic = Traffic()
        self.requests: RequestService | None = None
        self.services: Sequence[NatsService] = ()
        self.links: Sequence[Link] = ()
        store.measure(
            grouped=self._group_sizes.add,
            swept=self._swept,
            failed=self._failed,
            decided=self._decided,
            retried=self._retried,
        )
        store.pipeline.listen(self._changed)

    def _of_plugins(self, name: str, help: str, *labels: str) -> Counts:
        """Return a counter that is shown for plugins that have a label, and forgotten with them."""
        counts = Counts(self._families.name(name), help, ("plugin", *labels))
        self._by_plugin.append(counts)
        return counts

    def operation(self, operation: Operation) -> None:
        """See `OperationCounter.operation`."""
        on_tables = not has_keys(operation.namespace)
        if operation.dialect == "admin":
            self._admin.add(operation.verb if operation.verb in operators.VERBS else UNKNOWN)
        elif (
            plugins := (self._on_tables if on_tables else self._operations).get(operation.verb)
        ) is not None:
            tally = plugins.get(operation.owner)
            if tally is None:
                tally = self._durations.tally(plugins, operation.owner)
            tally.add(operation.seconds)
        else:
            self._astray.add(self._labels.of(operation.owner))
        if operation.code is not None or operation.slow:
            self._unusual(operation)

    def dropped(self, reason: str) -> None:
        """See `OperationCounter.dropped`."""
        self._dropped.add(reason)

    def unknown_fields(self, owner: str, count: int) -> None:
        """See `OperationCounter.unknown_fields`."""
        self._unknown.add(self._labels.of(owner), by=count)

    def totals(self) -> MetricTotals:
        """Return totals of all plugins, without a look into the storage."""
        traffic = self._now_under_way()
        return MetricTotals(
            bounds=BOUNDS,
            durations=self._durations.counts(),
            errors=sum(count for _, count in self._errors.items()),
            commits=sum(self._group_sizes.counts),
            commands=int(self._group_sizes.total),
            waiting=traffic.requests_waiting + traffic.commands_waiting,
            under_way=traffic.under_way,
            lag=self._lag,
        )

    def refusals(self) -> list[tuple[tuple[str, ...], int]]:
        """Return the number of refused requests by plugin and error code."""
        return self._errors.items()

    async def exposition(self) -> bytes:
        """Return all metrics as text."""
        async with self._scraping:  # labels must not change while the text is rendered
            await self._gauges.read()
            self._traffic = self._now_under_way()
            text = await seams.aside(self._text)
            if self._ticks() - self._ranked >= RANKING:  # plugins that lose a label were shown once more
                self._ranked = self._ticks()
                self._durations.rank()
            return text

    def _text(self) -> bytes:
        return "".join([*self._collect(), process_text()]).encode()

    def _collect(self) -> Iterator[str]:
        make = self._families
        for verb, plugins in self._operations.items():
            yield from self._verb_families(verb, plugins.copy())
        yield self._requests()
        whole = self._durations.whole()
        yield make.histograms(
            "request_duration_seconds", "Duration of requests of all plugins, in seconds.", "verb", whole
        )
        for counts in self._by_plugin:
            yield counts.text(shown=self._labels.shown)
        yield self._admin.text()
        yield self._dropped.text(elsewhere=self._traffic.dropped)
        yield make.histogram("batch_size", "Commands per commit.", self._group_sizes)
        yield from self._cleanup_families()
        yield from self._gauges.collect()
        yield from self._clock_families()
        yield from self._traffic_families()

    def _forget(self, plugin: str) -> None:
        for counts in (*self._by_plugin, self._astray):
            counts.forget(plugin)

    def _unusual(self, operation: Operation) -> None:
        plugin = self._labels.of(operation.owner)
        if operation.code is not None:
            self._errors.add(plugin, operation.code)
        if operation.code == VersionConflict.code:
            self._conflicts.add(plugin)
        if operation.slow:
            known = operation.verb in self._operations or operation.verb in self._on_tables
            self._slow.add(plugin, operation.verb if known else UNKNOWN)

    def _swept(self, removed: int, seconds: float) -> None:
        self._removed += removed
        self._sweeps.add(seconds)

    def _failed(self) -> None:
        self._failed_sweeps += 1

    def _decided(self, command: Command, result: Result | Exception) -> None:
        for purpose, outcome in writes_of(command, result):
            self._writes.add(self._labels.of_namespace(command.namespace), purpose, outcome)
        if isinstance(result, StorageFull):
            self.full = result.message
        elif self.full is not None and isinstance(result, (Stored, Versions)) and not result.replayed:
            self.full = None
        if type(command) is Escalate and isinstance(result, LetterStored) and not result.replayed:
            self._retried(command.namespace, "escalated", command.code)

    def _retried(self, namespace: str, outcome: str, code: str) -> None:
        self._retries.add(self._labels.of_namespace(namespace), code, outcome)

    def _changed(self, journal: list[Record]) -> None:
        late = -1
        for record in journal:
            if record.purpose == LOCK:
                self._gauges.locks.learn(record)
            if record.op == "expired":
                self._expirations.add(
                    self._labels.of_namespace(record.namespace), purpose_label(record.purpose)
                )
                if not has_tables(record.namespace):  # nothing removes items unless asked to
                    late = max(late, min(record.lag_ms or 0, record.at - self._began))
        if late >= 0:
            self._lag = late / 1000

    def _now_under_way(self) -> Traffic:
        requests, services, links = self.requests, self.services, self.links
        return Traffic(
            requests_waiting=0 if requests is None else requests.waiting,
            commands_waiting=self._store.pipeline.waiting,
            under_way=0 if requests is None else requests.under_way,
            events=sum(service.events for service in services),
            dropped={
                "unsent": sum(service.unsent for service in services),
                "unreadable": sum(link.client.unreadable for link in links),
            },
            reconnects=sum(link.reconnects for link in links),
            connected=sum(link.client.is_connected for link in links),
        )

    def _verb_families(self, verb: str, plugins: dict[str, Tally]) -> Iterator[str]:
        answered = {(plugin,): sum(tally.counts) for plugin, tally in plugins.items()}
        yield self._families.counter(f"kv_{verb}", f"Answered {verb} requests.", answered, "plugin")
        yield self._families.histograms(
            f"kv_{verb}_duration_seconds",
            f"Duration of {verb} requests from receipt to reply, in seconds.",
            "plugin",
            plugins,
            bounds=OWN_BOUNDS,
        )

    def _requests(self) -> str:
        """Return all requests as one family, the denominator for shares of requests."""
        sums: Sums = {}
        for plugin, verb, tally in self._durations.each():
            sums[plugin, verb] = sums.get((plugin, verb), 0) + sum(tally.counts)
        sums |= {(OPERATOR, verb): count for (verb,), count in self._admin.items()}
        shown = self._labels.shown
        sums |= {(plugin, UNKNOWN): count for (plugin,), count in self._astray.items() if shown(plugin)}
        return self._families.counter("requests", "Answered requests.", sums, "plugin", "verb")

    def _cleanup_families(self) -> Iterator[str]:
        make = self._families
        yield make.histogram("kv_cleanup_duration_seconds", "Duration of sweeps in seconds.", self._sweeps)
        yield make.counter("kv_cleanup_deleted", "Expired entries removed by sweeps.", self._removed)
        yield make.counter("kv_cleanup_failures", "Sweeps that failed.", self._failed_sweeps)
        yield make.gauge("reaper_lag_seconds", "Delay of the last expiries in seconds.", self._lag)

    def _clock_families(self) -> Iterator[str]:
        kept, make = self._store.pipeline.timekeeper, self._families
        jumps = {(clock,): count for clock, count in kept.jumps.items()}
        yield make.counter("clock_jumps", "Clock jumps detected.", jumps, "clock")
        yield make.gauge("clock_sure", "1 if this instance is sure of the time, else 0.", kept.sure)
        yield make.gauge(
            "clock_ahead_seconds",
            "Seconds by which the store's time is ahead of its clock.",
            kept.ahead / 1000,
        )

    def _traffic_families(self) -> Iterator[str]:
        seen, make = self._traffic, self._families
        waiting: Sums = {("requests",): seen.requests_waiting, ("commands",): seen.commands_waiting}
        yield make.gauge("queue_depth", "Pending requests and commands.", waiting, "queue")
        yield make.gauge("requests_under_way", "Requests in progress.", seen.under_way)
        yield make.counter("events_published", "Changes published as events.", seen.events)
        yield make.counter("nats_reconnects", "Reconnects to NATS.", seen.reconnects)
        yield make.gauge("nats_connected", "Open connections to NATS.", seen.connected)


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


_FIGURES: Final = tuple(name for name in Point.__struct_fields__ if name != "at")


class PointRing:
    """The newest points of one width. A point is the difference between two looks at the metrics.

    Of a gauge it has the most that a look showed.

    Args:
        step: The seconds that a point covers.
        kept: The number of points that are kept.
        now: The time in milliseconds.
        seen: What the metrics show now.
    """

    def __init__(self, step: float, kept: int, *, now: int, seen: MetricTotals) -> None:
        self.step = step
        self.kept = kept
        self._points: deque[Point] = deque(maxlen=kept)
        self._waiting = 0
        self._lag = 0.0
        self._begin(now, seen)

    def look(self, now: int, seen: MetricTotals) -> None:
        """Take what the metrics show now, and end the point if it is as wide as it should be."""
        self._waiting, self._lag = max(self._waiting, seen.waiting), max(self._lag, seen.lag)
        if now - self._since >= (self.step - POINT_SECONDS / 2) * 1000:  # looks come a little early or late
            self.keep(self._point(now, seen))
            self._begin(now, seen)

    def keep(self, point: Point) -> None:
        """Keep a point; the oldest gives way."""
        self._points.append(point)

    def shown(self, now: int, seen: MetricTotals) -> list[Point]:
        """Return all points, oldest first, the last one up to now."""
        last = self._point(now, seen)
        # A short time shows nothing but chance.
        fresh = last.seconds >= POINT_SECONDS / 2 or (last.seconds > 0 and not self._points)
        return [*self._points, last] if fresh else list(self._points)

    def _begin(self, now: int, seen: MetricTotals) -> None:
        self._since, self._seen = now, seen
        self._waiting, self._lag = 0, 0.0

    def _point(self, now: int, seen: MetricTotals) -> Point:
        point = _point(now, (now - self._since) / 1000, seen, self._seen)
        return msgspec.structs.replace(
            point, waiting=max(self._waiting, point.waiting), lag=max(self._lag, point.lag)
        )


class RecentMetrics:
    """The figures of the last hour, day and week, for the charts of the console.

    They are kept in the memory of this process alone, in rings of fixed size: the longer the range, the wider
    its points.

    Args:
        metrics: The metrics that are looked at.
        now: Returns the store's time in milliseconds.
    """

    def __init__(self, metrics: Metrics, now: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now = now
        self._began = now()
        seen = metrics.totals()
        self.rings = {
            name: PointRing(step, kept, now=self._began, seen=seen) for name, (step, kept) in RANGES.items()
        }

    def record(self) -> None:
        """Add the figures since the last look."""
        now, seen = self._now(), self._metrics.totals()
        for ring in self.rings.values():
            ring.look(now, seen)

    async def run(self) -> None:
        """Look at the metrics every few seconds."""
        while True:
            await asyncio.sleep(POINT_SECONDS)
            self.record()

    def shown(self, name: str = "hour") -> dict[str, Any]:
        """Return the points of a range, oldest first, the last one up to now, as a list for each figure.

        `at` is in seconds after `begin`, which is a time in milliseconds. A percentile above the largest
        bound is `over`.
        """
        ring = self.rings[name]
        points = ring.shown(self._now(), self._metrics.totals())
        begin = points[0].at if points else self._began
        return {
            "range": name,
            "ranges": list(RANGES),
            "step": ring.step,
            "span": ring.step * ring.kept,
            "bound": BOUNDS[-1],
            "since": self._began,
            "begin": begin,
            "at": [round((point.at - begin) / 1000) for point in points],
            **{figure: [_rounded(getattr(point, figure)) for point in points] for figure in _FIGURES},
        }


def _point(now: int, seconds: float, seen: MetricTotals, before: MetricTotals) -> Point:
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
    """Return the upper bound of the bucket that a share of all counts reaches; None if there are none.

    It is infinite above the largest bound.
    """
    target, reached = share * sum(counts), 0
    if not target:
        return None
    for count, bound in zip(counts, (*bounds, math.inf), strict=True):
        reached += count
        if reached >= target:
            return bound
    return None


def _rounded(figure: float | None) -> float | str | None:
    """Return a figure in few digits. JSON has no infinite numbers."""
    if figure is None or isinstance(figure, int):
        return figure
    if math.isinf(figure):
        return "over"
    return int(figure) if figure.is_integer() else round(figure, 4)
