"""The labels of plugins in metrics: the busiest have their own, and all others share one.

While labels are free, a plugin gets one at its first request. Once they are used up, a plugin that made
clearly more requests than the quietest labelled one replaces it, at most once a minute.

Law: the number of labels is bounded, and so is the memory for plugins without one. Counting a request of a
labelled plugin costs nothing here.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from holdfast import families
from holdfast.wire.subjects import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PLUGINS: Final = 100
OTHER: Final = "OTHER"
UNKNOWN: Final = "UNKNOWN"
"""Labels for plugins without one of their own, and for unknown callers. No plugin can have these names."""
WATCHED: Final = 4_096
"""Maximum number of unlabelled plugins whose requests are counted; the busiest are kept."""
CLEARLY: Final = 10
"""Margin of requests by which a plugin must exceed another to take its label."""
_ALWAYS: Final = frozenset({OTHER, UNKNOWN, OPERATOR})


class Labels:
    """The labels of plugins.

    Args:
        most: Number of plugins with a label of their own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._named: dict[str, float] = {}
        self._heard: dict[str, int] = {}
        self._namespaces: dict[str, str] = {}

    @property
    def named(self) -> list[str]:
        """The plugins with a label of their own."""
        return list(self._named)

    def shown(self, label: str) -> bool:
        """Return whether a label is currently in use."""
        return label in self._named or label in _ALWAYS

    def of(self, owner: str) -> str:
        """Return the label of a plugin."""
        if owner in self._named or owner in _ALWAYS:
            return owner
        if not owner:
            return UNKNOWN
        if len(self._named) >= self._most:
            return OTHER
        self._named[owner] = 0.0
        return owner

    def of_namespace(self, namespace: str) -> str:
        """Return the label of the plugin that owns a namespace."""
        label = self._namespaces.get(namespace)
        if label is None:
            label = self.of(families.owner(namespace))
            if label is not OTHER:  # labelled plugins are bounded, so this cache is too
                self._namespaces[namespace] = label
        return label

    def heard(self, owner: str) -> None:
        """Count a request of a plugin without a label."""
        self._heard[owner] = self._heard.get(owner, 0) + 1
        if len(self._heard) > WATCHED:
            self._heard = dict(nlargest(WATCHED // 2, self._heard.items(), key=itemgetter(1)))

    def rank(self, requests: Mapping[str, int]) -> list[tuple[str, str]]:
        """Assign labels to the busiest plugins. Returns pairs of the plugins that lost and got a label.

        Earlier requests count half as much at each ranking, so a plugin that pauses keeps its label for a
        while.

        Args:
            requests: Number of requests of each labelled plugin since the last ranking.
        """
        for name, score in self._named.items():
            self._named[name] = score / 2 + requests.get(name, 0)
        busiest = nlargest(self._most, self._heard.items(), key=itemgetter(1))
        quietest = sorted(self._named.items(), key=itemgetter(1))
        swaps = []
        for (new, count), (old, score) in zip(busiest, quietest, strict=False):
            if count <= score + CLEARLY:
                break
            del self._named[old]
            self._named[new] = count
            swaps.append((old, new))
        self._heard = {}
        self._namespaces.clear()
        return swaps
