"""Entries of indexes: they change with the item that they point to.

Law: entries are written and removed without loading the existing ones, except where an index is newer than
the item and may not have its entry yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.rows import Address
from holdfast.tables.indexes import entry_changes, entry_of, entry_places, entry_weight, young_spaces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.decide.draft import Draft
    from holdfast.rows import Row
    from holdfast.tables.indexes import IndexEntry
    from holdfast.tables.schema import TableSchema


def remove_entries(
    draft: Draft, schema: TableSchema, item_key: bytes, *, before: Row, item: Mapping[str, Any]
) -> None:
    """Remove the entries of an item that is removed."""
    young = young_spaces(schema, before.version)
    for space, key in entry_places(item, schema, item_key):
        remove_entry(draft, Address(draft.name, space, key), item_key, sure=space not in young)


def update_entries(
    draft: Draft,
    schema: TableSchema,
    item_key: bytes,
    *,
    before: tuple[Row, Mapping[str, Any]] | None,
    after: tuple[Row, Mapping[str, Any]],
) -> None:
    """Update the entries of an item that is stored in place of another, or of none."""
    row, item = after
    changes = entry_changes(schema, None if before is None else before[1], item, item_key=item_key)
    young = set() if before is None else young_spaces(schema, before[0].version)
    for entry in changes.gone:
        at = Address(draft.name, entry.space, entry.key)
        remove_entry(draft, at, entry.item_key, sure=entry.space not in young)
    for entry in changes.put:
        if entry.space not in young:
            put_entry(draft, entry, row, there=entry in changes.moved)
    for index in schema.indexes if young else ():
        young_entry = entry_of(item, schema, index, item_key=item_key)
        if young_entry is not None and young_entry.space in young:
            put_entry(draft, young_entry, row, there=None)


def put_entry(draft: Draft, entry: IndexEntry, row: Row, *, there: bool | None) -> None:
    """Store an index entry. `there` says whether it replaces one; None if unknown."""
    address = Address(draft.name, entry.space, entry.key)
    if there is None:
        there = draft.look(address) is not None
    if not there:
        draft.namespace.index_bytes += entry_weight(entry.key, entry.item_key)
    draft.put(address, entry.row(row))


def remove_entry(draft: Draft, address: Address, item_key: bytes, *, sure: bool) -> None:
    """Remove an index entry; `sure` if it exists."""
    assert isinstance(address.key, bytes)
    if sure or draft.look(address) is not None:
        draft.namespace.index_bytes -= entry_weight(address.key, item_key)
    draft.remove_unseen(address)
