"""When conditions hold, and how they are said in Python and in JSON.

The model below is written from what the documentation says of conditions as JSON; it shares no code with the
one that it judges.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.tables.conditions import (
    Comparison,
    Condition,
    Every,
    Not,
    attr,
    condition_json,
    condition_of,
    holds,
)
from holdfast.testing.exact import refusal
from tests.unit.tables.samples import EXAMPLES

NOTHING = object()


def model(condition: dict[str, Any], item: dict[str, Any]) -> bool:
    """Whether an item meets a condition that has one member, or a path and one operator."""
    if "path" in condition:
        found: Any = item
        for step in condition["path"]:
            try:
                found = found[step] if isinstance(found, (dict, list)) else NOTHING
            except (KeyError, IndexError, TypeError):
                found = NOTHING
        (operator,) = condition.keys() - {"path"}
        return compared(found, operator, condition[operator])
    if "not" in condition:
        return not model(condition["not"], item)
    if "and" in condition:
        return not [part for part in condition["and"] if not model(part, item)]
    return [part for part in condition["or"] if model(part, item)] != []


def compared(found: Any, operator: str, value: Any) -> bool:
    """What an operator says of what was found."""
    if operator == "exists":
        return value is (found is not NOTHING)
    if operator == "not_exists":
        return value is (found is NOTHING)
    if found is NOTHING:
        return False
    if operator == "size":
        ((operator, value),) = value.items()
        return isinstance(found, (str, list, dict)) and compared(len(found), operator, value)
    if operator in {"lt", "lte", "gt", "gte"}:
        return (
            kind(found) == kind(value) and kind(found) in {str, Decimal} and ordered(found, operator, value)
        )
    if operator == "between":
        return compared(found, "gte", value[0]) and compared(found, "lte", value[1])
    if operator == "begins_with":
        return isinstance(found, str) and value in [found[:end] for end in range(len(found) + 1)]
    if operator == "contains":
        if isinstance(found, str):
            return isinstance(value, str) and found.find(value) >= 0
        return isinstance(found, list) and canonical(value) in [canonical(member) for member in found]
    if operator == "in":
        return canonical(found) in [canonical(member) for member in value]
    if operator == "type":
        words = {str: "string", Decimal: "number", bool: "boolean", list: "list", dict: "object"}
        return str(value) == words.get(kind(found), "null")
    return (operator == "eq") is bool(canonical(found) == canonical(value))


def kind(value: Any) -> type:
    """The type of a JSON value; numbers have one."""
    return Decimal if type(value) in {int, float} else type(value)


def canonical(value: Any) -> Any:
    """A form in which two JSON values are equal if they are the same."""
    if isinstance(value, list):
        return ["list", *(canonical(member) for member in value)]
    if isinstance(value, dict):
        return sorted((name, repr(canonical(member))) for name, member in value.items())
    return [str(kind(value)), Decimal(value) if kind(value) is Decimal else value]


def ordered(found: Any, operator: str, value: Any) -> bool:
    """How two numbers or two texts compare."""
    one: Any = found.encode() if isinstance(found, str) else Decimal(found)
    other: Any = value.encode() if isinstance(value, str) else Decimal(value)
    return (
        (one < other and "lt" in operator)
        or (one > other and "gt" in operator)
        or (one == other and operator.endswith("e"))
    )


VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, -2, 0.5, 2**53, 2.0**53, 2**53 + 1, 10**400, "", "a", "ab", "b", "é"),
    *([], [1], [True], ["a"], [1, "a"], [[1.0]], {}, {"a": 1}, {"a": 1.0, "b": [None]}),
]
ORDERABLE = [value for value in VALUES if kind(value) in {str, Decimal}]
OPERANDS: dict[str, list[Any]] = {
    **dict.fromkeys(["eq", "ne", "contains"], VALUES),
    **dict.fromkeys(["lt", "lte", "gt", "gte"], ORDERABLE),
    "between": [[0, 1], [1, 0], ["a", "b"], [1, "b"], [2.0**53, 2**53]],
    "in": [[1, "a"], [True, [1]], [{"a": 1}, None]],
    "begins_with": ["", "a", "ab"],
    "exists": [True, False],
    "not_exists": [True, False],
    "type": ["string", "number", "boolean", "null", "list", "object"],
    "size": [{"eq": 1}, {"gt": 0}, {"in": [0, 2.0]}, {"between": [1, 1]}, {"lt": "a"}, {"ne": None}],
}
COMPARISONS = [
    {"path": path, name: value}
    for name, values in OPERANDS.items()
    for value in values
    for path in (["a"], ["b", 0])
]
ITEMS = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from(VALUES), "b": st.lists(st.sampled_from(VALUES))}
)
conditions = st.recursive(
    st.sampled_from(COMPARISONS),
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([{"and": parts}, {"or": parts}, {"not": parts[0]}])
    ),
    max_leaves=4,
)


def test_every_operator_on_every_kind_of_value() -> None:
    """An operator holds for a value, or for none, when the documentation says so, and never fails."""
    for comparison in COMPARISONS:
        condition = condition_of(comparison)
        for item in [{}, *({name: [value]} | {"a": value} for value in VALUES for name in "ab")]:
            assert holds(condition, item) == model(comparison, item), (comparison, item)


@EXAMPLES
@given(conditions, st.lists(ITEMS, min_size=1, max_size=4))
def test_conditions_hold_as_documented(given: dict[str, Any], drawn: list[dict[str, Any]]) -> None:
    """A condition holds when the documentation says so, never fails, and is the same after it was sent."""
    condition = condition_of(given)
    for item in drawn:
        assert holds(condition, item) == model(given, item)
    sent = msgspec.json.decode(msgspec.json.encode(condition_json(condition)))
    assert condition_of(sent) == condition == condition_of(condition)


def test_python_conditions_equal_json_conditions() -> None:
    """Everything that can be said in JSON can be said in Python."""
    a = attr("a")
    said = {
        "eq": a.eq(1),
        "ne": a.ne(1),
        "lt": a.lt(1),
        "lte": a.lte(1),
        "gt": a.gt(1),
        "gte": a.gte(1),
        "between": a.between(1, 2),
        "in": a.in_((1, 2)),
        "begins_with": a.begins_with("x"),
        "contains": a.contains("x"),
        "exists": a.exists(),
        "not_exists": a.not_exists(),
        "type": a.type_is("list"),
    }
    value: dict[str, Any] = {
        "between": [1, 2],
        "in": [1, 2],
        "begins_with": "x",
        "contains": "x",
        "type": "list",
    }
    value |= {"exists": True, "not_exists": True}
    for name, condition in said.items():
        assert condition_json(condition) == {"a": {name: value.get(name, 1)}}
        assert condition_of(condition) == condition
    assert condition_json(a.size().gte(3)) == {"a": {"size": {"gte": 3}}}


def test_conditions_combine_with_and_or_and_not() -> None:
    """Conditions are combined with `&`, `|` and `~`, and what is combined alike stays flat."""
    a, b, c = (attr(name).exists() for name in "abc")
    shown = [{name: {"exists": True}} for name in "abc"]
    assert condition_json(a & b & c) == condition_json(a & (b & c)) == {"and": shown}
    assert condition_json(a | b | c) == {"or": shown}
    assert condition_json((a & b) | ~c) == {"or": [{"and": shown[:2]}, {"not": shown[2]}]}
    assert ~~a == a
    assert holds(attr("score").gt(5) & ~attr("x").exists(), {"score": 6})
    assert not holds(attr("score").gt(5) & ~attr("x").exists(), {"score": 6, "x": None})


def test_all_members_of_a_condition_must_hold() -> None:
    """All members of an object and all operators of a path must hold."""
    condition = condition_of({"score": {"gt": 5, "lt": 9}, "meta.closed": {"exists": False}})
    assert holds(condition, {"score": 7})
    for item in ({"score": 5}, {"score": 9}, {"score": 7, "meta": {"closed": False}}, {}):
        assert not holds(condition, item)
    sized = condition_of({"name": {"size": {"gt": 1, "lt": 4}}})
    assert [holds(sized, {"name": "é" * count}) for count in (1, 2, 3, 4)] == [False, True, True, False]


@pytest.mark.parametrize("name", ["and", "or", "not", "path", "a.b", "a[0]", "size", "eq"])
def test_attribute_names_may_be_words_of_the_language(name: str) -> None:
    """An attribute of any name can be asked for, also one that is a word of the language."""
    condition = condition_of(attr([name]).eq(1))
    assert holds(condition, {name: 1})
    assert not holds(condition, {name: 2})
    assert condition_of(condition_json(condition)) == condition


def test_missing_item_has_no_attributes() -> None:
    """What is not there has no attributes."""
    assert holds(attr("a").not_exists(), None)
    assert not holds(attr("a").ne(1), None)
    assert holds(~attr("a").eq(1), None)
    assert condition_of({"a": {"not_exists": False}}) == attr("a").exists()


def test_types_do_not_mix() -> None:
    """A boolean is no number, text is no number, and nothing of two types is less or equal."""
    mixed: list[tuple[Any, Any]] = [(True, 1), (0, False), ("1", 1), (None, 0), ([1], [True])]
    mixed += [({"a": 1}, {"a": True})]
    for one, other in mixed:
        assert not holds(attr("a").eq(other), {"a": one})
        assert holds(attr("a").ne(other), {"a": one})
    unordered: list[Any] = [True, None, "1", [1], {}]
    assert not any(holds(attr("a").lt(9), {"a": one}) for one in unordered)


NESTED_65: dict[str, Any] = {"a": {"eq": 1}}
for _ in range(64):
    NESTED_65 = {"not": NESTED_65}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "must be an object"),
        ({}, "must be an object"),
        ([], "must be an object"),
        ("a > 1", "must be an object"),
        ({"a": 1}, "what must hold"),
        ({"a": {}}, "what must hold"),
        ({"a": {"size": 3}}, "what must hold"),
        ({"path": ["a"]}, "what must hold"),
        ({"path": [], "eq": 1}, "for a path"),
        ({"a..b": {"eq": 1}}, "holds the path 'a..b'"),
        ({5: {"eq": 1}}, "holds 5 for a path"),
        ({"a": {"like": 1}}, "has no operator 'like'"),
        ({"a": {5: 1}}, "has no operator 5"),
        ({"a": {"size": {"exists": True}}}, "size has no operator 'exists'"),
        ({"and": []}, "and takes a list of conditions"),
        ({"or": {"a": {"eq": 1}}}, "or takes a list of conditions"),
        ({"not": []}, "must be an object"),
        ({"and": [{"a": {"eq": 1}}, 5]}, "must be an object"),
        ({"a": {"lt": True}}, "lt takes a number or text, not true or false"),
        ({"a": {"gte": None}}, "gte takes a number or text"),
        ({"a": {"between": [1]}}, "between takes a list of two"),
        ({"a": {"between": [1, None]}}, "between takes a list of two"),
        ({"a": {"between": 1}}, "between takes a list of two"),
        ({"a": {"in": []}}, "in takes a list"),
        ({"a": {"in": "abc"}}, "in takes a list"),
        ({"a": {"begins_with": 1}}, "begins_with takes text"),
        ({"a": {"exists": 1}}, "exists takes true or false"),
        ({"a": {"not_exists": None}}, "not_exists takes true or false"),
        ({"a": {"type": "text"}}, "type takes one of string"),
        ({"a": {"type": ["list"]}}, "type takes one of string"),
        ({"a": {"eq": float("nan")}}, "NaN"),
        ({"a": {"eq": b"x"}}, "bytes"),
        ({"a": {"in": [0] * 1001}}, "more than 1000 comparisons"),
        ({"and": [{"a": {"eq": 1}}] * 1001}, "more than 1000 comparisons"),
        (NESTED_65, "deeper than 64"),
        (Condition(), "not a condition"),
        (Every(()), "and takes a list of conditions"),
        (attr("a").lt(None), "lt takes a number or text"),
    ],
)
def test_illegal_conditions_are_refused(wrong: object, words: str) -> None:
    """What is no condition is refused with the field and what is wrong, also when it was made in Python."""
    with refusal(ValidationError, field="filter", says=words):
        condition_of(wrong, field="filter")


def test_condition_size_is_limited() -> None:
    """A condition nests 64 levels, has 1,000 comparisons and 64 KB of values, and no more."""
    deepest = NESTED_65["not"]
    assert holds(condition_of(deepest), {"a": 2})
    assert holds(condition_of({"a": {"in": list(range(1000))}}), {"a": 999})
    long = attr("a").exists()
    for _ in range(5_000):
        long = Not(Every((long,)))
    with refusal(ValidationError, field="condition", says="deeper than 64"):
        condition_of(long)
    large = "x" * 40_000
    with refusal(ValueTooLarge, field="condition", says="65536"):
        condition_of({"a": {"eq": large}, "b": {"eq": large}})
    with refusal(ValueTooLarge, field="condition", says="Condition size"):
        condition_of({"a": {"eq": large * 2}})
    with refusal(ValidationError, field="path"):
        attr("a..b")


def test_evaluating_a_non_condition_raises() -> None:
    """An object that is no condition raises an error instead of counting as a condition that fails."""
    with pytest.raises(TypeError, match="no condition"):
        holds(Condition(), {})
    assert isinstance(attr("a").exists(), Comparison)
