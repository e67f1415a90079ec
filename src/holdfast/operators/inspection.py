"""Inspection of namespaces: rows that cannot be read, and counters that do not match the rows.

Law: nothing is written here, and everything is read, also overdue rows, which are counted until their expiry
is noticed. A namespace that changes while it is read is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import rules
from holdfast.decide.schemas import schema_of
from holdfast.engine import Scan
from holdfast.errors import DatabaseError
from holdfast.families import has_blobs
from holdfast.operators.blob_inspection import BlobInspection
from holdfast.rows import DROPPED, GUARD, KV, LETTER, REQUEST, TABLE, TRASH, UPLOAD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.engine import Engine
    from holdfast.rows import Namespace, Row

ALL: Final = 0
"""A time at which nothing has expired yet."""
STEP: Final = 500
ATTEMPTS: Final = 3
"""Number of times that a namespace is read if it changes meanwhile."""
SHOWN: Final = 20
"""Largest number of unreadable rows that are reported."""


class Inspected(msgspec.Struct, kw_only=True):
    """The result of an inspection. `counted` is False if the namespace kept changing and was not compared."""

    rows: int = 0
    keys: int = 0
    bytes: int = 0
    counted: bool = True
    unreadable: list[str] = []
    miscounted: list[str] = []


class Inspection:
    """Inspects namespaces.

    Args:
        engine: Where their rows are kept.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def namespace(self, name: str) -> Inspected:
        """Read all rows of a namespace and compare their number and size with its counters."""
        found = Inspected(counted=False)
        for _ in range(ATTEMPTS):
            before = await self._row(name)
            found = await self._walked(name)
            if await self._row(name) == before:
                _compare(found, before)
                return found
        found.counted = False
        return found

    async def _row(self, name: str) -> Namespace | None:
        totals = await self._engine.totals(ALL, namespace=name)
        return totals[0].namespace if totals else None

    async def _walked(self, name: str) -> Inspected:
        found = Inspected()
        items: list[str] = []
        for space in (KV, TRASH, GUARD, REQUEST, LETTER, TABLE, DROPPED, UPLOAD):
            async for key, row in self._rows(name, space):
                readable = _look(found, space, key, row)
                if space == KV and row.version > 0:
                    _count(found, key, row)
                elif space == DROPPED:
                    items.append(bytes(key).decode() if isinstance(key, bytes) else key)
                elif space == TABLE and readable:
                    items.extend(_item_spaces(found, row))
        for space in items:
            if space.startswith("item/"):
                async for key, row in self._rows(name, space):
                    _look(found, space, key, row)
                    _count(found, key, row)
        if has_blobs(name):
            await self._walk_blobs(name, found)
        return found

    async def _walk_blobs(self, name: str, found: Inspected) -> None:
        def tell(trouble: str) -> None:
            if len(found.unreadable) < SHOWN:
                found.unreadable.append(trouble)

        def count(key: bytes, row: Row) -> None:
            found.rows += 1
            found.bytes += len(key) + row.size

        await BlobInspection(self._engine, name, walk=self._rows, tell=tell, count=count).run()

    async def _rows(self, name: str, space: str) -> AsyncIterator[tuple[str | bytes, Row]]:
        after: str | bytes | None = None
        more = True
        while more:
            query = Scan(
                namespace=name,
                space=space,
                start="" if space == KV else b"",
                after=after,
                limit=STEP,
                max_bytes=2 * rules.MAX_TRANSFER_BYTES,
                values=True,
            )
            page = await self._engine.scan(query, ALL)
            for found in zip(page.keys, page.rows, strict=True):
                yield found
            more, after = page.more, page.keys[-1] if page.keys else None


def _item_spaces(found: Inspected, row: Row) -> list[str]:
    try:
        return [schema_of(row.value or "").item_space]
    except DatabaseError:
        found.unreadable.append("the definition of a table can't be read")
        return []


def _look(found: Inspected, space: str, key: str | bytes, row: Row) -> bool:
    """Return True if the JSON of a row can be read; otherwise report the row."""
    found.rows += 1
    try:
        for text in (row.value, row.semantics):
            if text:
                msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if len(found.unreadable) < SHOWN:
            found.unreadable.append(f"the row of {key!r} in {space} can't be read")
        return False
    return True


def _count(found: Inspected, key: str | bytes, row: Row) -> None:
    found.keys += 1
    found.bytes += (len(key.encode()) if isinstance(key, str) else len(key)) + row.size


def _compare(found: Inspected, row: Namespace | None) -> None:
    if row is None:
        found.miscounted.append("the namespace has no row")
        return
    for what, counted, said in (("keys", found.keys, row.keys), ("bytes", found.bytes, row.bytes)):
        if counted != said:
            found.miscounted.append(f"it has {counted} {what}, and its row says {said}")
