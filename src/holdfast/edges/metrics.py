"""What is counted and measured of a running service, in Prometheus' form.

Law: counting costs next to nothing and is done on the loop alone. A scrape takes a copy there and renders it
on a thread, so that nobody waits for it. Labels are bounded: of more than a thousand plugins, the rest count
together.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from holdfast.edges.nats.calls import OPERATIONS, READS
from holdfast.errors import HoldfastError, VersionConflict
from holdfast.wire.writes import WRITING_VERBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from holdfast.edges.nats.connect import Link
    from holdfast.edges.nats.observer import Operation
    from holdfast.edges.nats.service import NatsService
    from holdfast.rows import Record
    from holdfast.store import Store

VERBS: Final = tuple(sorted({*READS, *WRITING_VERBS}))
MOST_PLUGINS: Final = 1_000
OTHER: Final = "OTHER"
UNKNOWN: Final = "UNKNOWN"
"""Labels for plugins past the bound, and for callers that nobody knows; no plugin can have these names."""
PATIENCE: Final = 5.0
"""For how many seconds a scrape waits for the storage."""

DURATIONS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SWEEPS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0)
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Tally:
    """How often a quantity fell between which bounds, and its sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, amount: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.total += amount

    def buckets(self) -> list[tuple[str, float]]:
        """For each bound how many were not above it, as a histogram has them."""
        sums, so_far = [], 0
        for bound, count in zip((*self.bounds, None), self.counts.copy(), strict=True):
            so_far += count
            sums.append(("+Inf" if bound is None else str(float(bound)), float(so_far)))
        return sums


class Counts:
    """A counter with labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        self._about = name, help
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str, by: int = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + by

    def family(self, **elsewhere: int) -> Metric:
        """As it is shown, with what was counted elsewhere under a label of its own."""
        family = CounterMetricFamily(*self._about, labels=self._labels)
        for labels, count in self._counts.copy().items():
            family.add_metric(labels, count)
        for label, count in elsewhere.items():
            family.add_metric((label,), count)
        return family


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked up at a scrape: keys and bytes by plugin, and what the parts have counted themselves."""

    store_up: bool = False
    keys: dict[str, int] = {}
    sizes: dict[str, int] = {}
    overdue: float = 0.0
    requests_waiting: int = 0
    commands_waiting: int = 0
    under_way: int = 0
    events: int = 0
    dropped: dict[str, int] = {}
    reconnects: int = 0
    connected: int = 0


class Metrics:
    """All metrics of a service.

    Args:
        prefix: What every name begins with.
        store: What is asked at a scrape, and measured at work.
        most_plugins: How many plugins have labels of their own.
    """

    def __init__(self, prefix: str, store: Store, *, most_plugins: int = MOST_PLUGINS) -> None:
        self._prefix = prefix
        self._store = store
        self._most_plugins = most_plugins
        self._labels: set[str] = set()
        self._operations: dict[str, dict[str, Tally]] = {verb: {} for verb in VERBS}
        self._group_sizes = Tally(SIZES)
        self._sweeps = Tally(SWEEPS)
        self._removed = 0
        self._lag = 0.0
        self._make_counts()
        self._seen = Snapshot()
        self.services: Sequence[NatsService] = ()
        self.links: Sequence[Link] = ()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(self)
        store.measure(grouped=self._group_sizes.add, swept=self._swept)
        store.listen(self._changed)

    def _make_counts(self) -> None:
        name = self._prefix
        self._errors = Counts(f"{name}_kv_errors", "Requests that were refused.", ("plugin", "error_code"))
        self._conflicts = Counts(f"{name}_conflicts", "Writes that lost a race.", ("plugin",))
        self._slow = Counts(f"{name}_slow", "Operations that took too long.", ("plugin", "verb"))
        self._admin = Counts(f"{name}_admin", "Requests of operators.", ("verb",))
        self._dropped = Counts(f"{name}_dropped", "Messages that were dropped.", ("reason",))

    def operation(self, operation: Operation) -> None:
        """See `Counter.operation`."""
        if operation.dialect == "admin":
            self._admin.add(operation.verb if operation.verb in OPERATIONS else UNKNOWN)
        elif (plugins := self._operations.get(operation.verb)) is not None:
            tally = plugins.get(operation.owner)
            if tally is None:
                tally = plugins.setdefault(self._label(operation.owner), Tally(DURATIONS))
            tally.add(operation.seconds)
        if operation.code is not None or operation.slow:
            self._unusual(operation)

    def dropped(self, reason: str) -> None:
        """See `Counter.dropped`."""
        self._dropped.add(reason)

    async def exposition(self) -> bytes:
        """All metrics as text."""
        self._seen = await self._look()
        return await asyncio.to_thread(generate_latest, self.registry)

    def collect(self) -> Iterator[Metric]:
        """Every family, as the registry asks for them."""
        for verb, plugins in self._operations.items():
            yield from self._verb_families(verb, plugins.copy())
        for counts in (self._errors, self._conflicts, self._slow, self._admin):
            yield counts.family()
        yield self._dropped.family(**self._seen.dropped)
        yield self._gauges("kv_keys_total", "Live keys.", "plugin", self._seen.keys)
        yield self._gauges("kv_storage_bytes", "Bytes of live keys and values.", "plugin", self._seen.sizes)
        yield self._histogram("kv_cleanup_duration_seconds", "What a sweep took.", self._sweeps)
        yield self._counter("kv_cleanup_deleted", "Expired entries that sweeps removed.", self._removed)
        yield self._histogram("batch_size", "Commands that shared a commit.", self._group_sizes)
        yield from self._live_families()

    def _unusual(self, operation: Operation) -> None:
        plugin = self._label(operation.owner)
        if operation.code is not None:
            self._errors.add(plugin, operation.code)
        if operation.code == VersionConflict.code:
            self._conflicts.add(plugin)
        if operation.slow:
            self._slow.add(plugin, operation.verb if operation.verb in VERBS else UNKNOWN)

    def _label(self, owner: str) -> str:
        if not owner:
            return UNKNOWN
        if owner not in self._labels:
            if len(self._labels) >= self._most_plugins:
                return OTHER
            self._labels.add(owner)
        return owner

    def _swept(self, removed: int, seconds: float) -> None:
        self._removed += removed
        self._sweeps.add(seconds)

    def _changed(self, journal: list[Record]) -> None:
        late = [record.lag_ms for record in journal if record.lag_ms is not None]
        if late:
            self._lag = max(late) / 1000

    async def _look(self) -> Snapshot:
        try:
            async with asyncio.timeout(PATIENCE):
                found, overdue = await self._store.namespaces(), await self._store.overdue()
        except (HoldfastError, TimeoutError):
            found, overdue = None, 0.0
        services, links = self.services, self.links
        return Snapshot(
            store_up=found is not None,
            keys=self._by_plugin((stats.namespace, stats.keys) for stats in found or ()),
            sizes=self._by_plugin((stats.namespace, stats.bytes) for stats in found or ()),
            overdue=overdue,
            requests_waiting=sum(service.waiting for service in services),
            commands_waiting=self._store.waiting,
            under_way=sum(service.under_way for service in services),
            events=sum(service.events for service in services),
            dropped={
                "unsent": sum(service.unsent for service in services),
                "unreadable": sum(link.client.unreadable for link in links),
                "overrun": sum(link.overrun for link in links),
            },
            reconnects=sum(link.reconnects for link in links),
            connected=sum(link.client.is_connected for link in links),
        )

    def _by_plugin(self, amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Amounts of namespaces as amounts of plugins; tables are no keys."""
        sums: dict[str, int] = {}
        for namespace, amount in amounts:
            family, _, owner = namespace.partition("/")
            if family != "table":
                plugin = self._label(owner)
                sums[plugin] = sums.get(plugin, 0) + amount
        return sums

    def _verb_families(self, verb: str, plugins: dict[str, Tally]) -> Iterator[Metric]:
        count = CounterMetricFamily(
            f"{self._prefix}_kv_{verb}", f"Requests to {verb} that were answered.", labels=("plugin",)
        )
        duration = HistogramMetricFamily(
            f"{self._prefix}_kv_{verb}_duration_seconds",
            f"What {verb} took, from receipt to reply.",
            labels=("plugin",),
        )
        for plugin, tally in plugins.items():
            buckets = tally.buckets()
            count.add_metric((plugin,), buckets[-1][1])
            duration.add_metric((plugin,), buckets=buckets, sum_value=tally.total)
        yield count
        yield duration

    def _live_families(self) -> Iterator[Metric]:
        seen = self._seen
        waiting = {"requests": seen.requests_waiting, "commands": seen.commands_waiting}
        yield self._gauges("queue_depth", "What waits for its turn.", "queue", waiting)
        yield self._gauge("store_up", "Whether the storage answers.", seen.store_up)
        yield self._gauge("requests_under_way", "Requests that have been begun.", seen.under_way)
        yield self._gauge("reaper_lag_seconds", "How late the last expiries were noticed.", self._lag)
        yield self._gauge(
            "oldest_expired_seconds", "Age of the oldest entry that is due and not removed.", seen.overdue
        )
        yield self._counter("events_published", "Changes that were published.", seen.events)
        yield self._counter("nats_reconnects", "Times that the connection came back.", seen.reconnects)
        yield self._gauge("nats_connected", "Connections to NATS that are there.", seen.connected)

    def _histogram(self, name: str, help: str, tally: Tally) -> Metric:
        return HistogramMetricFamily(
            f"{self._prefix}_{name}", help, buckets=tally.buckets(), sum_value=tally.total
        )

    def _counter(self, name: str, help: str, value: float) -> Metric:
        return CounterMetricFamily(f"{self._prefix}_{name}", help, value=value)

    def _gauge(self, name: str, help: str, value: float) -> Metric:
        return GaugeMetricFamily(f"{self._prefix}_{name}", help, value=value)

    def _gauges(self, name: str, help: str, label: str, values: dict[str, int]) -> Metric:
        family = GaugeMetricFamily(f"{self._prefix}_{name}", help, labels=(label,))
        for of, value in values.items():
            family.add_metric((of,), value)
        return family
