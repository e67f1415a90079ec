"""Which keys a query walks.

A range is tested by the keys that are in it, against what the condition says of the values.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.tables.keys import Range, beginning_with, encode_key, sort_range, successor
from holdfast.testing.exact import refusal
from tests.unit.tables.samples import EXAMPLES, VALUES, base64_of, kinds

if TYPE_CHECKING:
    from holdfast.tables.keys import KeyType

OPERATORS = ["eq", "lt", "lte", "gt", "gte", "between", "begins_with"]


def within(key: bytes, found: Range) -> bool:
    """Whether an engine that walks the range comes by a key."""
    return found.start <= key and (found.stop is None or key < found.stop)


def meets(value: Any, operator: str, operand: Any) -> bool:
    """What a condition on a sort key means."""
    match operator:
        case "eq":
            return bool(value == operand)
        case "lt":
            return bool(value < operand)
        case "lte":
            return bool(value <= operand)
        case "gt":
            return bool(value > operand)
        case "gte":
            return bool(value >= operand)
        case "between":
            return bool(operand[0] <= value <= operand[1])
        case _:
            return bool(value.startswith(operand))


@EXAMPLES
@given(st.data(), kinds, kinds)
def test_a_range_holds_exactly_what_it_should(data: st.DataObject, first: KeyType, second: KeyType) -> None:
    """A condition finds those items of its partition whose sort key meets all of it, and no other item."""
    partitions = data.draw(st.lists(VALUES[first], min_size=1, max_size=3))
    values = data.draw(st.lists(VALUES[second], min_size=1, max_size=6))
    condition: dict[str, Any] = {}
    for operator in data.draw(st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=2, unique=True)):
        operand = st.sampled_from(values) | VALUES[second]
        if operator != "begins_with":
            condition[operator] = data.draw(st.tuples(operand, operand) if operator == "between" else operand)
        elif second != "number":
            condition[operator] = data.draw(operand)[: data.draw(st.integers(0, 2))]
    condition = condition or {"gte": values[0]}
    asked = encode_key(partitions[0], first, field="partition_key")
    found = sort_range(asked, second, condition)
    for partition in partitions:
        for value in values:
            key = encode_key(partition, first, field="") + encode_key(value, second, field="")
            wanted = partition == partitions[0] and all(meets(value, *one) for one in condition.items())
            assert within(key, found) == wanted, (partition, value, condition)
            assert within(key, beginning_with(asked)) == (partition == partitions[0])
            assert within(key, beginning_with(b""))


AWKWARD: dict[KeyType, list[Any]] = {
    "string": ["", "\x00", "\x00\x01", "\x01", "a", "a\x00", "ab", "b", "é"],
    "number": [-(2**60), -1.5, -1, 0, 0.5, 1, 2**53, 2**53 + 1, 1e300],
    "binary": [b"", b"\x00", b"\x00\xff", b"\x01", b"\x01\x02", b"a", b"\xff", b"\xff\xff"],
}


@pytest.mark.parametrize("kind", AWKWARD)
def test_every_operator_on_awkward_values(kind: KeyType) -> None:
    """Each operator finds what it should among values that begin with each other or lie close together."""
    values = AWKWARD[kind]
    conditions = [(name, value) for name in OPERATORS[:5] for value in values]
    conditions += [("between", pair) for pair in itertools.product(values, values)]
    conditions += [("begins_with", value) for value in values if kind != "number"]
    keys = [(first, value) for first in values[:3] for value in values]
    encoded = [encode_key(one, kind, field="") + encode_key(two, kind, field="") for one, two in keys]
    for operator, operand in conditions:
        found = sort_range(encode_key(values[1], kind, field=""), kind, {operator: operand})
        wanted = [first == values[1] and meets(value, operator, operand) for first, value in keys]
        assert [within(key, found) for key in encoded] == wanted, (operator, operand)


def test_no_range_holds_what_contradicts_itself() -> None:
    """A condition that nothing can meet finds nothing and is no error."""
    found = sort_range(b"p", "number", {"between": [9, 1]})
    assert found.stop is not None
    assert found.start >= found.stop


@pytest.mark.parametrize(
    ("prefix", "following"),
    [(b"", None), (b"\xff\xff", None), (b"a", b"b"), (b"a\xff", b"b"), (b"a\x00", b"a\x01")],
)
def test_successor_is_the_first_key_after_a_prefix(prefix: bytes, following: bytes | None) -> None:
    """The keys that begin with some bytes end before the next bytes that do not."""
    assert successor(prefix) == following


def test_range_reaches_the_end_of_the_space() -> None:
    """A range goes to the end of the space where no bytes follow those of its partition."""
    assert sort_range(b"\xff", "string", {"gt": "a"}) == Range(b"\xffa\x00\x00", None)


@pytest.mark.parametrize(
    ("kind", "condition", "words"),
    [
        ("number", None, "must be an object"),
        ("number", {}, "must be an object"),
        ("number", 5, "must be an object"),
        ("number", {"ne": 5}, "has no operator 'ne'"),
        ("number", {7: 5}, "has no operator 7"),
        ("number", {"eq": "a"}, "must be a number"),
        ("string", {"gt": 5}, "must be a string"),
        ("number", {"between": 5}, "list of two"),
        ("number", {"between": [1]}, "list of two"),
        ("number", {"between": [1, "a"]}, "must be a number"),
        ("number", {"begins_with": 1}, "begins_with is for a string or a binary"),
        ("string", {"begins_with": 1}, "must be a string"),
        ("string", {"begins_with": "a" * 1025}, "at most 1024"),
        ("binary", {"begins_with": "a"}, "must be a binary"),
    ],
)
def test_condition_of_another_type_is_refused(kind: KeyType, condition: object, words: str) -> None:
    """A condition that the sort key can't meet by its type is refused, with the field."""
    with refusal(ValidationError, field="sort_key_condition", says=words):
        sort_range(b"", kind, condition)


def test_binary_condition_takes_base64() -> None:
    """Over the wire a condition on a binary names base64."""
    for plain in (b"", b"\x00a", b"\xff\xff"):
        for operator in ("eq", "begins_with"):
            assert sort_range(b"", "binary", {operator: plain}) == sort_range(
                b"", "binary", {operator: base64_of(plain)}
            )
