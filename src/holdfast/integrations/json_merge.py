"""A three-way merge of JSON values: what two writers have changed since both knew the same value.

Nothing is guessed. Members of objects that one of them has changed, and items that both have added at the
end of a list, are united. Whatever else both have changed is a `MergeConflict`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final


class _Absence(Enum):
    ABSENT = auto()


ABSENT: Final = _Absence.ABSENT
"""The value of a member that is not there."""


class MergeConflict(Exception):
    """Two writers have changed the same value; `path` says which."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(".".join(path))
        self.path = path


def merged(base: Any, theirs: Any, ours: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a value with the changes of two writers.

    Args:
        base: The value that both knew; `ABSENT` if neither knew one.
        theirs: The value that is there now.
        ours: The value that would replace it.
        path: The names that lead to the value, for the message.

    Raises:
        MergeConflict: Both have changed the same value in different ways.
    """
    if same(ours, base):
        return theirs
    if same(theirs, base):
        return ours
    if isinstance(theirs, dict) and isinstance(ours, dict):
        known = base if isinstance(base, dict) else {}
        members = {}
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            value = merged(
                known.get(name, ABSENT), theirs.get(name, ABSENT), ours.get(name, ABSENT), (*path, name)
            )
            if value is not ABSENT:
                members[name] = value
        return members
    if isinstance(theirs, list) and isinstance(ours, list):
        known_items = base if isinstance(base, list) else []
        count = len(known_items)
        # Of two lists that were made at once and begin alike, nobody knows what was there and what was added.
        alike = base is ABSENT and theirs and ours and same(theirs[0], ours[0])
        if _has_kept(theirs, known_items) and same(ours[:count], known_items) and not alike:
            return theirs + ours[count:]
    elif same(ours, theirs) and not _is_number(ours):
        # Two that have set a flag have the same wish. Two that have made a 2 of a 1 have counted two things.
        return theirs
    raise MergeConflict(path)


def summed(base: Any, theirs: Any, ours: Any) -> Any:
    """Return totals with what two writers have added to them; of anything but numbers, the one that is ours.

    Items of a list are told apart by their `id` and `provider`, as agno's metrics of models are.
    """
    if same(ours, base):
        return theirs
    if _is_number(ours) and _is_number(theirs):
        return theirs + ours - (base if _is_number(base) else 0)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        known = base if isinstance(base, dict) else {}
        total = {name: summed(known.get(name, ABSENT), theirs.get(name, ABSENT), ours[name]) for name in ours}
        return {**theirs, **total}
    if isinstance(ours, list) and isinstance(theirs, list):
        old, new, mine = (_by_name(one if isinstance(one, list) else []) for one in (base, theirs, ours))
        return list(
            {**new, **{n: summed(old.get(n, ABSENT), new.get(n, ABSENT), mine[n]) for n in mine}}.values()
        )
    return ours


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; `1` and `true` are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _has_kept(items: list[Any], known: list[Any]) -> bool:
    """Return whether all known items are still there, in their order."""
    rest = iter(items)
    return all(any(same(item, one) for item in rest) for one in known)


def _by_name(items: list[Any]) -> dict[Any, Any]:
    return {
        (str(item.get("id")), str(item.get("provider"))) if isinstance(item, dict) else place: item
        for place, item in enumerate(items)
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
