"""Journal details of a change of an item: its name, and its images before and after.

Law: a name consists of the table's name and the values of the key, as JSON. Images are items as stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from holdfast.rows import Row
    from holdfast.tables.schema import TableSchema


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
