"""Counters and histograms as a running service keeps them, and the families that a scrape shows.

Law: counting is one step in a list or a dictionary, done on the loop alone. What Prometheus' library makes of
it is made at a scrape, from copies, so that it can be done on a thread.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from prometheus_client.core import Metric

MOST_PLUGINS: Final = 1_000
OTHER: Final = "OTHER"
UNKNOWN: Final = "UNKNOWN"
"""Labels for plugins past the bound, and for callers that nobody knows; no plugin can have these names."""


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


def together(tallies: Iterable[Tally], bounds: Sequence[float]) -> Tally:
    """All of these as one; each has these bounds."""
    whole = Tally(bounds)
    for tally in tallies:
        whole.counts = [one + other for one, other in zip(whole.counts, tally.counts, strict=True)]
        whole.total += tally.total
    return whole


class Counts:
    """A counter with labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        self._about = name, help
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str, by: int = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + by

    def items(self) -> list[tuple[tuple[str, ...], int]]:
        """What was counted, by labels."""
        return list(self._counts.copy().items())

    def family(self, **elsewhere: int) -> Metric:
        """As it is shown, with what was counted elsewhere under a label of its own."""
        family = CounterMetricFamily(*self._about, labels=self._labels)
        for labels, count in self.items():
            family.add_metric(labels, count)
        for label, count in elsewhere.items():
            family.add_metric((label,), count)
        return family


class Labels:
    """The names that plugins have in labels: the first that are met keep their own.

    Args:
        most: How many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._namespaces: dict[str, str] = {}

    def of(self, owner: str) -> str:
        """The label of a plugin."""
        if not owner:
            return UNKNOWN
        if owner not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(owner)
        return owner

    def of_namespace(self, namespace: str) -> str:
        """The label of the plugin that a namespace belongs to."""
        label = self._namespaces.get(namespace)
        if label is None:
            label = self.of(namespace.partition("/")[2])
            if label is not OTHER:  # those are bounded, and so is what is kept of them
                self._namespaces[namespace] = label
        return label


class Families:
    """Makes families whose names begin alike."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def name(self, name: str) -> str:
        """The whole name of a metric."""
        return f"{self._prefix}_{name}"

    def counter(self, name: str, help: str, value: float) -> Metric:
        """A counter without labels."""
        return CounterMetricFamily(self.name(name), help, value=value)

    def gauge(self, name: str, help: str, value: float) -> Metric:
        """A gauge without labels."""
        return GaugeMetricFamily(self.name(name), help, value=value)

    def gauges(
        self, name: str, help: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
    ) -> Metric:
        """A gauge with labels."""
        family = GaugeMetricFamily(self.name(name), help, labels=labels)
        for of, value in values.items():
            family.add_metric(of, value)
        return family

    def histogram(self, name: str, help: str, tally: Tally) -> Metric:
        """A histogram without labels."""
        return HistogramMetricFamily(self.name(name), help, buckets=tally.buckets(), sum_value=tally.total)

    def histograms(self, name: str, help: str, label: str, tallies: Mapping[str, Tally]) -> Metric:
        """A histogram with a label."""
        family = HistogramMetricFamily(self.name(name), help, labels=(label,))
        for of, tally in tallies.items():
            family.add_metric((of,), buckets=tally.buckets(), sum_value=tally.total)
        return family
