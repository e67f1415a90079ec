"""`holdfast list`: the keys of a namespace, one page or all.

Rows are printed as they arrive wherever possible, however many there are. Only sorting and a table on a
terminal need all rows at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import Group, Parameter

import holdfast
from holdfast.edges.cli.options import Long, number
from holdfast.edges.cli.output import document, line, on_terminal, rows, say, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target

Order = Literal["key", "size", "version", "ttl", "updated"]


@Parameter(name="*", group=Group("Envelope", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class EntryFilters:
    """The filters for entries, by their envelope; all that are given must match."""

    purpose: str | None = None
    """Only entries with this purpose."""

    producer: str | None = None
    """Only entries of this producer."""

    writer: str | None = None
    """Only entries whose last writer is this one."""

    spec_ref: str | None = None
    """Only entries that refer to this document."""

    expires_before: str | None = None
    """Only entries with a deadline before this time, such as 2031-05-01T12:30:00Z."""


ANY: Final = EntryFilters()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a listing; fields other than the key are set only if requested."""

    key: str
    size: int | msgspec.UnsetType = msgspec.UNSET
    version: int | msgspec.UnsetType = msgspec.UNSET
    ttl: int | msgspec.UnsetType | None = msgspec.UNSET
    updated_at: datetime | msgspec.UnsetType = msgspec.UNSET


ORDERS: Final[dict[str, Callable[[Any], Any]]] = {
    "key": lambda row: row.key.encode(),
    "size": lambda row: row.size,
    "version": lambda row: row.version,
    "ttl": lambda row: (row.ttl is None, row.ttl),
    "updated": lambda row: row.updated_at,
}
"""The sort keys; entries without a deadline come after all others."""


async def list_keys(
    prefix: str = "",
    /,
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    cursor: str | None = None,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    long: Annotated[bool, Long] = False,
    sort: Order = "key",
    reverse: bool = False,
    filters: EntryFilters = ANY,
    target: Target = HERE,
) -> None:
    """List the keys of a namespace that begin with a prefix.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    limit
        Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page.
    cursor
        Continue after an earlier page; the cursor is in its JSON.
    everything
        All keys, page by page.
    long
        Print size in bytes, version, seconds left and time of the last change too.
    sort
        Sort by this. Without --all, only the page is sorted.
    reverse
        Reverse the order.
    """
    values = long or sort != "key"
    at_once = not everything or sort != "key" or reverse or (long and not target.json and on_terminal())
    gathered: list[Listed] = []
    async with target.look() as store:
        keys = target.keys(store)
        walk = pages(
            keys, prefix, limit=limit, cursor=cursor, values=values, follow=everything, wanted=filters
        )
        async for page in walk:
            gathered += _listed(page, store.now())
            if not at_once:
                _print(gathered, target, long=long)
                gathered.clear()
    gathered.sort(key=ORDERS[sort])
    if reverse:
        gathered.reverse()
    if target.json and not everything:
        document(_page(gathered, page, long=long))
        return
    _print(gathered, target, long=long)
    if page.truncated and not target.json:
        sure = "are" if filters == ANY else "may be"
        say(f"there {sure} more keys: --all lists them, --cursor {page.cursor} goes on")


async def pages(
    keys: holdfast.KV,
    prefix: str,
    *,
    limit: int | None,
    cursor: str | None,
    values: bool,
    follow: bool,
    wanted: EntryFilters = ANY,
) -> AsyncIterator[holdfast.Page]:
    """Yield a page of a listing; with `follow` also the pages after it."""
    while True:
        page = await keys.list(prefix, limit=limit, cursor=cursor, values=values, **asdict(wanted))
        yield page
        if not follow or page.cursor is None:
            return
        cursor = page.cursor


def _listed(page: holdfast.Page, now: int) -> list[Listed]:
    if page.entries is None:
        return [Listed(key=key) for key in page.keys]
    return [
        Listed(
            key=entry.key,
            size=len(msgspec.json.encode(entry.value)),
            version=entry.version,
            ttl=_left(entry, now),
            updated_at=entry.updated_at,
        )
        for entry in page.entries
    ]


def _left(entry: holdfast.Entry, now: int) -> int | None:
    """Return the whole seconds until the deadline, rounded up."""
    if entry.expires_at is None:
        return None
    return max(0, -((now - round(entry.expires_at.timestamp() * 1000)) // 1000))


def _page(listed: list[Listed], page: holdfast.Page, *, long: bool) -> dict[str, Any]:
    told = {
        "keys": [row.key for row in listed],
        "count": len(listed),
        "truncated": page.truncated,
        "cursor": page.cursor,
    }
    return told | {"entries": listed} if long else told


def _print(listed: list[Listed], target: Target, *, long: bool) -> None:
    if target.json:
        for row in listed:
            document(row if long else {"key": row.key})
    elif long:
        rows(("key", "size", "version", "ttl", "updated"), map(_cells, listed))
    else:
        for row in listed:
            line(shown_key(row.key))


def _cells(row: Listed) -> tuple[Any, ...]:
    assert isinstance(row.updated_at, datetime)
    return shown_key(row.key), row.size, row.version, row.ttl, shown_time(row.updated_at)
