"""Walks over tables: queries, scans, and the work on a table that takes longer than a transaction.

Law: a walk looks at so many rows and no more before it returns, with a cursor where it goes on. What is found
is what was there when it was looked at; whatever is written is asked for by commands like any other change.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast import rules
from holdfast.commands import Removed
from holdfast.decide.schemas import defined, schema_address, schema_of
from holdfast.engine import Scan
from holdfast.errors import Busy, ValidationError
from holdfast.model import Item, ItemPage, item_of
from holdfast.rows import TABLE, Address
from holdfast.tables.commands import ExpireItems, FillIndex
from holdfast.tables.conditions import holds
from holdfast.tables.indexes import IndexEntry, entry_of, index_range, item_key_of
from holdfast.tables.projection import project
from holdfast.tables.ranges import Range

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.commands import Command, Result
    from holdfast.engine import Due, Scanned
    from holdfast.rows import Row
    from holdfast.tables.conditions import Condition
    from holdfast.tables.paths import Path
    from holdfast.tables.schema import Index, TableSchema

STEP: Final = 250
"""How many rows are looked at at a time."""
PART: Final = 2_000_000
"""How many bytes of rows a page may look at; one that finds too little among them is short."""
LEAST: Final = 400
"""What the smallest row counts for: so a page looks at 5,000 rows at the most."""
_ALL: Final = Range(b"", None)
SWEEP: Final = 100
"""How many expired items one sweep removes."""
CHUNK: Final = 8
"""How many of them go in one command: they share a commit, and others get their turn between them."""


class Shown(Protocol):
    """What a walk that only reads needs."""

    async def scan(self, query: Scan) -> Scanned:
        """Rows of a range of keys."""
        ...

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """The rows at these addresses that are alive."""
        ...


class Source(Shown, Protocol):
    """What a walk needs of a store that also writes."""

    async def due(self, namespace: str, space: str, limit: int) -> list[Due]:
        """Rows of a space that are past their deadline."""
        ...

    async def execute(self, command: Command) -> Result:
        """Have a command done."""
        ...


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shall hold."""

    limit: int
    after: bytes | None = None
    reverse: bool = False
    filter: Condition | None = None
    projection: tuple[Path, ...] | None = None


async def schema_at(source: Shown, namespace: str, table: str) -> TableSchema:
    """The definition of a table.

    Raises:
        TableNotFound: There is no such table.
    """
    [row] = await source.rows([schema_address(namespace, table)])
    return defined(row, table)


async def tables_at(source: Shown, namespace: str) -> list[TableSchema]:
    """The definitions of all tables, by name."""
    return [schema_of(row.value or "") async for _, row in _walk(source, namespace, TABLE)]


async def page_of_items(
    source: Shown, namespace: str, schema: TableSchema, keys: Range, wanted: Wanted
) -> ItemPage:
    """Items of a range of keys, in their order."""
    items: list[Item] = []
    after, looked, room = wanted.after, 0, rules.MAX_TRANSFER_BYTES
    while True:
        found = await source.scan(_step(namespace, schema.item_space, keys, after, wanted.reverse))
        for key, row in zip(found.keys, found.rows, strict=True):
            item = item_of(row)
            if wanted.filter is None or holds(wanted.filter, item.value):
                room -= row.size + 64
                if len(items) == wanted.limit or (items and room < 0):
                    return _page(items, after, schema.id)
                items.append(_shown(item, wanted))
            after = key
        looked += sum(max(row.size, LEAST) for row in found.rows)
        if not found.more:
            return _page(items, None, schema.id)
        if looked >= PART:
            return _page(items, after, schema.id)


async def page_of_index(
    source: Shown, namespace: str, schema: TableSchema, index: Index, *, key_value: object, wanted: Wanted
) -> ItemPage:
    """Items that have this value in an index, in the order of their keys.

    Raises:
        Busy: The index has not been filled yet.
    """
    if index.state != "ready":
        raise Busy(f"index {index.name!r} of table {schema.name!r} is still being filled", retry_after=1.0)
    keys, space = index_range(index, key_value), schema.index_space(index)
    items: list[Item] = []
    after, looked, room = wanted.after, 0, rules.MAX_TRANSFER_BYTES
    while True:
        found = await source.scan(_step(namespace, space, keys, after, wanted.reverse))
        rows = await _items_of(source, namespace, schema, found)
        for key, row in zip(found.keys, rows, strict=True):
            item = _item_of_entry(row, schema, index, key)
            if item is not None and row is not None and _fits(wanted, item):
                room -= row.size + 64
                if len(items) == wanted.limit or (items and room < 0):
                    return _page(items, after, index.id)
                items.append(_shown(item, wanted))
            after = key
        looked += sum(LEAST if row is None else max(row.size, LEAST) for row in rows)
        if not found.more:
            return _page(items, None, index.id)
        if looked >= PART:
            return _page(items, after, index.id)


async def fill_index(source: Source, namespace: str, schema: TableSchema, index: Index) -> None:
    """Enter the items that were there before the index was begun."""
    after: bytes | None = None
    more = True
    while more:
        query = _step(namespace, schema.item_space, _ALL, after, reverse=False, values=False)
        found = await source.scan(query)
        more = found.more
        command = FillIndex(
            namespace=namespace,
            table=schema.name,
            space=schema.item_space,
            index_id=index.id,
            keys=tuple(found.keys),
            last=not more,
        )
        await source.execute(command)
        after = found.keys[-1] if found.keys else None


async def sweep(source: Source, namespace: str, schema: TableSchema) -> int:
    """Remove at most 100 items that have expired; how many that was."""
    due = await source.due(namespace, schema.item_space, SWEEP)
    keys = [row.key for row in due if isinstance(row.key, bytes)]
    commands = [
        ExpireItems(
            namespace=namespace,
            table=schema.name,
            space=schema.item_space,
            keys=tuple(keys[start : start + CHUNK]),
        )
        for start in range(0, len(keys), CHUNK)
    ]
    return sum(await asyncio.gather(*(_removed(source, command) for command in commands)))


async def _removed(source: Source, command: ExpireItems) -> int:
    result = await source.execute(command)
    assert isinstance(result, Removed)
    return result.count


async def check_index(
    source: Shown, namespace: str, schema: TableSchema, index: Index
) -> dict[str, int | bool]:
    """Whether an index has exactly the entries that the items ask for.

    Writes go on meanwhile, so whatever looks wrong is looked at again, item and entry at once.
    """
    items = entries = missing = extra = 0
    async for rows in _pages(source, namespace, schema.item_space):
        wanted = [entry_of(item_of(row).value, schema, index) for _, row in rows]
        there = [entry for entry in wanted if entry is not None]
        found = await source.rows([Address(namespace, entry.space, entry.key) for entry in there])
        items += len(rows)
        for entry, row in zip(there, found, strict=True):
            missing += row is None and await _disagree(source, namespace, schema, index, entry)
    async for rows in _pages(source, namespace, schema.index_space(index)):
        keys = [item_key_of(row.value or "") for _, row in rows]
        found = await source.rows([Address(namespace, schema.item_space, key) for key in keys])
        entries += len(rows)
        for (key, _), item_key, row in zip(rows, keys, found, strict=True):
            if _item_of_entry(row, schema, index, key) is None:
                entry = IndexEntry(
                    space=schema.index_space(index), key=key, item_key=item_key, expires_at=None
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
    """Whether, at one instant, an entry is there and its item does not ask for it, or the other way round."""
    item, found = await source.rows(
        [Address(namespace, schema.item_space, entry.item_key), Address(namespace, entry.space, entry.key)]
    )
    return (found is None) != (_item_of_entry(item, schema, index, entry.key) is None)


def cursor_key(cursor: object, owner: int) -> bytes | None:
    """The key after which a walk goes on. `owner` is the id of the table or index that it walks.

    Raises:
        ValidationError: It is no cursor of such a walk.
    """
    if cursor is None:
        return None
    try:
        if not isinstance(cursor, str):
            raise TypeError
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (TypeError, ValueError):
        raw = b""
    if len(raw) < 8 or int.from_bytes(raw[:8], "big") != owner:
        raise ValidationError("cursor is not one that such a page gave", field="cursor")
    return raw[8:]


def _step(
    namespace: str, space: str, keys: Range, after: bytes | None, reverse: bool, *, values: bool = True
) -> Scan:
    return Scan(
        namespace=namespace,
        space=space,
        start=keys.start,
        stop=keys.stop,
        after=after,
        limit=STEP,
        max_bytes=2 * rules.MAX_TRANSFER_BYTES,
        values=values,
        reverse=reverse,
    )


async def _pages(source: Shown, namespace: str, space: str) -> AsyncIterator[list[tuple[Any, Row]]]:
    after: bytes | None = None
    more = True
    while more:
        found = await source.scan(_step(namespace, space, _ALL, after, reverse=False))
        yield list(zip(found.keys, found.rows, strict=True))
        more = found.more
        after = found.keys[-1] if found.keys else None


async def _walk(source: Shown, namespace: str, space: str) -> AsyncIterator[tuple[Any, Row]]:
    async for rows in _pages(source, namespace, space):
        for pair in rows:
            yield pair


async def _items_of(source: Shown, namespace: str, schema: TableSchema, entries: Scanned) -> list[Row | None]:
    keys = [item_key_of(row.value or "") for row in entries.rows]
    return await source.rows([Address(namespace, schema.item_space, key) for key in keys])


def _item_of_entry(row: Row | None, schema: TableSchema, index: Index, key: bytes) -> Item | None:
    """The item that an entry leads to, unless it has changed since the entry was read."""
    if row is None:
        return None
    item = item_of(row)
    entry = entry_of(item.value, schema, index)
    return item if entry is not None and entry.key == key else None


def _fits(wanted: Wanted, item: Item) -> bool:
    return wanted.filter is None or holds(wanted.filter, item.value)


def _shown(item: Item, wanted: Wanted) -> Item:
    if wanted.projection is None:
        return item
    return msgspec.structs.replace(item, value=project(item.value, wanted.projection))


def _page(items: list[Item], after: bytes | None, owner: int) -> ItemPage:
    """A page; `after` is the last key that it has looked at, or None at the end."""
    if after is None:
        return ItemPage(items=items, truncated=False, cursor=None)
    raw = owner.to_bytes(8, "big") + after
    cursor = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    return ItemPage(items=items, truncated=True, cursor=cursor)
