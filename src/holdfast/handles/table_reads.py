"""Reads of tables that every walk is made of: definitions, rows in steps, and the items of an index.

Law: a step reads a bounded number of rows. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from holdfast import rules
from holdfast.decide.schemas import defined, schema_address, schema_of
from holdfast.engine import Scan, Scanned
from holdfast.rows import TABLE, Address
from holdfast.tables.indexes import entry_of, item_key_of
from holdfast.tables.items import known_part
from holdfast.tables.ranges import Range

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.rows import Row
    from holdfast.tables.schema import Index, TableSchema

Scanning: TypeAlias = Callable[[Scan], Awaitable[Scanned]]

STEP: Final = 250
"""Number of rows read at a time."""
AT_ONCE: Final = 16
"""Number of items that are read by key at a time, since each may be large."""
ALL: Final = Range(b"", None)
"""The range of all keys."""


class Shown(Protocol):
    """The reads that a read-only walk uses."""

    async def scan(self, query: Scan) -> Scanned:
        """Read rows of a range of keys."""
        ...

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read the rows at these addresses. Returns None for each that is absent or expired."""
        ...


async def schema_at(source: Shown, namespace: str, table: str) -> TableSchema:
    """Return the definition of a table.

    Raises:
        TableNotFound: There is no such table.
    """
    [row] = await source.rows([schema_address(namespace, table)])
    return defined(row, table)


async def tables_at(scan: Scanning, namespace: str) -> list[TableSchema]:
    """Return the definitions of all tables, by name."""
    found = [row async for page in pages(scan, namespace, TABLE) for row in page.rows]
    return [schema_of(row.value or "") for row in found]


def step(
    namespace: str, space: str, after: bytes | None, keys: Range = ALL, *, reverse: bool = False
) -> Scan:
    """Return the query for the next rows of a walk.

    It reads values too, because their size limits the number of rows.
    """
    return Scan(
        namespace=namespace,
        space=space,
        start=keys.start,
        stop=keys.stop,
        after=after,
        limit=STEP,
        max_bytes=2 * rules.MAX_TRANSFER_BYTES,
        values=True,
        reverse=reverse,
    )


async def pages(scan: Scanning, namespace: str, space: str) -> AsyncIterator[Scanned]:
    """Walk through a space, step by step."""
    after: bytes | None = None
    more = True
    while more:
        found = await scan(step(namespace, space, after))
        yield found
        more = found.more
        after = found.keys[-1] if found.keys else None


async def items_of(
    source: Shown, namespace: str, schema: TableSchema, entries: Sequence[Row]
) -> list[Row | None]:
    """Return the items that entries of an index lead to. Returns None for each that is absent or expired."""
    keys = [item_key_of(row.value or "") for row in entries]
    return await source.rows([Address(namespace, schema.item_space, key) for key in keys])


def is_of_entry(row: Row | None, schema: TableSchema, index: Index, key: bytes) -> bool:
    """Return True if an entry leads to this item, which may have changed since the entry was read."""
    if row is None:
        return False
    entry = entry_of(known_part(row, schema), schema, index)
    return entry is not None and entry.key == key
