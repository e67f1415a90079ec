"""Walks over the shelves of a snapshot, in pages of bounded size.

Law: memory holds a page at a time, whatever the size of the values. What is read is not interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.moving import Shelf
from holdfast.rows import Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.engine.moving import Mark, Marked, RawSnapshot

PAGE_BYTES: Final = 1_048_576
"""The size that a page should have."""
MOST: Final = 2_000
"""The maximum number of things in a page."""
_FIRST: Final = {Shelf.ENTRIES: 64, Shelf.ROWS: 64, Shelf.PARTS: 4, Shelf.JOURNAL: 500}
"""The length of the first page of a shelf. Later ones go by the size of what has been seen."""


async def walk(
    snapshot: RawSnapshot,
    namespace: str,
    shelf: Shelf,
    *,
    after: Mark | None = None,
    upto: Mark | None = None,
) -> AsyncIterator[list[Marked]]:
    """Yield a shelf page by page: everything after a mark, up to and including another."""
    limit = _FIRST[shelf]
    while True:
        page = await snapshot.page(namespace, shelf, after=after, limit=limit)
        last = len(page) < limit
        if upto is not None and page and page[-1].mark >= upto:
            page = [held for held in page if held.mark <= upto]
            last = True
        if page:
            yield page
        if last:
            return
        after = page[-1].mark
        limit = max(1, min(MOST, PAGE_BYTES * len(page) // sum(map(size, page))))


def size(held: Marked) -> int:
    """Return the approximate size of something on a shelf, in bytes."""
    content = held.content
    return 128 + (content.size if isinstance(content, Row) else len(content.detail or ""))


def packed(held: Marked) -> bytes:
    """Return the one encoding of something on a shelf, which is the same for every engine."""
    return _encode((held.mark, *msgspec.structs.astuple(held.content)))


_encode: Final = msgspec.msgpack.Encoder().encode
