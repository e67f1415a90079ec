"""The labels of metrics: plugins, and the purposes and outcomes of writes.

The number of labels is bounded. The busiest plugins have their own and all others share one, an unknown
purpose becomes `other`, and every error has one of five outcomes.
"""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from holdfast import families
from holdfast.commands import Batch, Deleted, KeyChange, Many, Results, Set, Stored, Versions, WriteCommand
from holdfast.errors import OutcomeUnknown, Refused, Transient, VersionConflict, peek
from holdfast.stored import purpose_of
from holdfast.tables.commands import ItemsDone, ItemWrite, TransactWrite, WriteItems
from holdfast.wire.subjects import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.commands import Command, Result

LOCK: Final = "lock"
PURPOSES: Final = frozenset(
    {"cache", "checkpoint", "config", "counter", "cursor", "feature_flag", LOCK, "session"}
)
"""The purposes with a label of their own."""
OUTCOMES: Final = ("ok", "conflict", "refused", "unavailable", "unknown", "error")


_STORED_PLAINLY: Final = (("none", "ok"),)


def purpose_label(purpose: str | None) -> str:
    """Return the label of a purpose."""
    if purpose is None:
        return "none"
    return purpose if purpose in PURPOSES else "other"


def writes_of(command: Command, result: Result | Exception) -> Sequence[tuple[str, str]]:
    """Return the labels of purpose and outcome for each write; a batch counts as one write."""
    if isinstance(result, Stored) and result.row.semantics is None:
        return _STORED_PLAINLY
    if isinstance(command, (KeyChange, Batch, ItemWrite, TransactWrite)):
        return ((purpose_label(_purpose(command, result)), _outcome(result)),)
    if isinstance(command, Many):
        parts: Sequence[Command] = command.items
    elif isinstance(command, WriteItems):
        parts = command.writes
    else:
        return ()
    results = result.items if isinstance(result, (Results, ItemsDone)) else [result] * len(parts)
    return [one for part in zip(parts, results, strict=True) for one in writes_of(*part)]


def _outcome(result: Result | Exception) -> str:
    if not isinstance(result, Exception):
        return "ok"
    match result:
        case VersionConflict():
            return "conflict"
        case Refused():
            return "refused"
        case Transient():
            return "unavailable"
        case OutcomeUnknown():
            return "unknown"
        case _:
            return "error"


def _purpose(command: WriteCommand, result: Result | Exception) -> str | None:
    """Return the purpose of the stored or removed entry, else of the intended or conflicting one."""
    match result:
        case Stored():
            return purpose_of(result.row.semantics)
        case Deleted():
            return result.purpose
        case Versions():
            return _first(result.purposes)
    writes = command.writes if isinstance(command, Batch) else (command,)
    named = _first(purpose_of(write.semantics) for write in writes if isinstance(write, Set))
    return named if named is not None else _met(result)


def _met(result: Result | Exception) -> str | None:
    """Return the purpose of the entry that a conflict reports."""
    current = peek(result, "current") if isinstance(result, VersionConflict) else None
    return None if current is None or current.semantics is None else current.semantics.purpose


def _first(purposes: Iterable[str | None]) -> str | None:
    return next((purpose for purpose in purposes if purpose is not None), None)


MOST_PLUGINS: Final = 100
OTHER: Final = "OTHER"
UNKNOWN: Final = "UNKNOWN"
"""Labels for plugins without one of their own, and for unknown callers. No plugin can have these names."""
WATCHED: Final = 4_096
"""Maximum number of unlabelled plugins whose requests are counted; the busiest are kept."""
CLEARLY: Final = 10
"""Margin of requests by which a plugin must exceed another to take its label."""
_ALWAYS: Final = frozenset({OTHER, UNKNOWN, OPERATOR})


class PluginLabels:
    """The labels of plugins.

    While labels are free, a plugin gets one at its first request. Once they are used up, a plugin that made
    clearly more requests than the quietest labelled one replaces it, at most once a minute. The memory for
    plugins without a label is bounded too, and counting a request of a labelled plugin costs nothing here.

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
