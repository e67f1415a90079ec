"""Creating and dropping tables, and creating, filling and dropping their indexes.

A table's definition is one row, and its id is never reused, so that remains of a dropped table can't appear
in a new one of the same name. Work that takes longer than a transaction is done in parts, and a row records
what is left to do: any process may continue it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.commands import Removed
from holdfast.decide.audit import audit
from holdfast.decide.draft import Draft, Needs
from holdfast.decide.entries import abandon, count_part
from holdfast.decide.items import count_item, put_entry
from holdfast.decide.schemas import put_table, schema_address, table_of
from holdfast.decide.weights import row_weight
from holdfast.errors import TableExists
from holdfast.rows import DROPPED, PARTS, Address, Record, Row
from holdfast.tables.commands import (
    CreateIndex,
    CreateTable,
    Defined,
    DropIndex,
    DropTable,
    FillIndex,
    Purge,
    TableChange,
)
from holdfast.tables.indexes import entry_of
from holdfast.tables.items import known_part
from holdfast.tables.schema import Index, TableSchema, with_index, without_index


def _create(draft: Draft, command: CreateTable) -> Defined:
    if draft.row(schema_address(draft.name, command.table)) is not None:
        raise TableExists(f"table {command.table!r} already exists", field="table")
    version = draft.version()
    schema = msgspec.structs.replace(command.schema, id=version, created_at=draft.now)
    put_table(draft, schema)
    _audit(draft, command, "table_created", None)
    return Defined(schema, version)


def _drop(draft: Draft, command: DropTable) -> Defined:
    schema = table_of(draft, command.table)
    before = draft.row(schema_address(draft.name, command.table))
    version = draft.version()
    draft.put(schema_address(draft.name, command.table), None)
    _audit(draft, command, "table_dropped", before)
    abandon(draft, schema.item_space)
    for index in schema.indexes:
        abandon(draft, schema.index_space(index))
    return Defined(schema, version)


def _create_index(draft: Draft, command: CreateIndex) -> Defined:
    """Begin an index, or continue an unfinished one with the same name and key."""
    schema = table_of(draft, command.table)
    for index in schema.indexes:
        if (index.name, index.key, index.state) == (command.index, command.key, "building"):
            return Defined(schema, draft.namespace.revision)
    before = draft.row(schema_address(draft.name, command.table))
    version = draft.version()
    schema = with_index(schema, Index(name=command.index, key=command.key, id=version))
    put_table(draft, schema)
    _audit(draft, command, "index_created", before)
    return Defined(schema, version)


def _drop_index(draft: Draft, command: DropIndex) -> Defined:
    before, row = table_of(draft, command.table), draft.row(schema_address(draft.name, command.table))
    schema = without_index(before, command.index)
    version = draft.version()
    put_table(draft, schema)
    _audit(draft, command, "index_dropped", row)
    abandon(draft, before.index_space(before.index(command.index)))
    return Defined(schema, version)


def _fill_index(draft: Draft, command: FillIndex) -> Removed:
    """Add existing items to an index. Returns the number added.

    Nothing is added to an index that was dropped or completed in the meantime.
    """
    row = draft.row(schema_address(draft.name, command.table))
    schema = None if row is None else table_of(draft, command.table)
    index = None if schema is None else _by_id(schema, command.index_id)
    if schema is None or index is None or index.state == "ready" or schema.item_space != command.space:
        return Removed(0)
    count = 0
    for key in command.keys:
        stored = draft.row(Address(draft.name, command.space, key))
        if stored is None or not stored.alive(draft.now):
            continue
        entry = entry_of(known_part(stored, schema), schema, index)
        if entry is not None:
            put_entry(draft, entry, stored, there=True if stored.version > index.id else None)
            count += 1
    if command.last:
        draft.version()
        put_table(draft, with_index(schema, msgspec.structs.replace(index, state="ready")))
    return Removed(count)


def _purge(draft: Draft, command: Purge) -> Removed:
    """Remove rows of a dropped space. Rows of any other space are kept."""
    marker = Address(draft.name, DROPPED, command.space.encode())
    if draft.row(marker) is None:
        return Removed(0)
    count = 0
    for key in command.keys:
        address = Address(draft.name, command.space, key)
        row = draft.row(address)
        if row is None:
            continue
        if command.space.startswith("item/"):
            count_item(draft, key, row, adds=-1)
        elif command.space.startswith(PARTS):
            count_part(draft, key, row, adds=-1)
        else:
            draft.namespace.index_bytes -= row_weight(key, row)
        draft.put(address, None)
        count += 1
    if command.last:
        draft.put(marker, None)
    return Removed(count)


def _audit(draft: Draft, command: TableChange, op: str, before: Row | None) -> None:
    """Record a new definition in the audit. One record of a drop covers all items of the table."""
    record = Record(
        namespace=draft.name,
        version=draft.namespace.revision,
        op=op,
        key=command.table,
        at=draft.now,
        last_writer=command.origin.writer,
        request_id=command.origin.request_id,
    )
    after = draft.row(schema_address(draft.name, command.table))
    audit(draft, record, before, after, spec_ref=command.origin.spec_ref)


def _by_id(schema: TableSchema, number: int) -> Index | None:
    return next((index for index in schema.indexes if index.id == number), None)


def _needs_table(needs: Needs, command: Any) -> None:
    needs.row(schema_address(command.namespace, command.table), value=True)


def _needs_items(needs: Needs, command: FillIndex) -> None:
    _needs_table(needs, command)
    for key in command.keys:
        needs.row(Address(command.namespace, command.space, key), value=True)


def _needs_rows(needs: Needs, command: Purge) -> None:
    needs.row(Address(command.namespace, DROPPED, command.space.encode()))
    for key in command.keys:
        needs.row(Address(command.namespace, command.space, key))


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    CreateTable: _needs_table,
    DropTable: _needs_table,
    CreateIndex: _needs_table,
    DropIndex: _needs_table,
    FillIndex: _needs_items,
    Purge: _needs_rows,
}
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {
    CreateTable: _create,
    DropTable: _drop,
    CreateIndex: _create_index,
    DropIndex: _drop_index,
    FillIndex: _fill_index,
    Purge: _purge,
}
