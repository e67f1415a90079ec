"""Pages of items: queries and scans, which a cursor continues.

Law: a page does a bounded amount of work and then ends, with a cursor that continues it. Other tasks get
their turns meanwhile. A page shows each item as it was when it was read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import Busy, ValidationError
from holdfast.handles.table_reads import AT_ONCE, Shown, is_of_entry, items_of, step
from holdfast.model import Item, ItemPage
from holdfast.stored import item_of, stored_item
from holdfast.tables.evaluation import comparisons_in, holds, judged
from holdfast.tables.indexes import index_range
from holdfast.tables.projection import project
from holdfast.verbs.cursors import cursor_bytes, cursor_of
from holdfast.work import SLICE, TEST, Work

if TYPE_CHECKING:
    from holdfast.rows import Row
    from holdfast.tables.conditions import Condition
    from holdfast.tables.projection import Projection
    from holdfast.tables.ranges import Range
    from holdfast.tables.schema import Index, TableSchema

PART: Final = 2_000_000
"""Bytes of rows that a page may examine. A page that finds too few matches among them is short."""
LEAST: Final = 400
"""Smallest size that a row counts for, so that a page examines at most 5,000 rows."""
PASSED_OVER: Final = 8
"""Bytes of an item per unit of work, where the item is returned as it is stored."""


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


async def page_of_items(
    source: Shown, namespace: str, schema: TableSchema, keys: Range, wanted: PageOptions
) -> ItemPage:
    """Return a page of the items in a range of keys, in order.

    Raises:
        TooExpensive: Examining one of them takes more work than a request may.
    """
    filling = _Filling(wanted, schema.id)
    while True:
        found = await source.scan(
            step(namespace, schema.item_space, filling.after, keys, reverse=wanted.reverse)
        )
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
        found = await source.scan(step(namespace, space, filling.after, keys, reverse=wanted.reverse))
        for start in range(0, len(found.keys), AT_ONCE):
            entries = found.rows[start : start + AT_ONCE]
            rows = await items_of(source, namespace, schema, entries)
            for key, row in zip(found.keys[start:], rows, strict=False):
                there = row if is_of_entry(row, schema, index, key) else None
                if filling.tired or not await filling.take(key, there):
                    return filling.page()
        if not found.more or filling.tired:
            return filling.page(end=not found.more)


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
