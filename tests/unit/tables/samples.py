"""What the tests of tables draw from: values of keys, items, and schemas.

Whatever is drawn is legal; nothing here asks the code under test.
"""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from holdfast.tables.keys import KeyType
from holdfast.tables.schema import TableSchema, table_schema

EXAMPLES = settings(deadline=None, derandomize=True, max_examples=60)

_floats = st.floats(allow_nan=False, allow_infinity=False)
_edges = st.sampled_from([2**53, -(2**53), 2**63, 10**22, 5e-324, 1.7e308, 0.1, 1.0, 127, 128, 10**2150])
numbers = (
    st.integers(-300, 300)
    | st.integers()
    | _floats
    | st.builds(lambda edge, step: edge + step, _edges, st.integers(-2, 2))
    | _floats.map(int)
    | st.builds(lambda digits, bits: digits << bits, st.integers(-99, 99), st.integers(0, 14_270))
)
texts = st.text(st.sampled_from("\x00\x01\x02ab\xff\U0010ffff"), max_size=4) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
)
binaries = st.binary(max_size=4) | st.lists(st.sampled_from(b"\x00\x01\x02\xff"), max_size=4).map(bytes)
VALUES: dict[KeyType, st.SearchStrategy[Any]] = {"string": texts, "number": numbers, "binary": binaries}
kinds: st.SearchStrategy[KeyType] = st.sampled_from(list(VALUES))

names = st.sampled_from(["a", "b", "c", "a.b", "", "é"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([1.0, 0.5, 2**53, 2.0**53, 2**53 + 1])
    | st.sampled_from(["", "a", "ab", "b", "aé"])
)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
items = st.dictionaries(names, json_values, max_size=4)
steps = names | st.integers(0, 3)
paths = st.builds(lambda first, rest: (first, *rest), names, st.lists(steps, max_size=2))


def base64_of(plain: bytes) -> str:
    """Bytes as an item holds them."""
    return base64.b64encode(plain).decode()


def events(**changes: Any) -> TableSchema:
    """A table with every kind of thing that a table can have."""
    given: dict[str, Any] = {
        "partition_key": ("user", "string"),
        "sort_key": ("at", "number"),
        "ttl_attribute": "expires",
    }
    return table_schema("events", **given | changes)
