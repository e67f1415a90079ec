"""Walks over the rows of tables: definitions, pages of items, and work that takes longer than a transaction.

A step reads a bounded number of rows. A page does a bounded amount of work and then ends, with a cursor that
continues it; it shows each item as it was when it was read. Other tasks get their turns meanwhile. What
backfilling and sweeping write, they write by commands, like any other change.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from holdfast import rules
from holdfast.commands import Removed
from holdfast.cursors import cursor_bytes, cursor_of
from holdfast.decide.schemas import defined, schema_address, schema_of
from holdfast.engine import Due, Scan, Scanned
from holdfast.errors import Busy, ValidationError
from holdfast.model import Item, ItemPage
from holdfast.pipeline.pipeline import Pipeline
from holdfast.rows import TABLE, Address, Row
from holdfast.stored import item_of, some_attributes, stored_item
from holdfast.tables.commands import ExpireItems, FillIndex, QueryIndex, Walk
from holdfast.tables.conditions import Condition, comparisons_in, holds, judged
from holdfast.tables.indexes import IndexEntry, entry_key, entry_of, index_range, item_key_of
from holdfast.tables.items import known_part
from holdfast.tables.keys import Range
from holdfast.tables.paths import compiled, project
from holdfast.tables.schema import Index, TableSchema
from holdfast.work import SLICE, TEST, Work

Scanning: TypeAlias = Callable[[Scan], Awaitable[Scanned]]

FIRST: Final = 128
STEP: Final = 250
"""Number of rows that are read at first, and then at a time. Most queries find few items, and SQLite reads as
many as the first without a thread."""
AT_ONCE: Final = 16
"""Number of items that are read by key at a time, since each may be large."""
ALL: Final = Range(b"", None)
"""The range of all keys."""
PART: Final = 2_000_000
"""Bytes of rows that a page may examine. A page that finds too few matches among them is short."""
LEAST: Final = 400
"""Smallest size that a row counts for, so that a page examines at most 5,000 rows."""
PASSED_OVER: Final = 8
"""Bytes of an item per unit of work, where the item is returned as it is stored."""
SWEEP: Final = 100
"""Number of expired items that one sweep removes."""
CHUNK: Final = 8
"""Number of expired items per command. Other callers get their turn between commands."""
TOGETHER: Final = 4
"""Number of these commands that share a commit. The items they remove are loaded and journaled."""


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
    rows = [row async for page in pages(scan, namespace, TABLE) for row in page.rows]
    return [schema_of(row.value or "") for row in rows]


def step(
    namespace: str,
    space: str,
    after: bytes | None,
    keys: Range = ALL,
    *,
    limit: int = STEP,
    reverse: bool = False,
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
        limit=limit,
        max_bytes=2 * rules.MAX_TRANSFER_BYTES,
        values=True,
        reverse=reverse,
    )


async def pages(scan: Scanning, namespace: str, space: str) -> AsyncIterator[Scanned]:
    """Walk through a space, step by step."""
    after: bytes | None = None
    more = True
    while more:
        page = await scan(step(namespace, space, after))
        yield page
        more = page.more
        after = page.keys[-1] if page.keys else None


async def items_of(
    source: Shown, namespace: str, schema: TableSchema, item_keys: Sequence[bytes]
) -> list[Row | None]:
    """Return the items with these keys. Returns None for each that is absent or expired."""
    return await source.rows([Address(namespace, schema.item_space, key) for key in item_keys])


def is_of_entry(row: Row | None, index: Index, key: bytes, item_key: bytes) -> bool:
    """Return True if an entry leads to this item, which may have changed since the entry was read."""
    if row is None:
        return False
    return entry_key(some_attributes(row.value or "", {index.key.name}), index, item_key) == key


class _Filling:
    """A page being filled: its items, and the last key that was examined.

    A row that alone takes more work than a request may is refused. A page that has taken that much work is
    short.
    """

    def __init__(self, walk: Walk, owner: int) -> None:
        self._filter = walk.filter
        self._limit = rules.limit(walk.limit)
        self._projection = None if walk.projection is None else compiled(walk.projection)
        self._owner = owner
        self._items: list[Item] = []
        self._room = rules.MAX_TRANSFER_BYTES
        self._looked = 0
        self._work = Work()
        self._tests = 0 if walk.filter is None else comparisons_in(walk.filter)
        self.after = cursor_key(walk.cursor, owner)

    async def take(self, key: bytes, row: Row | None) -> bool:
        """Examine the next row. Returns False if it does not fit this page."""
        work, condition = self._work, self._filter
        self._looked += LEAST if row is None else max(row.size, LEAST)
        if row is not None:
            work.most = work.spent + rules.MAX_WORK
            item = self._read(row)
            if condition is None:
                passes = True
            elif self._tests * (16 * TEST + row.size) <= SLICE:
                passes = holds(condition, item.value, work=work)
            else:
                passes = await self._judge(condition, item.value)
            if passes and not self._add(row, item):
                return False
        self.after = key
        if work.pausing():
            await asyncio.sleep(0)
        return True

    @property
    def full(self) -> bool:
        """True if the page has as many items as it may have."""
        return len(self._items) == self._limit

    @property
    def wanted(self) -> int:
        """The number of rows to read next, not many at first. How many a filter lets pass is not known."""
        step = STEP if self._looked else FIRST
        return step if self._filter is not None else min(step, self._limit - len(self._items))

    @property
    def tired(self) -> bool:
        """True if the page has examined enough."""
        return self._looked >= PART or self._work.spent >= rules.MAX_WORK

    def page(self, *, end: bool = False) -> ItemPage:
        """Return the page as it is. At the end of the walk it has no cursor."""
        return _page(self._items, None if end else self.after, self._owner)

    def _read(self, row: Row) -> Item:
        """Return the item of a row: as stored, unless a filter or a projection needs its attributes."""
        if self._filter is None and self._projection is None:
            self._work.spend(TEST + row.size // PASSED_OVER)
            return stored_item(row)
        self._work.read(row)
        return item_of(row)

    async def _judge(self, condition: Condition, item: dict[str, Any]) -> bool:
        """Evaluate a filter that may take long. Other tasks get their turns meanwhile."""
        judging = judged(condition, item, self._work)
        while True:
            try:
                next(judging)
            except StopIteration as done:
                return bool(done.value)
            await asyncio.sleep(0)

    def _add(self, row: Row, item: Item) -> bool:
        """Add an item to the page. Returns False if there is no room."""
        projection = self._projection
        self._room -= row.size + 64
        if len(self._items) == self._limit or (self._items and self._room < 0):
            return False
        if projection is not None:
            item = msgspec.structs.replace(item, value=project(item.value, projection, work=self._work))
        self._items.append(item)
        return True


async def page_of_items(source: Shown, walk: Walk, schema: TableSchema, keys: Range) -> ItemPage:
    """Return a page of the items in a range of keys, in order.

    Raises:
        TooExpensive: Examining one of them takes more work than a request may.
    """
    filling = _Filling(walk, schema.id)
    while True:
        scanned = await source.scan(
            step(
                walk.namespace,
                schema.item_space,
                filling.after,
                keys,
                limit=filling.wanted,
                reverse=walk.reverse,
            )
        )
        for key, row in zip(scanned.keys, scanned.rows, strict=True):
            if filling.tired or not await filling.take(key, row):
                return filling.page()
        if not scanned.more or filling.full or filling.tired:
            return filling.page(end=not scanned.more)


async def page_of_index(source: Shown, walk: QueryIndex, schema: TableSchema) -> ItemPage:
    """Return a page of the items that have a value in an index, in the order of their keys.

    Raises:
        IndexNotFound: The table has no such index.
        Busy: The index has not been filled yet.
        TooExpensive: Examining one of them takes more work than a request may.
    """
    index = schema.index(walk.index)
    filling = _Filling(walk, index.id)
    if index.state != "ready":
        raise Busy(f"index {index.name!r} of table {schema.name!r} is still being filled", retry_after=1.0)
    keys, space = index_range(index, walk.key_value), schema.index_space(index)
    while True:
        scanned = await source.scan(
            step(walk.namespace, space, filling.after, keys, limit=filling.wanted, reverse=walk.reverse)
        )
        for start in range(0, len(scanned.keys), AT_ONCE):
            entries = scanned.rows[start : start + AT_ONCE]
            item_keys = [item_key_of(entry.value or "") for entry in entries]
            rows = await items_of(source, walk.namespace, schema, item_keys)
            for key, entry, item_key, row in zip(
                scanned.keys[start:], entries, item_keys, rows, strict=False
            ):
                # An entry that was written with this version of the item leads to it for certain.
                same = row is not None and row.version == entry.version
                there = row if same or is_of_entry(row, index, key, item_key) else None
                if filling.tired or not await filling.take(key, there):
                    return filling.page()
        if not scanned.more or filling.full or filling.tired:
            return filling.page(end=not scanned.more)


def cursor_key(cursor: object, owner: int) -> bytes | None:
    """Return the key after which a walk continues. `owner` is the id of the table or index that it walks.

    Raises:
        ValidationError: The cursor does not belong to such a walk.
    """
    if cursor is None:
        return None
    raw = cursor_bytes(cursor) or b""
    if len(raw) < 8 or int.from_bytes(raw[:8], "big") != owner:
        raise ValidationError("cursor is not from a page of this table or index", field="cursor")
    return raw[8:]


def _page(items: list[Item], after: bytes | None, owner: int) -> ItemPage:
    """Build a page. `after` is the last key that was examined, or None at the end."""
    if after is None:
        return ItemPage(items=items, truncated=False, cursor=None)
    return ItemPage(items=items, truncated=True, cursor=cursor_of(owner.to_bytes(8, "big") + after))


async def fill_index(source: Pipeline, namespace: str, schema: TableSchema, index: Index) -> None:
    """Backfill an index with the items that existed before it was created."""
    async for page in pages(source.scan, namespace, schema.item_space):
        command = FillIndex(
            namespace=namespace,
            table=schema.name,
            space=schema.item_space,
            index_id=index.id,
            keys=tuple(page.keys),
            last=not page.more,
        )
        await source.call(command)


async def sweep(source: Pipeline, namespace: str, schema: TableSchema) -> int:
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


async def _removed(source: Pipeline, command: ExpireItems) -> int:
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
        called_for = [entry_of(known_part(row, schema), schema, index) for row in page.rows]
        there = [entry for entry in called_for if entry is not None]
        rows = await source.rows([Address(namespace, entry.space, entry.key) for entry in there])
        items += len(page.rows)
        for entry, row in zip(there, rows, strict=True):
            missing += row is None and await _disagree(source, namespace, schema, index, entry)
    async for page in pages(source.scan, namespace, schema.index_space(index)):
        entries += len(page.rows)
        for start in range(0, len(page.rows), AT_ONCE):
            item_keys = [item_key_of(entry.value or "") for entry in page.rows[start : start + AT_ONCE]]
            rows = await items_of(source, namespace, schema, item_keys)
            for key, item_key, row in zip(page.keys[start:], item_keys, rows, strict=False):
                work.spend(TEST if row is None else row.size // 2)
                if work.pausing():
                    await asyncio.sleep(0)
                if not is_of_entry(row, index, key, item_key):
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
    """Return True if, at one instant, an entry exists that its item does not call for, or the reverse."""
    item, entry_row = await source.rows(
        [Address(namespace, schema.item_space, entry.item_key), Address(namespace, entry.space, entry.key)]
    )
    return (entry_row is None) == is_of_entry(item, index, entry.key, entry.item_key)
