"""Items as the oracle of tables sees them: conditions, updates, deadlines, and what an index has of them.

As in `table_oracle`: plain data, slow and obvious, nothing of the library.
"""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Plain = dict[str, Any]
KEYS: Final = {"t": ("p", "s"), "u": ("p",)}
"""The attributes of the keys of the tables that there may be."""
TTL: Final = {"t": "e", "u": None}
INDEXES: Final[dict[str, tuple[str, Any]]] = {"by_tag": ("tag", str), "by_n": ("n", (int, float))}
DAY_MS: Final = 86_400_000


class Refused(Exception):
    """A call that changes nothing, with what it is told."""

    def __init__(self, name: str, field: str | None = None, **more: Any) -> None:
        super().__init__(name)
        self.answer = {"error": name, "field": field, **more}


def text_of(value: Any) -> str:
    """The JSON text of a value, in which 1 and 1.0 are two."""
    return json.dumps(value, sort_keys=True)


def shown(item: Plain) -> Plain:
    """An item as an answer shows it."""
    return item | {"value": text_of(item["value"])}


def holds(condition: Plain, item: Plain | None) -> bool:
    """Whether an item meets a condition, of the few that the steps make."""
    [(path, test)] = condition.items()
    if path == "not":
        return not holds(test, item)
    if path == "or":
        return any(holds(part, item) for part in test)
    found = at({} if item is None else item, path)
    [(operator, operand)] = test.items()
    if operator in ("exists", "not_exists"):
        return bool((found is None) == (operator == "not_exists"))
    if found is None:
        return False
    value: Any = found[0]
    if operator == "eq":
        return kind_of(value) == kind_of(operand) and bool(value == operand)
    return kind_of(value) == kind_of(operand) == "number" and bool(value > operand)


def kind_of(value: Any) -> str:
    """What kind of JSON value something is, as far as it matters."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def at(item: Any, path: str) -> list[Any] | None:
    """What is at a path, in a list, or None."""
    for name in path.split("."):
        if not isinstance(item, dict) or name not in item:
            return None
        item = item[name]
    return [item]


def as_expected(before: Plain | None, expected: int | None, condition: Plain | None) -> bool:
    """Whether an item is what a call expects."""
    if expected is not None and expected != (0 if before is None else before["version"]):
        return False
    return condition is None or holds(condition, None if before is None else before["value"])


def updated(item: Plain, changes: Plain) -> Plain:
    """The item after set, add and remove."""
    after: Plain = copy.deepcopy(item)
    for verb in ("set", "add"):
        for path, value in changes.get(verb, {}).items():
            *outer, last = path.split(".")
            inner = after
            for name in outer:
                inner = inner.setdefault(name, {})
                if not isinstance(inner, dict):
                    raise Refused("ValidationError", verb)
            found = at(item, path)
            if verb == "add" and found is not None:
                if kind_of(found[0]) != "number":
                    raise Refused("ValidationError", "add")
                inner[last] = found[0] + value
            else:
                inner[last] = value
    for path in changes.get("remove", []):
        *outer, last = path.split(".")
        holder = at(after, ".".join(outer)) if outer else [after]
        if holder is not None and isinstance(holder[0], dict):
            holder[0].pop(last, None)
    return after


def end_of(item: Plain, attribute: str | None) -> int | None:
    """When an item is gone, in milliseconds; the steps give no deadline before 1970 or past the calendar."""
    value: Any = None if attribute is None else item.get(attribute)
    if kind_of(value) != "number" or value == 0:
        return None
    return math.ceil(Fraction(value) * 1000)


def alive(item: Plain, now: int) -> bool:
    """Whether an item is still there."""
    return item["expires_at"] is None or bool(item["expires_at"] > now)


def entered(item: Plain, index: str) -> bool:
    """Whether an item has an entry in an index."""
    name, kind = INDEXES[index]
    value = item.get(name)
    return isinstance(value, kind) and not isinstance(value, bool)


def check_type(index: str, value: Any) -> None:
    """Refuse what an index can't hold."""
    if not isinstance(value, INDEXES[index][1]):
        raise Refused("ValidationError", "key_value")


def in_range(value: Any, sk: Plain) -> bool:
    """Whether a sort key meets a condition."""
    tests: dict[str, Callable[[Any], bool]] = {
        "eq": lambda operand: bool(value == operand),
        "lt": lambda operand: bool(value < operand),
        "gte": lambda operand: bool(value >= operand),
        "between": lambda operand: bool(operand[0] <= value <= operand[1]),
    }
    return all(tests[name](operand) for name, operand in sk.items())


def returned(after: Plain, before: Plain | None, returns: str) -> Any:
    """What a write returns."""
    if returns == "new":
        return shown(after)
    return None if returns == "none" or before is None else shown(before)
