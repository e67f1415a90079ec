"""Evaluation of conditions: whether an item meets one.

Law: whether a condition holds depends on the item alone. Evaluation fails only if it costs too much, which is
counted by the data examined (`holdfast.work`). A missing attribute meets no comparison, not even `ne`. Values
of different types are not equal, and neither is less than the other; a boolean is not a number; numbers are
compared exactly. `holdfast.tables.condition_json` has checked the conditions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from holdfast.tables.conditions import Comparison, Condition, Every, Not, Some
from holdfast.tables.paths import MISSING, lookup
from holdfast.work import NODE, STEP, TEST, TEXT, Work, searching


def holds(condition: Condition, item: Mapping[str, Any] | None, *, work: Work | None = None) -> bool:
    """Return whether an item meets a condition. A missing item counts as one without attributes.

    Raises:
        TooExpensive: This takes more work than allowed.
    """
    return _holds(condition, item, work or Work())


def _holds(condition: Condition, item: Mapping[str, Any] | None, work: Work) -> bool:
    if isinstance(condition, Comparison):
        return _meets(condition, item, work)
    if isinstance(condition, (Every, Some)):
        enough = isinstance(condition, Some)
        for part in condition.parts:
            if _holds(part, item, work) is enough:
                return enough
        return not enough
    if isinstance(condition, Not):
        return not _holds(condition.part, item, work)
    raise TypeError(f"{type(condition).__name__} is no condition")


def judged(condition: Condition, item: Mapping[str, Any] | None, work: Work) -> Generator[None, None, bool]:
    """Compute what `holds` returns, yielding after every slice of work so that others have a turn."""
    match condition:
        case Comparison():
            held = _meets(condition, item, work)
            if work.pausing():
                yield
            return held
        case Not():
            return not (yield from judged(condition.part, item, work))
        case Every() | Some():
            enough = isinstance(condition, Some)
            for part in condition.parts:
                if (yield from judged(part, item, work)) is enough:
                    return enough
            return not enough
        case _:
            raise TypeError(f"{type(condition).__name__} is no condition")


def comparisons_in(condition: Condition) -> int:
    """Return the number of comparisons in a condition."""
    match condition:
        case Every() | Some():
            return sum(comparisons_in(part) for part in condition.parts)
        case Not():
            return comparisons_in(condition.part)
        case _:
            return 1


def type_of(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "list"


def same(one: Any, other: Any, work: Work) -> bool:
    """Return whether two values are the same JSON. The order of an object's members does not matter."""
    if type(one) is type(other) and type(one) in _SCALARS:
        return bool(one == other)
    kind = type_of(one)
    if kind != type_of(other):
        return False
    if kind == "list":
        return len(one) == len(other) and _alike(zip(one, other, strict=True), len(one), work)
    if kind == "object":
        return one.keys() == other.keys() and _alike(
            ((member, other[name]) for name, member in one.items()), len(one), work
        )
    return bool(one == other)


def _alike(pairs: Iterable[tuple[Any, Any]], count: int, work: Work) -> bool:
    work.spend(TEST + NODE * count)
    return all(same(one, other, work) for one, other in pairs)


def _meets(test: Comparison, item: Mapping[str, Any] | None, work: Work) -> bool:
    work.look(test, TEST + STEP * len(test.path))
    found = MISSING if item is None else lookup(item, test.path)
    if test.operator in _PRESENCE:
        return (found is MISSING) == (test.operator == "not_exists")
    if test.sized:
        found = len(found) if isinstance(found, (str, list, tuple, Mapping)) else MISSING
    return found is not MISSING and OPERATORS[test.operator](found, test.value, work)


def _different(found: Any, value: Any, work: Work) -> bool:
    return not same(found, value, work)


def _ordered(compare: Callable[[Any, Any], bool]) -> _Operator:
    def compared(found: Any, value: Any, work: Work) -> bool:
        kind = type_of(found)
        return kind in {"number", "string"} and kind == type_of(value) and compare(found, value)

    return compared


def _between(found: Any, value: Any, work: Work) -> bool:
    low, high = value
    return OPERATORS["gte"](found, low, work) and OPERATORS["lte"](found, high, work)


def _in(found: Any, value: Any, work: Work) -> bool:
    work.spend(NODE * len(value))
    return any(same(found, member, work) for member in value)


def _begins_with(found: Any, value: Any, work: Work) -> bool:
    return isinstance(found, str) and found.startswith(str(value))


def _contains(found: Any, value: Any, work: Work) -> bool:
    if isinstance(found, str):
        if not isinstance(value, str):
            return False
        work.spend(searching(found, value))
        return value in found
    return isinstance(found, (list, tuple)) and _has_member(found, value, work)


def _has_member(members: Sequence[Any], value: Any, work: Work) -> bool:
    """Return whether a list has a member. Python's equality, which is faster, finds the candidates."""
    each = _weight(value, work)
    try:
        first = members.index(value)
    except ValueError:
        work.spend(each * len(members))
        return False
    work.spend(each * (first + 1))
    # In Python a boolean may also equal a number. Then the remaining members are compared one by one.
    return same(value, members[first], work) or _in(value, members[first + 1 :], work)


def _weight(value: Any, work: Work) -> int:
    """Return the maximum number of steps for Python to compare another value with this one."""
    if isinstance(value, str):
        return 1 + len(value) // TEXT
    if not isinstance(value, (list, tuple, Mapping)):
        return 1
    work.spend(NODE * len(value))
    members = value.values() if isinstance(value, Mapping) else value
    return 2 + sum(_weight(member, work) for member in members) // 2


def _has_type(found: Any, value: Any, work: Work) -> bool:
    return bool(type_of(found) == value)


_Operator: TypeAlias = Callable[[Any, Any, Work], bool]
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_PRESENCE: Final = frozenset({"exists", "not_exists"})
OPERATORS: Final[dict[str, _Operator]] = {
    "eq": same,
    "ne": _different,
    "lt": _ordered(operator.lt),
    "lte": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "gte": _ordered(operator.ge),
    "between": _between,
    "in": _in,
    "begins_with": _begins_with,
    "contains": _contains,
    "type": _has_type,
}
"""The functions that compare an existing value with that of a condition."""
