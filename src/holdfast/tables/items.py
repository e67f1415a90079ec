"""Items: their keys, their deadlines, and their names and images in the journal.

An item is a JSON object that contains the attributes of its key. Bytes are allowed for a binary in a key and
nowhere else; an item holds them as base64.

An item is expired when its ttl attribute, in seconds since 1970, is a number other than 0 and not later than
now; any other item never expires. A stored deadline is in whole milliseconds and within the calendar, as
engines keep it.

The name of an item consists of the table's name and the values of the key, as JSON. Images are items as
stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import ValidationError
from holdfast.rows import Row
from holdfast.stored import some_attributes
from holdfast.tables.keys import encode_key, json_key
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


LAST_SECOND: Final = 253_402_214_400
"""The start of the last day of 9999. Python and databases can't represent every later date."""


def deadline_of(item: Mapping[str, Any], schema: TableSchema) -> int | None:
    """Return when an item expires, in milliseconds since 1970; None for never.

    A deadline before 1970 counts as reached. One past the calendar is never reached.
    """
    seconds = None if schema.ttl_attribute is None else item.get(schema.ttl_attribute)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds == 0:
        return None
    if seconds > LAST_SECOND:
        return None
    if seconds < 0:
        return 0
    if isinstance(seconds, int):
        return seconds * 1000
    # Exact arithmetic: a float product could be earlier than a `now` that precedes the attribute itself.
    return math.ceil(Fraction(seconds) * 1000)


def seconds_left(deadline: int | None, now: int) -> int | None:
    """Return the seconds until an item expires, rounded down but at least 1; 0 if expired, None if never.

    Times are in milliseconds. A deadline is rounded up to a whole second when it is set, so rounding down
    returns the number that the caller asked for.
    """
    if deadline is None:
        return None
    return max(1, (deadline - now) // 1000) if deadline > now else 0


def attribute_for(ttl_seconds: int, now: int) -> int:
    """Return the attribute's value for an item to live this long from `now`, which is in milliseconds."""
    return -(-now // 1000) + ttl_seconds


_NULL: Final = msgspec.Raw(b"null")


class Images(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item before and after a change as JSON; null where it did not exist."""

    old: msgspec.Raw = _NULL
    new: msgspec.Raw = _NULL

    @staticmethod
    def of(schema: TableSchema, before: Row | None, after: Row | None) -> str | None:
        """Return the images of a change for its record, as far as the table keeps them."""
        old = before if schema.stream in ("old", "both") else None
        new = after if schema.stream in ("new", "both") else None
        if old is None and new is None:
            return None
        return msgspec.json.encode(Images(old=_raw(old), new=_raw(new))).decode()


def item_name(schema: TableSchema, item: Mapping[str, Any]) -> str:
    """Return the name of an item in the journal."""
    key = [item[attribute.name] for attribute in schema.key_attributes]
    return table_prefix(schema.name) + msgspec.json.encode(key).decode()


def table_prefix(table: str) -> str:
    """Return the prefix of the names of all items of a table. No table name contains a colon."""
    return f"{table}:"


def key_of_name(name: str) -> list[Any]:
    """Return the values of the key in a name."""
    values: list[Any] = msgspec.json.decode(name.partition(":")[2])
    return values


def _raw(row: Row | None) -> msgspec.Raw:
    return _NULL if row is None else msgspec.Raw((row.value or "").encode())
