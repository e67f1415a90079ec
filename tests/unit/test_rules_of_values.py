"""What a value may be, and its compact form.

A value is tested by the text that it becomes, or by the words with which it is refused.
"""

from __future__ import annotations

import enum
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from holdfast import rules
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.rows import Row
from holdfast.stored import value_of
from holdfast.testing import strategies
from holdfast.testing.exact import refusal, same

if TYPE_CHECKING:
    from collections.abc import Callable


class Colour(enum.StrEnum):
    """An enumeration of texts."""

    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        ("é\x00", '"é\\u0000"'),
        ([1, (2, [])], "[1,[2,[]]]"),
        ({"b": 1, "a": {}}, '{"b":1,"a":{}}'),
        (Colour.RED, '"red"'),
    ],
)
def test_value_is_stored_in_its_compact_form(value: Any, text: str) -> None:
    """A value is stored in one compact form, whose size is that of its UTF-8."""
    assert rules.encode_value(value) == (text, len(text.encode()))


class Strange(str):
    """Text of somebody else's making."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "NaN or Infinity"),
        ([float("inf")], "NaN or Infinity"),
        ({"a": -float("inf")}, "NaN or Infinity"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (b"x", "bytes"),
        ({1: 2}, "name of type int"),
        ([object()], "object"),
        (Strange("x"), "JSON-serializable"),
    ],
)
def test_value_rejects_what_json_cannot_represent(value: Any, words: str) -> None:
    """A value that JSON can't represent is refused, at any depth."""
    with refusal(ValidationError, field="value", says=words):
        rules.encode_value(value)


def test_value_accepts_subclasses_of_text_as_names() -> None:
    """A name may be any text, such as a member of an enumeration, beside other names or alone."""

    class Name(StrEnum):
        TURN = "turn"

    assert rules.encode_value({Name.TURN: 1, "x": [2]}) == ('{"turn":1,"x":[2]}', 18)
    with refusal(ValidationError, field="value", says="name of type int"):
        rules.encode_value({Name.TURN: 1, 2: 3})


def test_value_accepts_integers_of_up_to_4300_digits() -> None:
    """Integers of up to 4,300 digits are legal, whatever their sign; longer ones are not."""
    for number, text in ((10**4300 - 1, "9" * 4300), (1 - 10**4300, "-" + "9" * 4300)):
        assert rules.encode_value(number) == (text, len(text))
        assert rules.increment(number) == number
    for number in (10**4300, -(10**4300), 2**14_285):
        with refusal(ValidationError, field="value", says="4300 digits"):
            rules.encode_value([number])
        with refusal(ValidationError, field="by", says="4300 digits"):
            rules.increment(number)


def test_value_rejects_a_loop_as_nested_too_deeply() -> None:
    """A value that holds itself is refused as nested too deeply, and does not cause an endless walk."""
    loop: list[Any] = []
    loop.append(loop)
    with refusal(ValidationError, field="value", says="64 levels"):
        rules.encode_value(loop)


@pytest.mark.parametrize(
    "wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (0, inner)]
)
def test_value_accepts_64_levels_and_rejects_65(wrap: Callable[[Any], Any]) -> None:
    """64 levels are legal, 65 are not."""
    value: Any = wrap(1)
    for _ in range(63):
        value = wrap(value)
    assert json.loads(rules.encode_value(value)[0]) is not None
    with refusal(ValidationError, field="value", says="64 levels"):
        rules.encode_value(wrap(value))


def test_value_size_is_left_to_the_policy_within_bounds() -> None:
    """A value is passed on for comparison with the policy, unless no policy allows nearly as much."""
    assert rules.encode_value("x" * 655_358)[1] == 655_360
    words = (
        "Value size (655361 bytes) exceeds 64KB limit (65536 bytes); "
        "a policy can raise it to at most 524288 bytes"
    )
    with refusal(ValueTooLarge, field="value", says=words) as caught:
        rules.encode_value("x" * 655_359)
    assert caught.value.message == words


@pytest.mark.unmeasured
@settings(deadline=None, derandomize=True, max_examples=100)
@given(value=strategies.values())
def test_every_json_value_comes_back_unchanged(value: Any) -> None:
    """Whatever JSON allows is legal, and is read again as exactly what it was."""
    text, size = rules.encode_value(value)
    assert size == len(text.encode())
    assert same(value_of("k", Row(value=text, size=size, version=1, created_at=0, updated_at=0)), value)


@pytest.mark.unmeasured
@settings(deadline=None, derandomize=True, max_examples=40)
@given(key=strategies.keys(), meaning=strategies.semantics(), ttl=strategies.ttls())
def test_rules_accept_every_legal_input_unchanged(key: str, meaning: dict[str, Any], ttl: int | None) -> None:
    """The rules refuse nothing that is legal, and change nothing of it."""
    assert rules.key(key) == key
    assert rules.ttl(ttl) == ttl
    checked = rules.semantics(meaning)
    for name, said in meaning.items():
        found = getattr(checked, name, ())
        assert list(found) == said if name == "consumer_hints" else found == said
