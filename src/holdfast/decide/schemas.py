"""The definitions of tables, as rows.

Law: a definition is found by its table's name and by nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import DatabaseError, TableNotFound
from holdfast.rows import TABLE, Address, Row
from holdfast.tables.schema import TableSchema

if TYPE_CHECKING:
    from holdfast.decide.draft import Draft


def schema_address(namespace: str, table: str) -> Address:
    """Where the definition of a table is."""
    return Address(namespace, TABLE, table.encode())


@lru_cache(maxsize=1024)
def schema_of(text: str) -> TableSchema:
    """The definition in the value of a row."""
    try:
        return msgspec.json.decode(text, type=TableSchema)
    except msgspec.DecodeError:
        raise DatabaseError("the stored definition of a table can't be read") from None


def defined(row: Row | None, table: str) -> TableSchema:
    """The definition in a row.

    Raises:
        TableNotFound: There is no such table.
    """
    if row is None:
        raise TableNotFound(f"table {table!r} does not exist", field="table")
    return schema_of(row.value or "")


def table_of(draft: Draft, table: str) -> TableSchema:
    """The definition of a table as the commands so far have left it."""
    return defined(draft.row(schema_address(draft.name, table)), table)


def put_table(draft: Draft, schema: TableSchema) -> None:
    """Define a table, or define it anew."""
    value = msgspec.json.encode(schema)
    row = Row(
        value=value.decode(),
        size=len(value),
        version=draft.namespace.revision,
        created_at=schema.created_at,
        updated_at=draft.now,
    )
    draft.put(schema_address(draft.name, schema.name), row)
