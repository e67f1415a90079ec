"""Durations of requests, by verb and by the label of the calling plugin.

Law: no figure that is shown ever decreases. A plugin that loses its label keeps its figures, which continue
from there if it gets a label again. The totals of all plugins keep them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.edges.monitoring.counters import Tally
from holdfast.edges.monitoring.plugin_labels import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.edges.monitoring.plugin_labels import Labels

ByPlugin: TypeAlias = dict[str, Tally]

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
OWN_BOUNDS: Final = frozenset({0.001, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5})
"""The bounds for all plugins together, and those shown for each plugin."""
FORMER: Final = 1_000
"""Number of plugins whose figures are kept after they lost their label."""


class Durations:
    """Tallies by verb and plugin, for keys and for tables.

    Args:
        labels: The labels of plugins.
        keys: The verbs on keys.
        tables: The verbs on tables.
        forgotten: Called with a plugin whose figures are dropped.
    """

    def __init__(
        self, labels: Labels, *, keys: Iterable[str], tables: Iterable[str], forgotten: Callable[[str], None]
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
        found = [
            (verb, plugins, plugins.pop(plugin))
            for verb, plugins in (*self.keys.items(), *self.tables.items())
            if plugin in plugins
        ]
        for verb, _, tally in found:
            self._hidden[verb].take_in(tally)
        self._former[plugin] = found
        if len(self._former) > FORMER:
            oldest = next(iter(self._former))
            del self._former[oldest]
            self._forgotten(oldest)

    def _bring_back(self, plugin: str) -> None:
        for verb, plugins, tally in self._former.pop(plugin, ()):
            self._hidden[verb].take_in(tally, sign=-1)
            plugins[plugin] = tally
