"""Linearizability by its definition, for histories of a handful of operations: every order is tried.

It shares no code with the checker, whose judgement it confirms.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.linear.history import Operation


def explained(history: Sequence[Operation], *, slack: int | None = None) -> bool:
    """Whether some order of the operations on one key explains how each of them ended.

    With `slack`, an operation without an answer can take effect until so long after its deadline.
    """
    return any(
        _answered(order, list(chosen))
        for order in _orders(history, slack)
        for chosen in itertools.product(*_versions(order))
    )


def _orders(history: Sequence[Operation], slack: int | None) -> Iterator[tuple[Operation, ...]]:
    """Every order that the times allow, with and without each of the operations that nobody answered."""
    free = [one for one in history if one.outcome == "unknown"]
    owed = [one for one in history if one.outcome in ("ok", "conflict")]
    for count in range(len(free) + 1):
        for some in itertools.combinations(free, count):
            for order in itertools.permutations([*owed, *some]):
                pairs = itertools.combinations(order, 2)
                if not any(_latest(second, slack) < first.call for first, second in pairs):
                    yield order


def _latest(operation: Operation, slack: int | None) -> float:
    """The last instant at which an operation can have taken effect."""
    if operation.outcome != "unknown":
        return operation.end or 0
    if slack is None or operation.deadline is None:
        return float("inf")
    return operation.deadline + slack


def _versions(order: Sequence[Operation]) -> list[list[int | None]]:
    """For each write the versions it may have made: any that an operation knows of, or one that none does."""
    known = {one.version for one in order if one.version} | {one.expected for one in order if one.expected}
    return [
        [one.version] if one.outcome == "ok" else [*known, None]
        for one in order
        if one.verb in ("set", "incr") and one.outcome != "conflict"
    ]


def _answered(order: Sequence[Operation], versions: list[int | None]) -> bool:
    """Whether a plain register that does these one after the other answers as they were answered."""
    value: int | None = None
    newest = version = 0.0
    for one in order:
        chosen = versions.pop(0) if one.verb in ("set", "incr") and one.outcome != "conflict" else None
        shown = None if value is None else version
        answer: tuple[str, int | bool | None, float | None] = ("ok", value, shown)
        if one.expected is not None and one.expected != (shown or 0):
            answer = ("conflict", value, shown)
        elif one.verb == "delete":
            answer = ("ok", value is not None, None)
            value = None
        elif one.verb != "get":
            version = newest + 1e-6 if chosen is None else float(chosen)
            if version <= newest:
                return False
            newest = version
            value = (one.argument or 0) + ((value or 0) if one.verb == "incr" else 0)
            answer = ("ok", value, version)
        if one.outcome != "unknown" and answer != (one.outcome, one.found, one.version):
            return False
    return True
