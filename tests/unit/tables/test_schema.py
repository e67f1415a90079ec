"""What a table is, and the keys of its items.

What a caller gives is tested by the schema or the key that it becomes, or by the words that refuse it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import IndexNotFound, ValidationError, ValueTooLarge
from holdfast.tables.items import encode_item, key_of, keyed_item, named_key, partition_of
from holdfast.tables.keys import encode_key
from holdfast.tables.schema import (
    MAX_INDEXES,
    STREAMS,
    Index,
    KeyAttribute,
    TableSchema,
    index_name,
    key_attribute,
    table_name,
    table_schema,
    with_index,
    without_index,
)
from holdfast.testing.exact import refusal
from tests.unit.tables.samples import events


@pytest.mark.parametrize(
    "given",
    [("at", "number"), ["at", "number"], {"name": "at", "type": "number"}, KeyAttribute("at", "number")],
)
def test_key_is_given_as_pair_or_object(given: object) -> None:
    """The attribute of a key is given as a pair or as an object with name and type."""
    assert key_attribute(given, field="sort_key") == KeyAttribute("at", "number")


def test_a_schema_is_kept_as_json() -> None:
    """A schema comes back from the JSON that it is stored as."""
    index = Index(name="by_tag", key=KeyAttribute("tag", "string"), id=9, state="ready")
    schema = msgspec.structs.replace(with_index(events(), index), id=7, created_at=1)
    assert msgspec.json.decode(msgspec.json.encode(schema), type=TableSchema) == schema


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"partition_key": "user"}, "partition_key", "must be a name and a type"),
        ({"partition_key": None}, "partition_key", "must be a name and a type"),
        ({"partition_key": ("user",)}, "partition_key", "must be a name and a type"),
        ({"partition_key": {"name": "user"}}, "partition_key", "must be a name and a type"),
        ({"partition_key": ("user", "text")}, "partition_key", "one of string, number, binary"),
        ({"partition_key": ("user", ["string"])}, "partition_key", "has the type a list"),
        ({"partition_key": (1, "string")}, "partition_key", "text of 1 to 255"),
        ({"sort_key": ("", "string")}, "sort_key", "text of 1 to 255"),
        ({"sort_key": ("a" * 256, "string")}, "sort_key", "text of 1 to 255"),
        ({"sort_key": ("\ud800", "string")}, "sort_key", "surrogate"),
        ({"sort_key": ("user", "number")}, "sort_key", "the partition key 'user' again"),
        ({"ttl_attribute": 1}, "ttl_attribute", "text of 1 to 255"),
        ({"ttl_attribute": "at"}, "ttl_attribute", "part of the key"),
        ({"stream": "all"}, "stream", "one of keys, new, old, both"),
    ],
)
def test_illegal_schemas_are_refused(changes: dict[str, Any], field: str, words: str) -> None:
    """A table that is not described rightly is refused, with the part that is wrong."""
    with refusal(ValidationError, field=field, says=words):
        events(**changes)


def test_table_and_index_names_have_1_to_100_characters() -> None:
    """Tables and indexes have names of 1 to 100 letters, digits, `_`, `.` and `-`."""
    for name in ("a", "A-9_.x", "a" * 100):
        assert table_name(name) == index_name(name) == name
    for wrong in ("", "a" * 101, "a b", "é", "a/b", "a\n", None, 5):
        with refusal(ValidationError, field="table", says="1 to 100", about=wrong):
            table_schema(wrong, partition_key=("a", "string"))
        with refusal(ValidationError, field="index", says="1 to 100", about=wrong):
            index_name(wrong)


def test_key_attributes_may_have_any_name() -> None:
    """The attributes of a key may have any name that JSON has; dots in it are dots."""
    schema = table_schema("t", partition_key=("a.b\x00[é", "string"))
    assert key_of({"a.b\x00[é": "x"}, schema) == encode_key("x", "string", field="")


def test_journal_keeps_both_images_by_default() -> None:
    """The journal keeps both images of an item unless the table says otherwise."""
    assert events().stream == "both"
    assert [events(stream=view).stream for view in STREAMS] == ["keys", "new", "old", "both"]


def test_indexes_can_be_added_and_dropped() -> None:
    """A table has several indexes, each of its own name; one that is made again is another one."""
    tag = KeyAttribute("tag", "string")
    schema = with_index(events(), Index(name="a", key=tag, id=1))
    schema = with_index(schema, Index(name="b", key=tag, id=2))
    schema = with_index(schema, Index(name="a", key=tag, id=1, state="ready"))
    assert [(index.name, index.state) for index in schema.indexes] == [("b", "building"), ("a", "ready")]
    assert schema.index("a").state == "ready"
    with refusal(ValidationError, field="index", says="already has an index 'a'"):
        with_index(schema, Index(name="a", key=tag, id=3))
    assert [index.name for index in without_index(schema, "a").indexes] == ["b"]
    with refusal(IndexNotFound, field="index", says="no index 'c'"):
        without_index(schema, "c")


def test_table_has_at_most_20_indexes() -> None:
    """A table has at most 20 indexes."""
    schema = events()
    for number in range(MAX_INDEXES):
        schema = with_index(schema, Index(name=f"i{number}", key=KeyAttribute("tag", "string"), id=number))
    with refusal(ValidationError, field="index", says="at most 20"):
        with_index(schema, Index(name="more", key=KeyAttribute("tag", "string"), id=99))


def test_spaces_are_never_used_twice() -> None:
    """A table or an index that is made anew under an old name does not find old rows."""
    one, other = (msgspec.structs.replace(events(), id=number) for number in (1, 2))
    tags = [Index(name="by_tag", key=KeyAttribute("tag", "string"), id=number) for number in (3, 4)]
    spaces = [one.item_space, other.item_space]
    spaces += [table.index_space(index) for table in (one, other) for index in tags]
    assert len(set(spaces)) == 6


def test_named_key_equals_the_key_of_its_item() -> None:
    """The key that a caller names is the key of the item with those attributes."""
    schema = events()
    _, item = keyed_item({"user": "alice", "at": 7.0, "score": 1}, schema)
    key, attributes = named_key(schema, "alice", 7)
    assert key == key_of(item, schema) == key_of(attributes, schema)
    assert attributes == {"user": "alice", "at": 7}
    assert key.startswith(partition_of(schema, "alice"))


def test_binary_key_accepts_bytes() -> None:
    """Bytes may be given for a binary of a key; the item holds their base64, and the given one stays."""
    schema = table_schema("t", partition_key=("id", "binary"), sort_key=("part", "binary"))
    given = {"id": b"\x00", "part": "/w==", "more": 1}
    _, item = keyed_item(given, schema)
    assert item == {"id": "AA==", "part": "/w==", "more": 1}
    assert given["id"] == b"\x00"
    assert named_key(schema, b"\x00", b"\xff") == (key_of(item, schema), {"id": "AA==", "part": "/w=="})


@pytest.mark.parametrize(
    ("item", "field", "words"),
    [
        ({"at": 7}, "item.user", "has no attribute 'user'"),
        ({"user": "alice"}, "item.at", "has no attribute 'at'"),
        ({"user": 1, "at": 7}, "item.user", "must be a string"),
        ({"user": b"a", "at": 7}, "item.user", "must be a string"),
        ({"user": "alice", "at": None}, "item.at", "must be a number"),
        ({"user": "a" * 1025, "at": 7}, "item.user", "1025 bytes encoded; at most 1024"),
        ([], "item", "must be an object"),
        (None, "item", "must be an object"),
    ],
)
def test_item_without_its_key_is_refused(item: object, field: str, words: str) -> None:
    """An item without the key of its table is refused, and the attribute named."""
    with refusal(ValidationError, field=field, says=words):
        keyed_item(item, events())


def test_key_with_wrong_values_is_refused() -> None:
    """A key is named with as many values as the table asks for, each of its type."""
    with refusal(ValidationError, field="partition_key", says="must be a string"):
        named_key(events(), 1, 7)
    with refusal(ValidationError, field="sort_key", says="must be a number"):
        named_key(events(), "alice", "7")
    with refusal(ValidationError, field="sort_key", says="none was given"):
        named_key(events(), "alice")
    with refusal(ValidationError, field="sort_key", says="has no sort key"):
        named_key(events(sort_key=None), "alice", 7)
    assert named_key(events(sort_key=None), "alice") == (b"alice\x00", {"user": "alice"})


def test_item_has_at_most_409600_bytes() -> None:
    """An item has at most 409,600 bytes in its compact form, and nests as deep as a value may."""
    text, size = encode_item({"a": "x" * (409_600 - 8)})
    assert (len(text), size) == (409_600, 409_600)
    with refusal(
        ValueTooLarge, field="item", says="Item size (409601 bytes) exceeds 400KB limit (409600 bytes)"
    ):
        encode_item({"a": "x" * (409_600 - 7)})
    deep: list[Any] = []
    for _ in range(64):
        deep = [deep]
    with refusal(ValidationError, field="item", says="nested deeper than 64"):
        encode_item({"a": deep})
    with refusal(ValidationError, field="item", says="surrogate"):
        encode_item({"a": "\ud800"})
