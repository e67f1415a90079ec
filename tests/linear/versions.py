"""Whether the versions of a namespace keep what is promised: never used twice, and growing with time.

It looks at what replies showed, across all keys of a namespace, and nothing else.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.linear.history import Operation


class VersionFault(NamedTuple):
    """Two operations whose versions can't both be right."""

    why: str
    operation: Operation
    other: Operation

    @property
    def history(self) -> list[Operation]:
        """All that matters for it."""
        return [self.other, self.operation]

    def __str__(self) -> str:
        return f"{self.operation.namespace}: {self.why}\n  {self.other}\n  {self.operation}"


def misused(history: Iterable[Operation]) -> Iterator[VersionFault]:
    """Every version that was given twice, or later than a greater one."""
    spaces: dict[str, list[Operation]] = {}
    for operation in history:
        if operation.version is not None:
            spaces.setdefault(operation.namespace, []).append(operation)
    for operations in spaces.values():
        yield from _twice(operations)
        yield from _backwards(operations)


def _made(operation: Operation) -> bool:
    """Whether the operation made the version that it shows."""
    return operation.verb != "get" and operation.outcome == "ok"


def _twice(operations: Iterable[Operation]) -> Iterator[VersionFault]:
    made: dict[int | None, Operation] = {}
    shown: dict[int | None, Operation] = {}
    for operation in operations:
        if _made(operation):
            other = made.setdefault(operation.version, operation)
            if other is not operation:
                yield VersionFault("a version was given to two writes", operation, other)
        other = shown.setdefault(operation.version, operation)
        if (other.key, other.found) != (operation.key, operation.found) and not _both_made(operation, other):
            yield VersionFault("a version was shown with two entries", operation, other)


def _both_made(operation: Operation, other: Operation) -> bool:
    return _made(operation) and _made(other)


def _backwards(operations: Iterable[Operation]) -> Iterator[VersionFault]:
    """A write that began after a version had been shown must have a greater one."""
    events = []
    for operation in operations:
        assert operation.end is not None
        events.append((operation.end, 1, operation))
        if _made(operation):
            events.append((operation.call, 0, operation))
    newest: Operation | None = None
    for _, kind, operation in sorted(events, key=itemgetter(0, 1)):
        if newest is None or (operation.version or 0) > (newest.version or 0):
            newest = operation if kind == 1 else newest
        elif kind == 0:
            yield VersionFault("a write was given a smaller version than one before it", operation, newest)
