"""Which plugins have a label of their own in metrics: the busiest, and all others share one.

While there are labels left, a plugin gets one when it is first met. After that, once a minute, a plugin that
made clearly more requests than the quietest one that has a label takes that one's place.

Law: the number of labels is bounded, and so is what is remembered of plugins that have none. Counting a
request of a plugin that has a label costs nothing here.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from holdfast.wire.subjects import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PLUGINS: Final = 100
OTHER: Final = "OTHER"
UNKNOWN: Final = "UNKNOWN"
"""Labels for plugins that have none of their own, and for callers that nobody knows; no plugin can have these
names."""
WATCHED: Final = 4_096
"""Of how many plugins without a label requests are counted; of more, those that made the most."""
CLEARLY: Final = 10
"""How many more requests a plugin must have made to take another's place."""
_ALWAYS: Final = frozenset({OTHER, UNKNOWN, OPERATOR})


class Labels:
    """The names that plugins have in labels.

    Args:
        most: How many have their own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._named: dict[str, float] = {}
        self._heard: dict[str, int] = {}
        self._namespaces: dict[str, str] = {}

    @property
    def named(self) -> list[str]:
        """The plugins that have a label of their own."""
        return list(self._named)

    def shown(self, label: str) -> bool:
        """Whether a label is among those that there are now."""
        return label in self._named or label in _ALWAYS

    def of(self, owner: str) -> str:
        """The label of a plugin."""
        if owner in self._named or owner in _ALWAYS:
            return owner
        if not owner:
            return UNKNOWN
        if len(self._named) >= self._most:
            return OTHER
        self._named[owner] = 0.0
        return owner

    def of_namespace(self, namespace: str) -> str:
        """The label of the plugin that a namespace belongs to."""
        label = self._namespaces.get(namespace)
        if label is None:
            label = self.of(namespace.partition("/")[2])
            if label is not OTHER:  # those are bounded, and so is what is kept of them
                self._namespaces[namespace] = label
        return label

    def heard(self, owner: str) -> None:
        """Count a request of a plugin that has no label."""
        self._heard[owner] = self._heard.get(owner, 0) + 1
        if len(self._heard) > WATCHED:
            self._heard = dict(nlargest(WATCHED // 2, self._heard.items(), key=itemgetter(1)))

    def rank(self, requests: Mapping[str, int]) -> list[tuple[str, str]]:
        """Give the busiest their labels; who lost one to whom.

        What a plugin asked for before counts half as much each time, so that one which pauses keeps its label
        for a while.

        Args:
            requests: How many each plugin that has a label made since the last time.
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
