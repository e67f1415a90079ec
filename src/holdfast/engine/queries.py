"""The questions that a store asks an engine, and the forms of the answers.

Plain data, and the functions that every engine needs to build it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from holdfast.rows import FirstAndLast, Namespace, Record, Row


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A walk in order over the keys of a space, from `start` to before `stop` (None: to the end).

    `after` excludes keys up to and including it. (PostgreSQL allows no U+0000 in a bound, so there is no
    other way to express "the next key".) With `reverse` the walk goes backwards from the other end, and
    `after` excludes keys from it on.

    The walk ends after `limit` rows, or before the row whose size would take the sum past `max_bytes`; the
    first row is always returned. The size of a row is that of its key. With `values` it also includes its
    value and 256 bytes for the rest.
    """

    namespace: str
    space: str
    start: str | bytes
    stop: str | bytes | None = None
    after: str | bytes | None = None
    limit: int
    max_bytes: int
    values: bool = False
    reverse: bool = False


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that a scan found, their rows if it asked for values, and whether there is more."""

    keys: list[Any]
    rows: list[Row]
    more: bool


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on the envelope of listed entries. An entry must match all that are given.

    An entry without a deadline never matches `expires_before`.
    """

    purpose: str | None = None
    producer: str | None = None
    writer: str | None = None
    spec_ref: str | None = None
    expires_before: int | None = None


class Selected(msgspec.Struct, kw_only=True):
    """The keys and rows that passed a filter. `last` is the last key examined; None at the end."""

    keys: list[Any]
    rows: list[Row]
    last: Any


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A row that is past its deadline and still stored."""

    namespace: str
    key: str | bytes
    expires_at: int


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The result of making room for a quota: records of expired entries, and whether space was freed."""

    journal: list[Record]
    freed: bool


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of a journal: records after version `since`, the oldest first.

    It selects keys from `start` to before `stop`. With `key`, it selects only the records of that key.
    `newest_first` reverses the order. With `max_bytes`, the answer ends before the record whose detail would
    take the sum past it; the first one is always returned.
    """

    namespace: str
    since: int = 0
    key: str | None = None
    start: str = ""
    stop: str | None = None
    limit: int
    newest_first: bool = False
    max_bytes: int | None = None


class JournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a journal, with its bounds at the same instant.

    `floor` is the newest version whose record was dropped, `head` the last version given. `complete` means
    that no more records match.
    """

    records: list[Record]
    complete: bool
    floor: int
    head: int
    epoch: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace's row, with the number and size of its counted entries that are past their deadline."""

    namespace: Namespace
    due_keys: int
    due_bytes: int


async def ends_of(
    scan: Callable[[Scan, int], Awaitable[Scanned]], namespace: str, space: str
) -> FirstAndLast | None:
    """Return the first and the last row of a space whose rows have no deadlines; None if it is empty."""
    first, last = [
        await scan(
            Scan(
                namespace=namespace,
                space=space,
                start=b"",
                limit=1,
                max_bytes=1,
                values=True,
                reverse=reverse,
            ),
            0,
        )
        for reverse in (False, True)
    ]
    if not first.keys or not last.keys:
        return None
    return FirstAndLast(first=(bytes(first.keys[0]), first.rows[0]), last=(bytes(last.keys[0]), last.rows[0]))


def fitting(records: Iterable[Record], query: JournalQuery) -> tuple[list[Record], bool]:
    """Return as many of the records as the query allows, and whether these are all."""
    page: list[Record] = []
    room = query.max_bytes
    for record in records:
        if room is not None:
            room -= len((record.detail or "").encode())
        if len(page) == query.limit or (page and room is not None and room < 0):
            return page, False
        page.append(record)
    return page, True


def row_size(key: str | bytes, row: Row | None) -> int:
    """Return the size that a key counts for in a scan, alone or with its row."""
    width = len(key.encode()) if isinstance(key, str) else len(key)
    return width if row is None else width + row.size + 256


def successor(prefix: str) -> str | None:
    """Return the least text that is greater than every text with this prefix; None if there is none."""
    for end in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[end]) + 1
        if point == 0xD800:
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:end] + chr(point)
    return None
