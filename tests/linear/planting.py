"""Faults put into a history that was right, each of them certain: no order of the operations can explain it.

What is planted follows from operations that did not overlap, so that a checker that misses one is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from tests.linear.history import Operation, by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random


def stale_read(history: Sequence[Operation], random: Random) -> list[Operation]:
    """A get shows an entry that a write had replaced, and that write had ended before the get began."""
    places = [
        (read, old)
        for operations in by_key(history).values()
        for old, new in _in_turn(operations)
        for read in operations
        if read.verb == "get" and read.outcome == "ok" and _before(new, read)
    ]
    read, old = random.choice(places)
    return _changed(history, read, found=old.found, version=old.version)


def lost_update(history: Sequence[Operation], random: Random) -> list[Operation]:
    """A compare-and-set succeeds on a version that a write had replaced before it began."""
    places = [
        (update, old)
        for operations in by_key(history).values()
        for old, new in _in_turn(operations)
        for update in _writes(operations)
        if _before(new, update)
    ]
    update, old = random.choice(places)
    return _changed(history, update, expected=old.version)


def refused_effect(history: Sequence[Operation], random: Random) -> list[Operation]:
    """A get shows what a set wrote that was answered with TIMEOUT."""
    seen = {
        (operation.namespace, operation.key, operation.version)
        for operation in history
        if operation.verb == "get" and operation.outcome == "ok"
    }
    places = [
        write
        for write in _writes(history)
        if write.verb == "set" and (write.namespace, write.key, write.version) in seen
    ]
    write = random.choice(places)
    return _changed(history, write, outcome="refused", code="TIMEOUT", found=None, version=None)


def version_twice(history: Sequence[Operation], random: Random) -> list[Operation]:
    """Two writes of a namespace are given the same version."""
    spaces = defaultdict(list)
    for write in _writes(history):
        spaces[write.namespace].append(write)
    places = [writes for writes in spaces.values() if len(writes) > 1]
    first, second = random.sample(random.choice(places), 2)
    return _changed(history, second, version=first.version)


KINDS: tuple[Callable[[Sequence[Operation], Random], list[Operation]], ...] = (
    stale_read,
    lost_update,
    refused_effect,
    version_twice,
)


def _writes(operations: Sequence[Operation]) -> list[Operation]:
    """Those that made an entry and said with which version."""
    return [one for one in operations if one.verb in ("set", "incr") and one.outcome == "ok"]


def _before(first: Operation, second: Operation) -> bool:
    return first.end is not None and first.end < second.call


def _in_turn(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Writes of a key that did not overlap: each with the next that began after its end."""
    writes = sorted(_writes(operations), key=lambda one: one.call)
    for position, old in enumerate(writes):
        new = next((one for one in writes[position + 1 :] if _before(old, one)), None)
        if new is not None:
            yield old, new


def _changed(history: Sequence[Operation], which: Operation, **fields: object) -> list[Operation]:
    return [msgspec.structs.replace(one, **fields) if one is which else one for one in history]
