"""Table schemas: the name, the attributes of the key and of the deadline, and the indexes.

A schema is legal by construction if the functions here made it from a caller's input. It is stored as
JSON. The attribute names in it are exactly those of an item's own members; they are not paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast import rules
from holdfast.errors import IndexNotFound, ValidationError
from holdfast.tables.keys import KEY_TYPES, KeyType

MAX_INDEXES: Final = 20
MAX_ATTRIBUTE_CHARACTERS: Final = 255
"""Maximum length of an attribute name in a schema."""

STREAMS: Final = ("keys", "new", "old", "both")
Stream: TypeAlias = Literal["keys", "new", "old", "both"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class KeyAttribute(msgspec.Struct, frozen=True):
    """An attribute by which items are found."""

    name: str
    type: KeyType


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index, which finds items by the value of one attribute. Items without a value are not in it.

    `id` is the version of the change that created it, so that a later index of the same name differs.
    """

    name: str
    key: KeyAttribute
    state: Literal["building", "ready"] = "building"
    id: int = 0


class TableSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A table. `id` is the version of the change that created it; `created_at` is in milliseconds since 1970.

    `stream` says which images of items the journal keeps.
    """

    name: str
    partition_key: KeyAttribute
    sort_key: KeyAttribute | None = None
    ttl_attribute: str | None = None
    stream: Stream = "both"
    indexes: tuple[Index, ...] = ()
    id: int = 0
    created_at: int = 0

    @property
    def key_attributes(self) -> tuple[KeyAttribute, ...]:
        """The attributes of the key, in order."""
        return (self.partition_key,) if self.sort_key is None else (self.partition_key, self.sort_key)

    @property
    def item_space(self) -> str:
        """The space of item rows. It is never that of a dropped table of the same name."""
        return f"item/{self.id}"

    def index_space(self, index: Index) -> str:
        """Return the space of an index's rows."""
        return f"index/{self.id}/{index.id}"

    def index(self, name: str) -> Index:
        """Return the index of a name.

        Raises:
            IndexNotFound: The table has no such index.
        """
        for index in self.indexes:
            if index.name == name:
                return index
        raise IndexNotFound(f"table {self.name!r} has no index {name!r}", field="index")


def table_name(given: object) -> str:
    """Return the name of a table."""
    return _name(given, "table")


def index_name(given: object) -> str:
    """Return the name of an index."""
    return _name(given, "index")


def key_attribute(given: object, *, field: str) -> KeyAttribute:
    """Return a key attribute, given as `("user", "string")` or `{"name": "user", "type": "string"}`."""
    match given:
        case KeyAttribute(name=name, type=kind) | (name, kind):
            pass
        case Mapping() if "name" in given and "type" in given:
            name, kind = given["name"], given["type"]
        case _:
            raise ValidationError(
                f'{field} must be a name and a type, such as ("user", "string") or '
                '{"name": "user", "type": "string"}',
                field=field,
            )
    if kind not in KEY_TYPES:
        raise ValidationError(
            f"{field} has the type {rules.shown(kind)}; it must be one of {', '.join(KEY_TYPES)}", field=field
        )
    return KeyAttribute(_attribute(name, field), kind)


def table_schema(
    name: object,
    *,
    partition_key: object,
    sort_key: object = None,
    ttl_attribute: object = None,
    stream: object = None,
) -> TableSchema:
    """Return the schema of a table that a caller describes.

    Raises:
        ValidationError: `field` names the part that is not legal.
    """
    schema = TableSchema(
        name=table_name(name),
        partition_key=key_attribute(partition_key, field="partition_key"),
        sort_key=None if sort_key is None else key_attribute(sort_key, field="sort_key"),
        ttl_attribute=None if ttl_attribute is None else _attribute(ttl_attribute, "ttl_attribute"),
        stream=stream_view(stream, field="stream"),
    )
    names = [attribute.name for attribute in schema.key_attributes]
    if len(set(names)) < len(names):
        raise ValidationError(f"sort_key must not be the partition key {names[0]!r} again", field="sort_key")
    if schema.ttl_attribute in names:
        raise ValidationError(
            f"ttl_attribute {schema.ttl_attribute!r} is part of the key, which can't change",
            field="ttl_attribute",
        )
    return schema


def stream_view(given: object, *, field: str) -> Stream:
    """Return which images of items are meant; both by default."""
    for view in STREAMS:
        if given == view:
            return view
    if given is None:
        return "both"
    raise ValidationError(
        f"{field} must be one of {', '.join(STREAMS)}, not {rules.shown(given)}", field=field
    )


def with_index(schema: TableSchema, index: Index) -> TableSchema:
    """Return the schema with this index, replacing the one with the same name and id, if any.

    Raises:
        ValidationError: Another index has that name, or there are too many.
    """
    others = tuple(other for other in schema.indexes if (other.name, other.id) != (index.name, index.id))
    if any(other.name == index.name for other in others):
        raise ValidationError(f"table {schema.name!r} already has an index {index.name!r}", field="index")
    if len(others) >= MAX_INDEXES:
        raise ValidationError(f"a table has at most {MAX_INDEXES} indexes", field="index")
    return msgspec.structs.replace(schema, indexes=(*others, index))


def without_index(schema: TableSchema, name: str) -> TableSchema:
    """Return the schema without the index of that name.

    Raises:
        IndexNotFound: The table has no such index.
    """
    gone = schema.index(name)
    return msgspec.structs.replace(schema, indexes=tuple(index for index in schema.indexes if index != gone))


def _name(given: object, field: str) -> str:
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise ValidationError(
            f"{field} {rules.shown(given)} must be 1 to 100 of the characters A-Z, a-z, 0-9, _, . and -",
            field=field,
        )
    return given


def _attribute(given: object, field: str) -> str:
    if not isinstance(given, str) or not 1 <= len(given) <= MAX_ATTRIBUTE_CHARACTERS:
        raise ValidationError(
            f"{field} names the attribute {rules.shown(given)}; a name is text of 1 to "
            f"{MAX_ATTRIBUTE_CHARACTERS} characters",
            field=field,
        )
    if any("\ud800" <= character <= "\udfff" for character in given):
        raise ValidationError(f"{field} names an attribute with a lone surrogate", field=field)
    return given
