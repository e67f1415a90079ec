"""Walks over tables: queries, scans, and work on a table that takes longer than a transaction.

Law: a walk does a bounded amount of work and then returns, with a cursor that continues it. Other tasks get
their turns meanwhile. A page shows each item as it was when it was read. Everything is written by commands,
like any other change.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast import rules
from holdfast.commands import Removed
from holdfast.decide.schemas import defined, schema_address, schema_of
from holdfast.engine import Scan
from holdfast.errors import Busy, ValidationError
from holdfast.model import Item, ItemPage
from holdfast.rows import TABLE, Address
from holdfast.stored import item_of, stored_item
from holdfast.tables.commands import ExpireItems, FillIndex
from holdfast.tables.conditions import comparisons_in, holds, judged
from holdfast.tables.indexes import IndexEntry, entry_of, index_range, item_key_of
from holdfast.tables.items import known_part
from holdfast.tables.projection import project
from holdfast.tables.ranges import Range
from holdfast.work import SLICE, TEST, Work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.commands import Command, Result
    from holdfast.engine import Due, Scanned
    from holdfast.rows import Row
    from holdfast.tables.conditions import Condition
    from holdfast.tables.projection import Projection
    from holdfast.tables.schema import Index, TableSchema

STEP: Final = 250
"""Number of rows read at a time."""
PART: Final = 2_000_000
"""Bytes of rows that a page may examine. A page that finds too few matches among them is short."""
LEAST: Final = 400
"""Smallest size that a row counts for, so that a page examines at most 5,000 rows."""
_ALL: Final = Range(b"", None)
SWEEP: Final = 100
"""Number of expired items that one sweep removes."""
AT_ONCE: Final = 16
"""Number of items that are read by key at a time, since each may be large."""
PASSED_OVER: Final = 8
"""Bytes of an item per unit of work, where the item is returned as it is stored."""
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


class Source(Shown, Protocol):
    """The parts of a store that a writing walk uses."""

    async def due(self, namespace: str, space: str, limit: int) -> list[Due]:
        """Find rows of a space that are past their deadline."""
        ...

    async def execute(self, command: Command) -> Result:
        """Execute a command."""
        ...


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a page."""

    limit: int
    after: bytes | None = None
    reverse: bool = False
    filter: Condition | None = None
    projection: Projection | None = None


class _Filling:
    """A page being filled: its items, and the last key that was examined.

    A row that alone takes more work than a request may is refused. A page that has taken that much work is
    short.
    """

    def __init__(self, wanted: PageOptions, owner: int) -> None:
        self._wanted = wanted
        self._owner = owner
        self._items: list[Item] = []
        self._room = rules.MAX_TRANSFER_BYTES
        self._looked = 0
        self._work = Work()
        self._tests = 0 if wanted.filter is None else comparisons_in(wanted.filter)
        self.after = wanted.after

    async def take(self, key: bytes, row: Row | None) -> bool:
        """Examine the next row. Returns False if it does not fit this page."""
        work, condition = self._work, self._wanted.filter
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
    def tired(self) -> bool:
        """True if the page has examined enough."""
        return self._looked >= PART or self._work.spent >= rules.MAX_WORK

    def page(self, *, end: bool = False) -> ItemPage:
        """Return the page as it is. At the end of the walk it has no cursor."""
        return _page(self._items, None if end else self.after, self._owner)

    def _read(self, row: Row) -> Item:
        """Return the item of a row: as stored, unless a filter or a projection needs its attributes."""
        if self._wanted.filter is None and self._wanted.projection is None:
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
        projection = self._wanted.projection
        self._room -= row.size + 64
        if len(self._items) == self._wanted.limit or (self._items and self._room < 0):
            return False
        if projection is not None:
            item = msgspec.structs.replace(item, value=project(item.value, projection, work=self._work))
        self._items.append(item)
        return True


async def schema_at(source: Shown, namespace: str, table: str) -> TableSchema:
    """Return the definition of a table.

    Raises:
        TableNotFound: There is no such table.
    """
    [row] = await source.rows([schema_address(namespace, table)])
    return defined(row, table)


async def tables_at(source: Shown, namespace: str) -> list[TableSchema]:
    """Return the definitions of all tables, by name."""
    return [schema_of(row.value or "") async for _, row in _walk(source, namespace, TABLE)]


async def page_of_items(
    source: Shown, namespace: str, schema: TableSchema, keys: Range, wanted: PageOptions
) -> ItemPage:
    """Return a page of the items in a range of keys, in order.

    Raises:
        TooExpensive: Examining one of them takes more work than a request may.
    """
    filling = _Filling(wanted, schema.id)
    while True:
        found = await source.scan(_step(namespace, schema.item_space, keys, filling.after, wanted.reverse))
        for key, row in zip(found.keys, found.rows, strict=True):
            if filling.tired or not await filling.take(key, row):
                return filling.page()
        if not found.more or filling.tired:
            return filling.page(end=not found.more)


async def page_of_index(
    source: Shown,
    namespace: str,
    schema: TableSchema,
    index: Index,
    *,
    key_value: object,
    wanted: PageOptions,
) -> ItemPage:
    """Return a page of the items that have a value in an index, in the order of their keys.

    Raises:
        Busy: The index has not been filled yet.
        TooExpensive: Examining one of them takes more work than a request may.
    """
    if index.state != "ready":
        raise Busy(f"index {index.name!r} of table {schema.name!r} is still being filled", retry_after=1.0)
    keys, space = index_range(index, key_value), schema.index_space(index)
    filling = _Filling(wanted, index.id)
    while True:
        found = await source.scan(_step(namespace, space, keys, filling.after, wanted.reverse))
        for start in range(0, len(found.keys), AT_ONCE):
            entries = found.rows[start : start + AT_ONCE]
            rows = await _items_of(source, namespace, schema, entries)
            for key, row in zip(found.keys[start:], rows, strict=False):
                there = row if _is_of_entry(row, schema, index, key) else None
                if filling.tired or not await filling.take(key, there):
                    return filling.page()
        if not found.more or filling.tired:
            return filling.page(end=not found.more)


async def fill_index(source: Source, namespace: str, schema: TableSchema, index: Index) -> None:
    """Backfill an index with the items that existed before it was created."""
    after: bytes | None = None
    more = True
    while more:
        # Values are read too, because their size limits the number of items: they are loaded again to be
        # indexed.
        found = await source.scan(_step(namespace, schema.item_space, _ALL, after, reverse=False))
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
    """Remove at most 100 expired items. Returns the number removed."""
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
    removed = 0
    for start in range(0, len(commands), TOGETHER):
        some = commands[start : start + TOGETHER]
        removed += sum(await asyncio.gather(*(_removed(source, command) for command in some)))
    return removed


async def _removed(source: Source, command: ExpireItems) -> int:
    result = await source.execute(command)
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
    async for rows in _pages(source, namespace, schema.item_space):
        wanted = [entry_of(known_part(row, schema), schema, index) for _, row in rows]
        there = [entry for entry in wanted if entry is not None]
        found = await source.rows([Address(namespace, entry.space, entry.key) for entry in there])
        items += len(rows)
        for entry, row in zip(there, found, strict=True):
            missing += row is None and await _disagree(source, namespace, schema, index, entry)
    async for rows in _pages(source, namespace, schema.index_space(index)):
        entries += len(rows)
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            found = await _items_of(source, namespace, schema, [row for _, row in some])
            for (key, entry_row), row in zip(some, found, strict=True):
                work.spend(TEST if row is None else row.size // 2)
                if work.pausing():
                    await asyncio.sleep(0)
                if not _is_of_entry(row, schema, index, key):
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
    return (found is None) == _is_of_entry(item, schema, index, entry.key)


def cursor_key(cursor: object, owner: int) -> bytes | None:
    """Return the key after which a walk continues. `owner` is the id of the table or index that it walks.

    Raises:
        ValidationError: The cursor does not belong to such a walk.
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


def _step(namespace: str, space: str, keys: Range, after: bytes | None, reverse: bool) -> Scan:
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


async def _items_of(
    source: Shown, namespace: str, schema: TableSchema, entries: Sequence[Row]
) -> list[Row | None]:
    keys = [item_key_of(row.value or "") for row in entries]
    return await source.rows([Address(namespace, schema.item_space, key) for key in keys])


def _is_of_entry(row: Row | None, schema: TableSchema, index: Index, key: bytes) -> bool:
    """Return True if an entry leads to this item, which may have changed since the entry was read."""
    if row is None:
        return False
    entry = entry_of(known_part(row, schema), schema, index)
    return entry is not None and entry.key == key


def _page(items: list[Item], after: bytes | None, owner: int) -> ItemPage:
    """Build a page. `after` is the last key that was examined, or None at the end."""
    if after is None:
        return ItemPage(items=items, truncated=False, cursor=None)
    raw = owner.to_bytes(8, "big") + after
    cursor = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    return ItemPage(items=items, truncated=True, cursor=cursor)
