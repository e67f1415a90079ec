"""Hypothesis strategies for what a store takes: keys, values, semantics and ttls.

Everything that `keys`, `values` and `semantics` draw is valid, and every kind of valid input can be drawn.
The strategies do not use `rules`, so that `rules` can be tested with them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
_EDGES = [
    "%",
    "_",
    "*",
    "\\",
    "\x01",
    "\x7f",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
    "e\u0301",
]


def keys() -> st.SearchStrategy[str]:
    """Draw any key: 1 to 255 characters of valid text without U+0000, with a bias towards awkward ones."""
    pieces = st.sampled_from(_EDGES) | st.text(_CHARACTERS, min_size=1, max_size=8)
    return st.lists(pieces, min_size=1, max_size=8).map("".join) | st.text(
        _CHARACTERS, min_size=1, max_size=255
    )


def values() -> st.SearchStrategy[Any]:
    """Draw any JSON value, of a size that is always valid."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    long = st.integers(min_value=1 - 10**4300, max_value=10**4300 - 1)
    numbers = st.integers() | long | st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | numbers | text
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=6,
    )


def semantics() -> st.SearchStrategy[dict[str, Any]]:
    """Draw any semantics, as an object."""
    identity = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)
    return st.fixed_dictionaries(
        {},
        optional={
            "purpose": st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True),
            "producer": identity,
            "consumer_hints": st.lists(st.text(_CHARACTERS, max_size=100), max_size=16),
            "ttl_seconds": st.integers(1, 2_147_483_647),
        },
    )


def ttls() -> st.SearchStrategy[int | None]:
    """Draw any ttl."""
    return st.none() | st.integers(1, 2_147_483_647)
