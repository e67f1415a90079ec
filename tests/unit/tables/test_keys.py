"""Keys of items as bytes.

The order and equality of keys are tested against the values themselves, never against other bytes; a few
encodings are spelled out, since they are stored.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.tables.keys import MAX_KEY_BYTES, encode_key
from holdfast.testing.exact import refusal
from tests.unit.tables.samples import EXAMPLES, VALUES, base64_of, binaries, kinds, numbers, texts

if TYPE_CHECKING:
    from holdfast.tables.keys import KeyType


def key(value: object, kind: KeyType) -> bytes:
    """A value as bytes."""
    return encode_key(value, kind, field="partition_key")


@EXAMPLES
@given(st.lists(numbers, min_size=2, max_size=6))
def test_numbers_are_ordered_by_their_exact_values(drawn: list[int | float]) -> None:
    """Numbers are ordered and told apart by what they are exactly, whether whole or not."""
    for one, other in itertools.pairwise(drawn):
        a, b = key(one, "number"), key(other, "number")
        assert (a < b, a == b) == (Fraction(one) < Fraction(other), Fraction(one) == Fraction(other))


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "8000"),
        (1, "880000"),
        (1.5, "880080"),
        (-1, "77ffff"),
        (2**53 + 1, "88350101010101010110"),
        (0.1, "87fc99cd673399cd6740"),
        (5e-324, "83ce00"),
    ],
)
def test_encoding_of_numbers_is_fixed(number: float, encoded: str) -> None:
    """The bytes of a number are stored, so they stay as they are."""
    assert key(number, "number").hex() == encoded


def test_equal_numbers_have_the_same_key() -> None:
    """1 and 1.0 are the same key and so are 0 and -0.0; whole numbers past the doubles are not rounded."""
    assert key(1, "number") == key(1.0, "number")
    assert key(0, "number") == key(-0.0, "number") == key(0.0, "number")
    assert key(10**22, "number") == key(1e22, "number")
    assert key(2**53, "number") < key(2**53 + 1, "number") < key(2**53 + 2, "number")
    assert key(10**23, "number") != key(1e23, "number")


def test_numbers_of_all_sizes_are_ordered() -> None:
    """From the longest negative integer to the longest positive one, every step is a step."""
    large = [*(10**digits for digits in (0, 1, 2, 17, 308, 309, 1000, 2150)), 2**14_283]
    ladder = [-number for number in reversed(large)] + [-1e-9, -5e-324, 0, 5e-324, 2e-308, 0.1, 0.5] + large
    shuffled = random.Random(7).sample(ladder, len(ladder))
    assert sorted(shuffled, key=lambda number: key(number, "number")) == ladder


@EXAMPLES
@given(texts, texts, binaries, binaries)
def test_texts_and_binaries_are_ordered_by_their_bytes(one: str, other: str, a: bytes, b: bytes) -> None:
    """Texts are ordered by their UTF-8 and binaries by their bytes, also those that begin with each other."""
    assert (key(one, "string") < key(other, "string")) == (one.encode() < other.encode())
    assert (key(a, "binary") < key(b, "binary")) == (a < b)
    assert (key(a, "binary") == key(b, "binary")) == (a == b)


@EXAMPLES
@given(st.data(), kinds, kinds)
def test_keys_do_not_collide(data: st.DataObject, first: KeyType, second: KeyType) -> None:
    """Two items have the same key only if both of its values are the same."""
    one, other = (
        [data.draw(VALUES[first]), data.draw(VALUES[second])],
        [data.draw(VALUES[first]), data.draw(VALUES[second])],
    )
    a, b = (key(pair[0], first) + key(pair[1], second) for pair in (one, other))
    assert (a == b) == (one == other)
    assert (a < b) == (_ordered(one) < _ordered(other))


def _ordered(pair: list[Any]) -> list[Any]:
    return [value.encode() if isinstance(value, str) else value for value in pair]


def test_binary_is_base64_in_json() -> None:
    """A binary may be given as bytes or as their base64, of which only one spelling is taken."""
    assert key(b"\x00\xffa", "binary") == key(base64_of(b"\x00\xffa"), "binary")
    for spelling in ("YQ", "YR==", "Y Q==", "_w==", "é", "YQ==\n"):
        with refusal(ValidationError, field="partition_key", says="base64", about=spelling):
            key(spelling, "binary")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", [1, None, True, b"a", ["a"], {}]),
        ("number", ["1", None, True, False, b"1", [1], 1j]),
        ("binary", [1, None, True, [1], bytearray(b"a")]),
    ],
)
def test_key_rejects_values_of_another_type(kind: KeyType, values: list[object]) -> None:
    """A value of another type than the key's is refused, and the field named."""
    for value in values:
        with refusal(ValidationError, field="sort_key", says=f"must be a {kind}", about=value):
            encode_key(value, kind, field="sort_key")


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("\ud800", "string", "surrogate"),
        (float("nan"), "number", "NaN or Infinity"),
        (-float("inf"), "number", "NaN or Infinity"),
        (10**4300, "number", "4300 digits"),
        (-(10**4300), "number", "4300 digits"),
    ],
    ids=["surrogate", "nan", "infinity", "long", "long-negative"],
)
def test_key_rejects_values_without_a_json_form(value: object, kind: KeyType, words: str) -> None:
    """What no item can hold is no value of a key either."""
    with refusal(ValidationError, field="partition_key", says=words):
        key(value, kind)


@pytest.mark.parametrize(
    ("most", "more", "kind", "size"),
    [
        ("a" * 1024, "a" * 1025, "string", 1025),
        ("é" * 512, "é" * 513, "string", 1026),
        ("\x00" * 512, "\x00" * 513, "string", 1026),
        (b"\xff" * 1024, b"\x01" * 600, "binary", 1200),
        (2**7154 + 1, 2**7155 + 1, "number", 1025),
        (2**14_284 - 2**8_000, 10**4300 - 1, "number", 2043),
    ],
    ids=["ascii", "wide", "zeros", "binary", "bits", "digits"],
)
def test_key_value_has_at_most_1024_bytes(most: Any, more: Any, kind: KeyType, size: int) -> None:
    """A value takes at most 1,024 bytes in its encoded form; a larger one is refused with size and limit."""
    assert len(key(most, kind)) <= MAX_KEY_BYTES + (kind != "number")
    with refusal(
        ValidationError, field="partition_key", says=f"has {size} bytes encoded; at most 1024 are allowed"
    ):
        key(more, kind)
