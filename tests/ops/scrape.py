"""What a scrape of a running service has: the metrics, their labels and the labels' values.

Everything here is taken from the text that the service gave out, apart from what Prometheus adds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from holdfast.edges.monitoring.counters import OTHER
from holdfast.errors import error_classes
from tests.ops.promql import Expression

if TYPE_CHECKING:
    from tests.ops.promql import Grouping, Selector

TARGET: Final = frozenset({"job", "instance"})
"""Labels that every series has in Prometheus."""
CODES: Final = frozenset(cls.code for cls in error_classes())


class Scrape:
    """The metrics of a service.

    Args:
        text: What it answered at `/metrics`.
    """

    def __init__(self, text: str) -> None:
        self._values: dict[str, defaultdict[str, set[str]]] = {"up": defaultdict(set, {"job": {"holdfast"}})}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = self._values.setdefault(sample.name, defaultdict(set))
                for label, value in sample.labels.items():
                    labels[label].add(value)

    def labels(self, metric: str) -> set[str]:
        """The labels of a metric, and those that Prometheus adds."""
        return self._values[metric].keys() | TARGET

    def faults(self, text: str) -> list[str]:
        """What an expression refers to that there is not."""
        try:
            expression = Expression(text)
        except ValueError as error:
            return [f"{text}: {error}"]
        found = [fault for selector in expression.selectors for fault in self._selector_faults(selector)]
        if not found:
            found = [fault for grouping in expression.groupings for fault in self._grouping_faults(grouping)]
        return [f"{text}: {fault}" for fault in found]

    def _selector_faults(self, selector: Selector) -> list[str]:
        if selector.metric not in self._values:
            return [f"there is no metric {selector.metric}"]
        found = []
        for label, operator, value in selector.matchers:
            if label not in self.labels(selector.metric):
                found.append(f"{selector.metric} has no label {label}")
            elif label not in TARGET and "$" not in value:
                wanted = value.split("|") if operator in ("=~", "!~") else [value]
                unknown = set(wanted) - self._possible(selector.metric, label)
                found += [f"{selector.metric} never has {label}={one}" for one in sorted(unknown)]
        return found

    def _grouping_faults(self, grouping: Grouping) -> list[str]:
        known = [self.labels(selector.metric) for selector in grouping.about]
        enough = all if grouping.every else any
        return [
            f"there is no label {label} to group by"
            for label in grouping.labels
            if not enough(label in labels for labels in known)
        ]

    def _possible(self, metric: str, label: str) -> set[str]:
        """The values that a label has, and those that a service rarely comes to show."""
        rare = {"error_code": CODES, "plugin": {OTHER}}.get(label, set())
        return self._values[metric][label] | rare
