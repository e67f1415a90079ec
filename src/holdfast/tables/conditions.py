"""Conditions on items, for writes and as filters: made in Python, evaluated, and written as JSON.

    attr("score").gt(5) & ~attr("meta.closed").exists()

    {"score": {"gt": 5, "lt": 9}, "meta.closed": {"not_exists": true}}        all must hold
    {"or": [{"tags": {"contains": "x"}}, {"not": {"name": {"size": {"gte": 3}}}}]}
    {"path": ["a.b", 0], "eq": 1}                                             a path as a list of steps

Every condition of a caller passes through `condition_of`, including one made in Python, so that its
evaluation is bounded and it can be sent. `and`, `or` and `not` are reserved words; an attribute of such a
name needs the form with `path`.

Whether a condition holds depends on the item alone. Evaluation fails only if it costs too much, which is
counted by the data examined (`holdfast.work`). A missing attribute meets no comparison, not even `ne`. Values
of different types are not equal, and neither is less than the other; a boolean is not a number; numbers are
compared exactly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import rules
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.tables.paths import MISSING, Path, lookup, path_of, shown, spelled
from holdfast.work import NODE, STEP, TEST, TEXT, Work, searching


class Condition(msgspec.Struct, frozen=True, tag=True):
    """A condition on an item. Combine conditions with `&`, `|` and `~`."""

    def __and__(self, other: Condition) -> Condition:
        return Every((*_members(self, Every), *_members(other, Every)))

    def __or__(self, other: Condition) -> Condition:
        return Some((*_members(self, Some), *_members(other, Some)))

    def __invert__(self) -> Condition:
        return self.part if isinstance(self, Not) else Not(self)


class Every(Condition, frozen=True, tag=True):
    """A condition that holds if all of its parts hold."""

    parts: tuple[Condition, ...]


class Some(Condition, frozen=True, tag=True):
    """A condition that holds if at least one of its parts holds."""

    parts: tuple[Condition, ...]


class Not(Condition, frozen=True, tag=True):
    """A condition that holds if its part does not."""

    part: Condition


class Comparison(Condition, frozen=True, tag=True):
    """A comparison of the value at a path, or of its size if `sized`, with a value."""

    path: Path
    operator: str
    value: Any
    sized: bool = False

    def __str__(self) -> str:
        return f"{self.operator} at {shown(self.path)}"


class Attribute(msgspec.Struct, frozen=True):
    """The value at a path of an item, or its size, for use in conditions. Get one from `holdfast.attr`."""

    path: Path
    sized: bool = False

    def eq(self, value: Any) -> Condition:
        """Require the same JSON value; 1 and 1.0 are the same.

        Args:
            value: The value.

        Returns:
            The condition.
        """
        return self._test("eq", value)

    def ne(self, value: Any) -> Condition:
        """Require that there is a value, and that it is another one.

        Args:
            value: The other value.

        Returns:
            The condition.
        """
        return self._test("ne", value)

    def lt(self, value: Any) -> Condition:
        """Require a number that is less, or text that comes before.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("lt", value)

    def lte(self, value: Any) -> Condition:
        """Require a number or text that is less or equal.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("lte", value)

    def gt(self, value: Any) -> Condition:
        """Require a number that is greater, or text that comes after.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("gt", value)

    def gte(self, value: Any) -> Condition:
        """Require a number or text that is greater or equal.

        Args:
            value: A number or text.

        Returns:
            The condition.
        """
        return self._test("gte", value)

    def between(self, low: Any, high: Any) -> Condition:
        """Require a number or text within bounds.

        Args:
            low: The least value that is allowed.
            high: The greatest value that is allowed.

        Returns:
            The condition.
        """
        return self._test("between", [low, high])

    def in_(self, values: Sequence[Any]) -> Condition:
        """Require one of several values.

        Args:
            values: The values.

        Returns:
            The condition.
        """
        return self._test("in", list(values))

    def begins_with(self, text: str) -> Condition:
        """Require text with this beginning.

        Args:
            text: The beginning.

        Returns:
            The condition.
        """
        return self._test("begins_with", text)

    def contains(self, value: Any) -> Condition:
        """Require text that contains this text, or a list that has this member.

        Args:
            value: The text or the member.

        Returns:
            The condition.
        """
        return self._test("contains", value)

    def exists(self) -> Condition:
        """Require that there is a value, which may be null."""
        return self._test("exists", True)

    def not_exists(self) -> Condition:
        """Require that there is no value."""
        return self._test("not_exists", True)

    def type_is(self, name: str) -> Condition:
        """Require a type.

        Args:
            name: `string`, `number`, `boolean`, `null`, `list` or `object`.

        Returns:
            The condition.
        """
        return self._test("type", name)

    def size(self) -> Attribute:
        """Get the number of a text's characters, or of a list's or object's members, for a condition."""
        return Attribute(self.path, sized=True)

    def _test(self, name: str, value: Any) -> Condition:
        return Comparison(self.path, name, value, self.sized)


def attr(path: str | Sequence[str | int]) -> Attribute:
    """Get the value at a path of an item, for use in a condition.

    Args:
        path: Text such as `meta.tag` or `list[0].x`, or a list of steps.

    Returns:
        The attribute, whose methods make conditions.

    Raises:
        ValidationError: The path is not legal.

    Example:
        `condition = holdfast.attr("score").gt(5) & ~holdfast.attr("meta.closed").exists()`
    """
    return Attribute(path_of(path, field="path"))


def _members(condition: Condition, kind: type[Every | Some]) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, kind) else (condition,)


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
    value = MISSING if item is None else lookup(item, test.path)
    if test.operator in _PRESENCE:
        return (value is MISSING) == (test.operator == "not_exists")
    if test.sized:
        value = len(value) if isinstance(value, (str, list, tuple, Mapping)) else MISSING
    return value is not MISSING and OPERATORS[test.operator](value, test.value, work)


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
    text = _json(given, MAX_DEPTH, field) if isinstance(given, Condition) else given
    return _Reader(field).condition(text, MAX_DEPTH)


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
        legal, operand = _OPERANDS[name]
        if not legal(value):
            raise self._refused(f"{name} takes {operand}, not {rules.kind_of(value)}")
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
