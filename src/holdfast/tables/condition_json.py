"""Conditions as JSON: their form on the wire, and what is legal in them.

    {"score": {"gt": 5, "lt": 9}, "meta.closed": {"not_exists": true}}        all must hold
    {"or": [{"tags": {"contains": "x"}}, {"not": {"name": {"size": {"gte": 3}}}}]}
    {"path": ["a.b", 0], "eq": 1}                                             a path as a list of steps

Law: every condition of a caller passes through `condition_of`, including one made in Python, so that its
evaluation is bounded and it can be sent. `and`, `or` and `not` are reserved words; an attribute of such a
name needs the form with `path`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from holdfast import rules
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.tables.conditions import Comparison, Condition, Every, Not, Some
from holdfast.tables.evaluation import type_of
from holdfast.tables.paths import Path, path_of, spelled

MAX_DEPTH: Final = 64
MAX_TESTS: Final = 1_000
"""Maximum number of comparisons of a condition on an item. Each member of an `in` counts as one."""
TYPES: Final = ("string", "number", "boolean", "null", "list", "object")


def condition_of(given: object, *, field: str = "condition") -> Condition:
    """Return a legal condition, from JSON or from one made in Python.

    Raises:
        ValidationError: It is not a condition, is nested deeper than `MAX_DEPTH`, or makes more than
            `MAX_TESTS` comparisons.
        ValueTooLarge: Its values have more than 64 KB together.
    """
    wanted = _json(given, MAX_DEPTH, field) if isinstance(given, Condition) else given
    return _Reader(field).condition(wanted, MAX_DEPTH)


def condition_json(condition: Condition) -> dict[str, Any]:
    """Return a condition as JSON, from which `condition_of` makes the same one."""
    return _json(condition, MAX_DEPTH, "condition")


def _json(condition: Condition, room: int, field: str) -> dict[str, Any]:
    if room == 0:
        raise _too_deep(field)
    match condition:
        case Every():
            return {"and": [_json(part, room - 1, field) for part in condition.parts]}
        case Some():
            return {"or": [_json(part, room - 1, field) for part in condition.parts]}
        case Not():
            return {"not": _json(condition.part, room - 1, field)}
        case Comparison():
            return _test_json(condition)
        case _:
            raise ValidationError(f"{field} contains something that is not a condition", field=field)


def _test_json(test: Comparison) -> dict[str, Any]:
    body = {test.operator: test.value}
    if test.sized:
        body = {"size": body}
    path = spelled(test.path)
    if isinstance(path, str) and path not in _WORDS:
        return {path: body}
    return {"path": list(test.path), **body}


def _too_deep(field: str) -> ValidationError:
    return ValidationError(f"{field} is nested deeper than {MAX_DEPTH} levels", field=field)


class _Reader:
    """A reader of one condition, which counts its comparisons and bytes."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._tests = 0
        self._bytes = 0

    def condition(self, given: object, room: int) -> Condition:
        if room == 0:
            raise _too_deep(self._field)
        if not isinstance(given, Mapping) or not given:
            raise self._refused('must be an object such as {"score": {"gt": 5}}')
        if isinstance(given.get("path"), (str, list, tuple)):
            path = path_of(given["path"], field=self._field)
            body = {name: value for name, value in given.items() if name != "path"}
            parts: list[Condition] = list(self._body(path, body))
        else:
            parts = [part for name, body in given.items() for part in self._member(name, body, room)]
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _member(self, name: object, body: object, room: int) -> Iterator[Condition]:
        if name == "not":
            yield Not(self.condition(body, room - 1))
        elif name in {"and", "or"}:
            if not isinstance(body, (list, tuple)) or not body:
                raise self._refused(f"{name} takes a list of conditions")
            parts = tuple(self.condition(part, room - 1) for part in body)
            yield Every(parts) if name == "and" else Some(parts)
        else:
            yield from self._body(path_of(name, field=self._field), body)

    def _body(self, path: Path, body: object) -> Iterator[Comparison]:
        for name, value in self._operators(body):
            if name == "size":
                for inner, bound in self._operators(value):
                    if inner not in _SIZED:
                        raise self._refused(f"size has no operator {rules.shown(inner)}: {', '.join(_SIZED)}")
                    yield self._test(path, inner, bound, sized=True)
            else:
                yield self._test(path, name, value)

    def _operators(self, body: object) -> list[tuple[Any, Any]]:
        if not isinstance(body, Mapping) or not body:
            raise self._refused('must state what must hold at each path, such as {"gt": 5}')
        return list(body.items())

    def _test(self, path: Path, name: str, value: Any, *, sized: bool = False) -> Comparison:
        if name not in _OPERANDS:
            raise self._refused(f"has no operator {rules.shown(name)}; it has size, {', '.join(_OPERANDS)}")
        self._bytes += rules.encode_value(value, most=rules.MAX_VALUE_BYTES, field=self._field)[1]
        if self._bytes > rules.MAX_VALUE_BYTES:
            raise ValueTooLarge(
                f"The values in {self._field} have more than {rules.MAX_VALUE_BYTES} bytes", field=self._field
            )
        legal, wanted = _OPERANDS[name]
        if not legal(value):
            raise self._refused(f"{name} takes {wanted}, not {rules.kind_of(value)}")
        self._count(len(value) if name == "in" else 1)
        if name in _OPPOSITE and value is False:
            return Comparison(path, _OPPOSITE[name], True)
        return Comparison(path, name, value, sized)

    def _count(self, tests: int) -> None:
        self._tests += tests
        if self._tests > MAX_TESTS:
            raise self._refused(f"makes more than {MAX_TESTS} comparisons")

    def _refused(self, why: str) -> ValidationError:
        return ValidationError(f"{self._field} {why}", field=self._field)


def _anything(value: Any) -> bool:
    return True


def _orderable(value: Any) -> bool:
    return type_of(value) in {"number", "string"}


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0


def _is_pair(value: Any) -> bool:
    return _is_list(value) and len(value) == 2 and all(map(_orderable, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_type(value: Any) -> bool:
    return value in TYPES


_WORDS: Final = frozenset({"and", "or", "not"})
_OPPOSITE: Final = {"exists": "not_exists", "not_exists": "exists"}
_SIZED: Final = ("eq", "ne", "lt", "lte", "gt", "gte", "between", "in")
_ORDERABLE: Final = (_orderable, "a number or text")
_OPERANDS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "eq": (_anything, ""),
    "ne": (_anything, ""),
    "lt": _ORDERABLE,
    "lte": _ORDERABLE,
    "gt": _ORDERABLE,
    "gte": _ORDERABLE,
    "between": (_is_pair, "a list of two numbers or texts"),
    "in": (_is_list, "a list of values"),
    "begins_with": (_is_text, "text"),
    "contains": (_anything, ""),
    "exists": (_is_switch, "true or false"),
    "not_exists": (_is_switch, "true or false"),
    "type": (_is_type, f"one of {', '.join(TYPES)}"),
}
"""The operators, with the check of their operand and its description."""
