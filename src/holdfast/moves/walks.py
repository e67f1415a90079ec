"""Walks over the sections of a snapshot, in pages of bounded size.

Memory holds a page at a time, whatever the size of the values. What is read is not interpreted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from holdfast.engine.raw import Position, Positioned, RawSnapshot, Section
from holdfast.rows import Row

PAGE_BYTES: Final = 1_048_576
"""The size that a page should have."""
MOST: Final = 2_000
"""The maximum number of things in a page."""
_FIRST: Final = {Section.ENTRIES: 64, Section.ROWS: 64, Section.PARTS: 4, Section.JOURNAL: 500}
"""The length of the first page of a section. Later ones go by the size of what has been seen."""


_encode: Final = msgspec.msgpack.Encoder().encode


async def walk(
    snapshot: RawSnapshot,
    namespace: str,
    section: Section,
    *,
    after: Position | None = None,
    upto: Position | None = None,
) -> AsyncIterator[list[Positioned]]:
    """Yield a section page by page: everything after a position, up to and including another."""
    limit = _FIRST[section]
    while True:
        page = await snapshot.page(namespace, section, after=after, limit=limit)
        last = len(page) < limit
        if upto is not None and page and page[-1].position >= upto:
            page = [held for held in page if held.position <= upto]
            last = True
        if page:
            yield page
        if last:
            return
        after = page[-1].position
        limit = max(1, min(MOST, PAGE_BYTES * len(page) // sum(map(size, page))))


def size(held: Positioned) -> int:
    """Return the approximate size of something in a section, in bytes."""
    content = held.content
    return 128 + (content.size if isinstance(content, Row) else len(content.detail or ""))


def packed(held: Positioned) -> bytes:
    """Return the one encoding of something in a section, which is the same for every engine."""
    return _encode((held.position, *msgspec.structs.astuple(held.content)))
