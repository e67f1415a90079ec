"""Validation of items and their keys.

Law: an item is a JSON object that contains the attributes of its key. Bytes are allowed for a binary in a key
and nowhere else; an item holds them as base64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.errors import ValidationError
from holdfast.stored import some_attributes
from holdfast.tables.keys import encode_key, json_key

if TYPE_CHECKING:
    from holdfast.rows import Row
    from holdfast.tables.schema import TableSchema

MAX_ITEM_BYTES: Final = 409_600


def keyed_item(given: object, schema: TableSchema) -> tuple[bytes, dict[str, Any]]:
    """Return the key of an item of a table, and the item with its binaries as base64.

    Raises:
        ValidationError: It is not an object, or an attribute of its key is missing or of another type.
    """
    if not isinstance(given, Mapping):
        raise ValidationError(f"item must be an object, not {rules.kind_of(given)}", field="item")
    item = dict(given)
    for attribute in schema.key_attributes:
        if attribute.name in item and attribute.type == "binary":
            item[attribute.name] = json_key(item[attribute.name])
    return key_of(item, schema), item


def require_binary(schema: TableSchema, names: Iterable[str]) -> None:
    """Check that every attribute given as bytes is a key of type binary.

    Raises:
        ValidationError: An attribute is not such a key. JSON can't represent bytes elsewhere.
    """
    keys = {attribute.name for attribute in schema.key_attributes if attribute.type == "binary"}
    for name in names:
        if name not in keys:
            raise ValidationError(
                f"item is not JSON-serializable: it holds bytes at {name!r}, which is not a key of type "
                "binary; give them as text, such as base64",
                field=f"item.{name}",
            )


def key_of(item: Mapping[str, Any], schema: TableSchema) -> bytes:
    """Return the key of an item.

    Raises:
        ValidationError: An attribute of it is missing, of another type or too large.
    """
    encoded = b""
    for attribute in schema.key_attributes:
        field = f"item.{attribute.name}"
        if attribute.name not in item:
            raise ValidationError(
                f"item has no attribute {attribute.name!r}, which the key of table {schema.name!r} needs",
                field=field,
            )
        encoded += encode_key(item[attribute.name], attribute.type, field=field)
    return encoded


def known_part(stored: Row | str, schema: TableSchema) -> dict[str, Any]:
    """Return the attributes of an item that its table uses: those of key, indexes and deadline.

    The others are skipped, which takes a fraction of the time to decode them.

    Raises:
        DatabaseError: The item can't be read.
    """
    names = {attribute.name for attribute in schema.key_attributes}
    names |= {index.key.name for index in schema.indexes}
    if schema.ttl_attribute is not None:
        names.add(schema.ttl_attribute)
    return some_attributes(stored if isinstance(stored, str) else stored.value or "", names)


def partition_of(schema: TableSchema, partition_key: object) -> bytes:
    """Return the prefix of the keys of all items in a partition."""
    return encode_key(partition_key, schema.partition_key.type, field="partition_key")


def named_key(
    schema: TableSchema, partition_key: object, sort_key: object = None
) -> tuple[bytes, dict[str, Any]]:
    """Return the key given by a caller, and the attributes of an item with that key.

    Raises:
        ValidationError: `field` is `partition_key` or `sort_key`, which is of another type, too large,
            missing, or not used by the table.
    """
    encoded = partition_of(schema, partition_key)
    attributes = {schema.partition_key.name: json_key(partition_key)}
    if schema.sort_key is None:
        if sort_key is not None:
            raise ValidationError(f"table {schema.name!r} has no sort key", field="sort_key")
        return encoded, attributes
    if sort_key is None:
        raise ValidationError(f"table {schema.name!r} has a sort key, but none was given", field="sort_key")
    encoded += encode_key(sort_key, schema.sort_key.type, field="sort_key")
    return encoded, attributes | {schema.sort_key.name: json_key(sort_key)}


def encode_item(item: Mapping[str, Any]) -> tuple[str, int]:
    """Return the compact form of an item, and its size in bytes.

    Raises:
        ValidationError: It contains a value that JSON can't represent, or is nested too deep.
        ValueTooLarge: It has more than `MAX_ITEM_BYTES`.
    """
    return rules.encode_value(item, most=MAX_ITEM_BYTES, field="item")
