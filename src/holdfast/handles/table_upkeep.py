"""Work on a table that takes longer than a transaction: backfilling, sweeping and checking.

Law: the work is done in bounded steps, and other tasks get their turns between them. Everything is written by
commands, like any other change.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.commands import Removed
from holdfast.handles.table_reads import AT_ONCE, Shown, is_of_entry, items_of, pages
from holdfast.rows import Address
from holdfast.tables.commands import ExpireItems, FillIndex
from holdfast.tables.indexes import IndexEntry, entry_of, item_key_of
from holdfast.tables.items import known_part
from holdfast.work import TEST, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.commands import Command, Result
    from holdfast.engine import Due
    from holdfast.tables.schema import Index, TableSchema

SWEEP: Final = 100
"""Number of expired items that one sweep removes."""
CHUNK: Final = 8
"""Number of expired items per command. Other callers get their turn between commands."""
TOGETHER: Final = 4
"""Number of these commands that share a commit. The items they remove are loaded and journaled."""


class Source(Shown, Protocol):
    """The parts of a store that a writing walk uses."""

    async def due(self, namespace: str, space: str, limit: int) -> list[Due]:
        """Find rows of a space that are past their deadline."""
        ...

    async def call(self, command: Command) -> Result:
        """Execute a command."""
        ...


async def fill_index(source: Source, namespace: str, schema: TableSchema, index: Index) -> None:
    """Backfill an index with the items that existed before it was created."""
    async for found in pages(source.scan, namespace, schema.item_space):
        command = FillIndex(
            namespace=namespace,
            table=schema.name,
            space=schema.item_space,
            index_id=index.id,
            keys=tuple(found.keys),
            last=not found.more,
        )
        await source.call(command)


async def sweep(source: Source, namespace: str, schema: TableSchema) -> int:
    """Remove at most 100 expired items. Returns the number removed."""
    due = await source.due(namespace, schema.item_space, SWEEP)
    commands = [
        expiry_of(namespace, schema, due[start : start + CHUNK]) for start in range(0, len(due), CHUNK)
    ]
    removed = 0
    for start in range(0, len(commands), TOGETHER):
        some = commands[start : start + TOGETHER]
        removed += sum(await asyncio.gather(*(_removed(source, command) for command in some)))
    return removed


def expiry_of(namespace: str, schema: TableSchema, due: Sequence[Due]) -> ExpireItems:
    """Return the command that expires items if they are still due when it is executed."""
    keys = tuple(row.key for row in due if isinstance(row.key, bytes))
    return ExpireItems(namespace=namespace, table=schema.name, space=schema.item_space, keys=keys)


async def _removed(source: Source, command: ExpireItems) -> int:
    result = await source.call(command)
    assert isinstance(result, Removed)
    return result.count


async def check_index(
    source: Shown, namespace: str, schema: TableSchema, index: Index
) -> dict[str, int | bool]:
    """Check that an index has exactly the entries that the items call for.

    Writes continue meanwhile, so an apparent error is checked again by reading item and entry at one instant.
    """
    items = entries = missing = extra = 0
    work = Work(sys.maxsize)
    async for page in pages(source.scan, namespace, schema.item_space):
        wanted = [entry_of(known_part(row, schema), schema, index) for row in page.rows]
        there = [entry for entry in wanted if entry is not None]
        found = await source.rows([Address(namespace, entry.space, entry.key) for entry in there])
        items += len(page.rows)
        for entry, row in zip(there, found, strict=True):
            missing += row is None and await _disagree(source, namespace, schema, index, entry)
    async for page in pages(source.scan, namespace, schema.index_space(index)):
        entries += len(page.rows)
        for start in range(0, len(page.rows), AT_ONCE):
            some = page.rows[start : start + AT_ONCE]
            found = await items_of(source, namespace, schema, some)
            for key, entry_row, row in zip(page.keys[start:], some, found, strict=False):
                work.spend(TEST if row is None else row.size // 2)
                if work.pausing():
                    await asyncio.sleep(0)
                if not is_of_entry(row, schema, index, key):
                    entry = IndexEntry(
                        space=schema.index_space(index),
                        key=key,
                        item_key=item_key_of(entry_row.value or ""),
                        expires_at=None,
                    )
                    extra += await _disagree(source, namespace, schema, index, entry)
    return {
        "consistent": not missing and not extra,
        "items": items,
        "entries": entries,
        "missing": missing,
        "extra": extra,
    }


async def _disagree(
    source: Shown, namespace: str, schema: TableSchema, index: Index, entry: IndexEntry
) -> bool:
    """Return True if, at one instant, an entry exists that its item does not call for, or the reverse."""
    item, found = await source.rows(
        [Address(namespace, schema.item_space, entry.item_key), Address(namespace, entry.space, entry.key)]
    )
    return (found is None) == is_of_entry(item, schema, index, entry.key)
