"""The definitions of tables, stored as rows.

A definition is found by its table's name only.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from holdfast.decide.draft import Draft
from holdfast.errors import DatabaseError, TableNotFound
from holdfast.rows import TABLE, Address, Row
from holdfast.tables.schema import TableSchema


def schema_address(namespace: str, table: str) -> Address:
    """Return the address of a table's definition."""
    return Address(namespace, TABLE, table.encode())


@lru_cache(maxsize=1024)
def schema_of(text: str) -> TableSchema:
    """Return the definition in the value of a row."""
    try:
        return msgspec.json.decode(text, type=TableSchema)
    except msgspec.DecodeError:
        raise DatabaseError("the stored definition of a table can't be read") from None


def defined(row: Row | None, table: str) -> TableSchema:
    """Return the definition in a row.

    Raises:
        TableNotFound: The table does not exist.
    """
    if row is None:
        raise TableNotFound(f"table {table!r} does not exist", field="table")
    return schema_of(row.value or "")


def table_of(draft: Draft, table: str) -> TableSchema:
    """Return the definition of a table as the commands so far have left it."""
    return defined(draft.row(schema_address(draft.name, table)), table)


def put_table(draft: Draft, schema: TableSchema) -> None:
    """Store the definition of a table, new or changed."""
    value = msgspec.json.encode(schema)
    row = Row(
        value=value.decode(),
        size=len(value),
        version=draft.namespace.revision,
        created_at=schema.created_at,
        updated_at=draft.now,
    )
    draft.put(schema_address(draft.name, schema.name), row)
