"""The entries of items in indexes.

An entry is tested by whether a query for a value would find the item, and only it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DatabaseError, ValidationError
from holdfast.rows import Row
from holdfast.tables.indexes import IndexEntry, entry_changes, entry_of, index_range, item_key_of
from holdfast.tables.items import key_of
from holdfast.tables.keys import encode_key
from holdfast.tables.schema import Index, KeyAttribute, TableSchema, table_schema, with_index
from holdfast.testing.exact import refusal
from tests.unit.tables.samples import EXAMPLES, VALUES, base64_of, events, kinds

BY_TAG = Index(name="by_tag", key=KeyAttribute("tag", "string"), id=2)
BY_RANK = Index(name="by_rank", key=KeyAttribute("rank", "number"), id=3)
SCHEMA = msgspec.structs.replace(with_index(with_index(events(), BY_TAG), BY_RANK), id=1)
LARGEST_ENTRY = 2_704
"""What PostgreSQL takes as an entry of a B-tree."""


def item(**attributes: Any) -> dict[str, Any]:
    """An item of the table."""
    return {"user": "alice", "at": 7, **attributes}


def entry(attributes: dict[str, Any], index: Index = BY_TAG) -> IndexEntry:
    """The entry that an item must have."""
    found = entry_of(attributes, SCHEMA, index)
    assert found is not None
    return found


@EXAMPLES
@given(st.data(), kinds)
def test_a_query_finds_the_items_of_a_value(data: st.DataObject, kind: Any) -> None:
    """The entries of a value are one range, which holds no entry of another value; items keep their order."""
    index = Index(name="i", key=KeyAttribute("v", kind), id=9)
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=4))
    ats = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    drawn = [
        item(v=base64_of(value) if kind == "binary" else value, at=at)
        for value, at in zip(values, ats, strict=True)
    ]
    found = index_range(index, values[0])
    entries = [(value, made, entry(made, index)) for value, made in zip(values, drawn, strict=True)]
    for value, made, one in entries:
        assert (found.start <= one.key < (found.stop or b"")) == (value == values[0])
        assert item_key_of(one.value) == one.item_key == key_of(made, SCHEMA)
    same = [one for value, _, one in entries if value == values[0]]
    assert sorted(same, key=lambda one: one.key) == sorted(same, key=lambda one: one.item_key)


@pytest.mark.parametrize("tag", [None, 1, True, ["x"], "x" * 1025])
def test_items_without_a_value_are_not_in_the_index(tag: object) -> None:
    """An index holds the items whose attribute is of its type and can be asked for."""
    assert entry_of(item(tag=tag), SCHEMA, BY_TAG) is None
    assert entry_of(item(), SCHEMA, BY_TAG) is None


def test_query_for_an_impossible_value_is_refused() -> None:
    """A query for what no entry can have is refused."""
    with refusal(ValidationError, field="key_value", says="must be a string"):
        index_range(BY_TAG, 5)
    with refusal(ValidationError, field="key_value", says="at most 1024"):
        index_range(BY_TAG, "x" * 1025)


def _wide() -> TableSchema:
    return table_schema("t", partition_key=("p", "string"), sort_key=("s", "string"))


def test_every_entry_fits_a_tree() -> None:
    """The longest keys of items and entries leave room for the namespace and the space in an index of SQL."""
    longest = {"p": "p" * 1024, "s": "s" * 1024, "tag": "t" * 1024}
    schema = msgspec.structs.replace(_wide(), id=2**63 - 1)
    index = Index(name="i", key=KeyAttribute("tag", "string"), id=2**63 - 1)
    found = entry_of(longest, schema, index)
    assert found is not None
    beside = len("table/" + "p" * 100) + len(found.space) + 3 * 4 + 3 * 8
    assert max(len(found.key), len(key_of(longest, schema))) + beside <= LARGEST_ENTRY


def test_long_keys_are_told_apart() -> None:
    """Items whose keys differ only far behind, or that imitate a shortened key, have entries of their own."""
    schema = _wide()
    partition = "p" * 1024
    sorts = ["s" * length for length in range(20, 40)] + ["s" * 1023 + end for end in "abc"]
    made = [{"p": partition, "s": sort, "tag": "x"} for sort in sorts]
    entries = [entry_of(one, schema, BY_TAG) for one in made]
    assert (
        len({one.key for one in entries if one}) == len({one.item_key for one in entries if one}) == len(made)
    )
    ending = len(encode_key("x", "string", field=""))
    lengths = sorted({len(one.key) - ending for one in entries if one})
    assert lengths == [*range(1046, 1058)]


def test_index_entries_follow_changes_of_an_item() -> None:
    """An index entry is added where an item appears or moves, removed where it disappears or leaves, and
    otherwise left alone.
    """
    x, y, ranked = item(tag="x"), item(tag="y"), item(tag="x", rank=1)
    for before, after, gone, put in (
        (None, x, [], [entry(x)]),
        (x, None, [entry(x)], []),
        (x, y, [entry(x)], [entry(y)]),
        (x, x | {"more": 1}, [], []),
        (x, ranked, [], [entry(ranked, BY_RANK)]),
        (ranked, item(rank=1.0), [entry(x)], []),
        (None, item(), [], []),
        (None, None, [], []),
    ):
        changes = entry_changes(SCHEMA, before, after)
        assert (list(changes.gone), list(changes.put)) == (gone, put)


def test_entries_go_with_their_item() -> None:
    """An entry has the deadline of its item, and is written anew when that moves."""
    before, after = item(tag="x", expires=100), item(tag="x", expires=200)
    changes = entry_changes(SCHEMA, before, after)
    assert changes.gone == ()
    assert [one.expires_at for one in changes.put] == [200_000]
    assert entry_changes(SCHEMA, after, after).put == ()
    stored = Row(value="{}", size=2, version=5, created_at=1, updated_at=3, expires_at=100_000)
    row = entry(before).row(stored)
    assert (row.version, row.updated_at, row.expires_at) == (5, 3, 100_000)
    assert row.size == len(row.value or "")


def test_each_index_has_its_space() -> None:
    """Entries of two indexes are never in each other's way."""
    ranked = item(tag="x", rank=1)
    assert {one.space for one in entry_changes(SCHEMA, None, ranked).put} == {"index/1/2", "index/1/3"}


def test_unreadable_index_entry_is_an_error() -> None:
    """What is no entry is told as such."""
    for value in ("", "5", '"%"', "null"):
        with refusal(DatabaseError, says="can't be read", about=value):
            item_key_of(value)
