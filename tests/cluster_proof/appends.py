"""Transactions that append to lists: whether one order of all of them explains every list that was read.

A transaction reads lists, confirms that they did not change, and appends an element to some of them. Lists
tell the order of their elements, so they tell which transaction came before which (as in Elle, by Kingsbury
and Alvaro). Together with the times of calls and replies these facts must not form a circle.

What a list shows at the end is the order of its elements. Only transactions that were acknowledged, or
that have an unknown outcome and left an element, take part.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster_proof.steps import Step

Node: TypeAlias = "tuple[str, int]"
"""A transaction by its position, or an instant: the end of one."""


class _Facts(NamedTuple):
    """The transactions that took part, the lists at the end, and who appended each element."""

    taking: dict[int, Step]
    final: Mapping[str, list[int]]
    writer: dict[tuple[str, int], int]


def check_appends(steps: Sequence[Step], final: Mapping[str, list[int]]) -> list[str]:
    """Return what is wrong with transactions.

    Args:
        steps: The steps of kind `append`.
        final: Every list at the end.
    """
    writer = {(key, one): number for number, step in enumerate(steps) for key, one in step.added.items()}
    faults = [*_elements(steps, final, writer), *_prefixes(steps, final)]
    if faults:
        return faults
    left = {writer[key, one] for key, elements in final.items() for one in elements if (key, one) in writer}
    taking = {
        number: step
        for number, step in enumerate(steps)
        if step.outcome == "ok" or (step.outcome == "unknown" and number in left)
    }
    return _circles(_Facts(taking, final, writer))


def _elements(
    steps: Sequence[Step], final: Mapping[str, list[int]], writer: Mapping[tuple[str, int], int]
) -> Iterator[str]:
    """Elements are there once, those of one transaction together, and none of what was refused."""
    for key, elements in final.items():
        for one, count in Counter(elements).items():
            if count > 1:
                yield f"{key} has {one} {count} times"
            if (key, one) not in writer:
                yield f"{key} has {one}, which no transaction appended"
    present = {key: set(elements) for key, elements in final.items()}
    for step in steps:
        there = [one in present.get(key, ()) for key, one in step.added.items()]
        if step.outcome == "ok" and not all(there):
            yield f"an acknowledged transaction is lost, or a part of it:\n  {step}"
        elif step.outcome in ("refused", "conflict") and any(there):
            yield f"a refused transaction left something:\n  {step}"
        elif step.outcome == "unknown" and len(set(there)) > 1:
            yield f"a transaction took effect in part:\n  {step}"


def _prefixes(steps: Sequence[Step], final: Mapping[str, list[int]]) -> Iterator[str]:
    """What was read of a list is its beginning as it is at the end."""
    for step in steps:
        if step.outcome != "ok":
            continue
        for key, elements in step.found.items():
            if elements != final.get(key, [])[: len(elements)]:
                yield f"a transaction read a list that {key} never was:\n  {step}"


def _circles(facts: _Facts) -> list[str]:
    edges = _edges(facts)
    circle = _circle(edges)
    if not circle:
        return []
    lines = [f"  {facts.taking[number]}" for kind, number in circle if kind == "step"]
    return ["no order of these transactions explains what they read:\n" + "\n".join(lines[:10])]


def _edges(facts: _Facts) -> dict[Node, set[Node]]:
    """What comes before what: by the lists, and by the times."""
    edges: dict[Node, set[Node]] = defaultdict(set)
    for key, elements in facts.final.items():
        for one, other in itertools.pairwise(elements):
            edges["step", facts.writer[key, one]].add(("step", facts.writer[key, other]))
    for number, step in facts.taking.items():
        if step.outcome != "ok":
            continue
        for key, read in step.found.items():
            if read:
                edges["step", facts.writer[key, read[-1]]].add(("step", number))
            after = facts.final.get(key, [])[len(read) :]
            following = [facts.writer[key, one] for one in after[:2]]
            if following and following[0] == number:
                following = following[1:]  # its own element comes after what it read
            edges["step", number].update(("step", one) for one in following[:1])
    _times(facts, edges)
    for node, others in edges.items():
        others.discard(node)
    return edges


def _times(facts: _Facts, edges: dict[Node, set[Node]]) -> None:
    """Add the order of time by way of instants, since the pairs themselves would be too many."""
    ends = sorted(
        {step.end for step in facts.taking.values() if step.end is not None and step.outcome == "ok"}
    )
    for position in range(1, len(ends)):
        edges["end", position - 1].add(("end", position))
    for number, step in facts.taking.items():
        before = bisect.bisect_left(ends, step.call)
        if before:
            edges["end", before - 1].add(("step", number))
        if step.outcome == "ok" and step.end is not None:
            edges["step", number].add(("end", bisect.bisect_left(ends, step.end)))


def _circle(edges: Mapping[Node, set[Node]]) -> list[Node]:
    """Return the nodes of a circle; none if there is none."""
    waiting = Counter(other for others in edges.values() for other in others)
    nodes = set(edges) | set(waiting)
    free = [node for node in nodes if not waiting[node]]
    while free:
        node = free.pop()
        nodes.discard(node)
        for other in edges.get(node, ()):
            waiting[other] -= 1
            if not waiting[other]:
                free.append(other)
    if not nodes:
        return []
    # Every node that is left has one before it that is left, too: going back ends in a circle.
    before = {other: node for node in nodes for other in edges.get(node, ()) if other in nodes}
    path: dict[Node, int] = {}
    node = next(iter(nodes))
    while node not in path:
        path[node] = len(path)
        node = before[node]
    return list(path)[path[node] :]
