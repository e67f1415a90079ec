"""Counters and histograms of a running service, their labels, and their text for a scrape.

The number of labels is bounded. The busiest plugins have their own and all others share one, an unknown
purpose becomes `other`, and every error has one of five outcomes.

Counting is one step in a list or a dictionary, done only on the event loop. The text is rendered at a scrape
from copies, so that it can be done on a thread. It is rendered here because Prometheus' library takes several
times as long, and cannot show a plugin's figures again that it has hidden.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast import families
from holdfast.commands import (
    Append,
    Batch,
    Command,
    Deleted,
    KeyChange,
    Many,
    Result,
    Results,
    Set,
    Stored,
    Versions,
    WriteCommand,
)
from holdfast.errors import OutcomeUnknown, Refused, Transient, VersionConflict, peek
from holdfast.stored import purpose_of
from holdfast.tables.commands import ItemsDone, ItemWrite, TransactWrite, WriteItems
from holdfast.wire.subjects import OPERATOR

CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"
"""The type of the text that a scrape returns."""
_TICK: Final = os.sysconf("SC_CLK_TCK")
_PROCESS: Final = {
    "virtual_memory_bytes": "Virtual memory size in bytes.",
    "resident_memory_bytes": "Resident memory size in bytes.",
    "start_time_seconds": "Start time of the process since unix epoch in seconds.",
    "cpu_seconds_total": "Total user and system CPU time spent in seconds.",
    "open_fds": "Number of open file descriptors.",
    "max_fds": "Maximum number of open file descriptors.",
}
"""The metrics of a process and what each says."""
LOCK: Final = "lock"
PURPOSES: Final = frozenset(
    {"cache", "checkpoint", "config", "counter", "cursor", "feature_flag", LOCK, "session"}
)
"""The purposes with a label of their own."""
_FAILURES: Final = {
    VersionConflict: "conflict",
    Refused: "refused",
    Transient: "unavailable",
    OutcomeUnknown: "unknown",
}
"""The outcomes of writes that fail, by the first class that fits; any other is `error`."""
OUTCOMES: Final = ("ok", *_FAILURES.values(), "error")
_STORED_PLAINLY: Final = (("none", "ok"),)
MOST_PLUGINS: Final = 100
OTHER: Final = "OTHER"
UNKNOWN: Final = "UNKNOWN"
"""Labels for plugins without one of their own, and for unknown callers. No plugin can have these names."""
WATCHED: Final = 4_096
"""Maximum number of unlabelled plugins whose requests are counted; the busiest are kept."""
CLEARLY: Final = 10
"""Margin of requests by which a plugin must exceed another to take its label."""
_ALWAYS: Final = frozenset({OTHER, UNKNOWN, OPERATOR})


Values: TypeAlias = float | Mapping[Any, float]
"""A number, or numbers by labels."""


class Tally:
    """A histogram: counts between bounds, and a sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, amount: float) -> None:
        """Count one amount."""
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.total += amount

    def copy(self) -> Tally:
        """Return an independent copy."""
        copy = Tally(self.bounds)
        copy.take_in(self)
        return copy

    def take_in(self, other: Tally, *, sign: int = 1) -> None:
        """Add the figures of another tally with the same bounds, or subtract them with `sign=-1`."""
        self.counts = [one + sign * more for one, more in zip(self.counts, other.counts, strict=True)]
        self.total += sign * other.total


class Counts:
    """A counter with labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        self._about = name, help
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str, by: int = 1) -> None:
        """Add to the count of these labels."""
        self._counts[labels] = self._counts.get(labels, 0) + by

    def items(self) -> list[tuple[tuple[str, ...], int]]:
        """Return the counts by labels."""
        return list(self._counts.copy().items())

    def forget(self, plugin: str) -> None:
        """Drop the counts whose first label is this plugin."""
        for labels in [labels for labels in self._counts if labels[0] == plugin]:
            del self._counts[labels]

    def text(
        self, *, shown: Callable[[str], bool] | None = None, elsewhere: Mapping[str, int] | None = None
    ) -> str:
        """Return the text of this counter.

        Args:
            shown: Returns whether counts with this first label are shown; without it all are.
            elsewhere: Counts from other sources, by their only label.
        """
        values = {labels: count for labels, count in self.items() if shown is None or shown(labels[0])}
        values |= {(label,): count for label, count in (elsewhere or {}).items()}
        name, help = self._about
        return family(f"{name}_total", "counter", help, values, self._labels)


class Families:
    """Renders metric families whose names share a prefix. Values without labels are a number."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def name(self, name: str) -> str:
        """Return the full name of a metric."""
        return f"{self._prefix}_{name}"

    def counter(self, name: str, help: str, values: Values, *labels: str) -> str:
        """Return a counter."""
        return family(f"{self.name(name)}_total", "counter", help, values, labels)

    def gauge(self, name: str, help: str, values: Values, *labels: str) -> str:
        """Return a gauge."""
        return family(self.name(name), "gauge", help, values, labels)

    def alias(self, name: str, of: str, values: Values, *labels: str) -> str:
        """Return a metric again under an older name, without a type so that the name need not fit one."""
        return family(self.name(name), "untyped", f"The same as {self.name(of)}.", values, labels)

    def histogram(self, name: str, help: str, tally: Tally) -> str:
        """Return a histogram without labels."""
        whole = self.name(name)
        return f"{_head(whole, 'histogram', help)}{_histogram(whole, '', tally, tally.bounds)}"

    def histograms(
        self,
        name: str,
        help: str,
        label: str,
        tallies: Mapping[str, Tally],
        *,
        bounds: Container[float] | None = None,
    ) -> str:
        """Return a histogram with a label, with these bounds only or with all."""
        whole = self.name(name)
        parts = [_head(whole, "histogram", help)]
        for of, tally in tallies.items():
            shown = tally.bounds if bounds is None else bounds
            parts.append(_histogram(whole, f'{label}="{_escaped(of)}"', tally, shown))
        return "".join(parts)


def process_text() -> str:
    """Return the usual metrics of a process, under the names that all Python programs give them.

    On a system without /proc only the one about Python is there.
    """
    parts = []
    with contextlib.suppress(OSError):
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        status = [float(word) for word in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[1:]]
        values = {
            "virtual_memory_bytes": status[19],
            "resident_memory_bytes": status[20] * resource.getpagesize(),
            "start_time_seconds": float(boot.split()[1]) + status[18] / _TICK,
            "cpu_seconds_total": (status[10] + status[11]) / _TICK,
            "open_fds": len(os.listdir("/proc/self/fd")),
            "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        }
        for name, value in values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            parts.append(family(f"process_{name}", kind, _PROCESS[name], value, ()))
    version = platform.python_version()
    python = {(platform.python_implementation(), *platform.python_version_tuple(), version): 1.0}
    labels = ("implementation", "major", "minor", "patchlevel", "version")
    return "".join([*parts, family("python_info", "gauge", "Python platform information", python, labels)])


def family(name: str, kind: str, help: str, values: Values, labels: Sequence[str]) -> str:
    """Return a family of values."""
    return _head(name, kind, help) + _samples(name, labels, values)


def _head(name: str, kind: str, help: str) -> str:
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def _samples(name: str, labels: Sequence[str], values: Values) -> str:
    if not isinstance(values, Mapping):
        return f"{name} {float(values)}\n"
    order = sorted(range(len(labels)), key=labels.__getitem__)
    form = ",".join(f'{labels[position]}="{{{position}}}"' for position in order)
    lines = [f"{name}{{{form.format(*map(_escaped, of))}}} {float(value)}\n" for of, value in values.items()]
    return "".join(lines)


def _histogram(name: str, label: str, tally: Tally, shown: Container[float]) -> str:
    """Return the lines of one histogram, with cumulative counts for the shown bounds."""
    rest = f",{label}" if label else ""
    counts, so_far, lines = tally.counts.copy(), 0, []
    for bound, count in zip(tally.bounds, counts, strict=False):
        so_far += count
        if bound in shown:
            lines.append(f'{name}_bucket{{le="{float(bound)}"{rest}}} {so_far}.0\n')
    so_far += counts[-1]
    own = f"{{{label}}}" if label else ""
    lines.append(f'{name}_bucket{{le="+Inf"{rest}}} {so_far}.0\n')
    lines.append(f"{name}_count{own} {so_far}.0\n{name}_sum{own} {tally.total}\n")
    return "".join(lines)


def _escaped(label: str) -> str:
    if label.isalnum():
        return label
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


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


def purpose_label(purpose: str | None) -> str:
    """Return the label of a purpose."""
    if purpose is None:
        return "none"
    return purpose if purpose in PURPOSES else "other"


def writes_of(command: Command, result: Result | Exception) -> Sequence[tuple[str, str]]:
    """Return the labels of purpose and outcome for each write; a batch counts as one write."""
    if isinstance(result, Stored) and result.row.semantics is None:
        return _STORED_PLAINLY
    if isinstance(command, (KeyChange, Append, Batch, ItemWrite, TransactWrite)):
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
    return next((outcome for kind, outcome in _FAILURES.items() if isinstance(result, kind)), "error")


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
    named = _first(purpose_of(write.semantics) for write in writes if isinstance(write, Set | Append))
    return named if named is not None else _met(result)


def _met(result: Result | Exception) -> str | None:
    """Return the purpose of the entry that a conflict reports."""
    current = peek(result, "current") if isinstance(result, VersionConflict) else None
    return None if current is None or current.semantics is None else current.semantics.purpose


def _first(purposes: Iterable[str | None]) -> str | None:
    return next((purpose for purpose in purposes if purpose is not None), None)
