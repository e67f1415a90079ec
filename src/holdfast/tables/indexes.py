"""The entries of an item in the indexes of its table.

    key     the value of the indexed attribute, then the item's key (a long one: its beginning and a digest)
    value   the item's key

An entry depends on the item alone, so entries can be written without reading. An item has no entry
unless it has a value of the index's type that fits into a key. No query could ask for any other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import DatabaseError, ValidationError
from holdfast.rows import OVERHEAD, Row
from holdfast.tables.items import deadline_of, key_of
from holdfast.tables.keys import Range, beginning_with, encode_key
from holdfast.tables.schema import Index, TableSchema

_WHOLE: Final = 1_056
_BEGINNING: Final = 1_025
"""Sizes for long keys. A key of more than 1,056 bytes is stored as its first 1,025 and a digest of 32.

Together these are one byte longer than any key that is stored whole, so no two keys are the same.
"""


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of an index: its location, the key of its item, and the deadline of the item."""

    space: str
    key: bytes
    item_key: bytes
    expires_at: int | None

    @property
    def value(self) -> str:
        """The value of the row."""
        return f'"{base64.b64encode(self.item_key).decode()}"'

    def row(self, item: Row) -> Row:
        """Return the row of this entry for a stored item."""
        value = self.value
        return Row(
            value=value,
            size=len(value),
            version=item.version,
            created_at=item.updated_at,
            updated_at=item.updated_at,
            expires_at=self.expires_at,
        )


def young_spaces(schema: TableSchema, version: int) -> set[str]:
    """Return the indexes that are newer than an item. It may have no entry there yet."""
    return {schema.index_space(index) for index in schema.indexes if index.id > version}


def entry_weight(key: bytes, item_key: bytes) -> int:
    """Return the size that an entry counts for: that of its row, which has only a key and a value."""
    return OVERHEAD + len(key) + 2 + (len(item_key) + 2) // 3 * 4


class EntryChanges(msgspec.Struct, frozen=True):
    """The effect of a change of an item on indexes: entries to remove, and entries to store.

    `moved` are the entries to store that replace one with the same key.
    """

    gone: tuple[IndexEntry, ...]
    put: tuple[IndexEntry, ...]
    moved: tuple[IndexEntry, ...] = ()


def entry_of(
    item: Mapping[str, Any], schema: TableSchema, index: Index, *, item_key: bytes | None = None
) -> IndexEntry | None:
    """Return the entry of an item in an index; None if it has none. `item_key` is its key, if known."""
    if item_key is None:
        item_key = key_of(item, schema)
    key = entry_key(item, index, item_key)
    if key is None:
        return None
    return IndexEntry(
        space=schema.index_space(index),
        key=key,
        item_key=item_key,
        expires_at=deadline_of(item, schema),
    )


def entry_key(item: Mapping[str, Any], index: Index, item_key: bytes) -> bytes | None:
    """Return the key of the entry of an item in an index; None if it has none."""
    try:
        encoded = encode_key(item.get(index.key.name), index.key.type, field=index.key.name)
    except ValidationError:
        return None
    return encoded + _suffix(item_key)


def entry_places(
    item: Mapping[str, Any], schema: TableSchema, item_key: bytes
) -> Iterator[tuple[str, bytes]]:
    """Yield the spaces and keys of an item's entries in all indexes, to be removed with the item."""
    for index in schema.indexes:
        key = entry_key(item, index, item_key)
        if key is not None:
            yield schema.index_space(index), key


def entry_changes(
    schema: TableSchema,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    item_key: bytes | None = None,
) -> EntryChanges:
    """Return the index changes when an item is changed, created (from None) or removed (to None)."""
    old, new = _entries(before, schema, item_key), _entries(after, schema, item_key)
    return EntryChanges(
        gone=tuple(entry for place, entry in old.items() if place not in new),
        put=tuple(entry for place, entry in new.items() if old.get(place) != entry),
        moved=tuple(entry for place, entry in new.items() if place in old and old[place] != entry),
    )


def index_range(index: Index, key_value: object) -> Range:
    """Return the range of the entries of all items that have this value.

    Raises:
        ValidationError: The value is of another type, or too large.
    """
    return beginning_with(encode_key(key_value, index.key.type, field="key_value"))


def item_key_of(value: str) -> bytes:
    """Return the key of the item that an entry's row names.

    Raises:
        DatabaseError: It names none.
    """
    try:
        return msgspec.json.decode(value, type=bytes)
    except msgspec.DecodeError:
        raise DatabaseError("a stored entry of an index can't be read") from None


def _entries(
    item: Mapping[str, Any] | None, schema: TableSchema, item_key: bytes | None
) -> dict[tuple[str, bytes], IndexEntry]:
    if item is None:
        return {}
    entries = [entry_of(item, schema, index, item_key=item_key) for index in schema.indexes]
    return {(entry.space, entry.key): entry for entry in entries if entry is not None}


def _suffix(item_key: bytes) -> bytes:
    if len(item_key) <= _WHOLE:
        return item_key
    return item_key[:_BEGINNING] + hashlib.sha256(item_key).digest()
