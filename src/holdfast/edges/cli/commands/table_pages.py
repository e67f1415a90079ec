"""`holdfast table query`, `scan`, `index query` and `changes`: many items, one page or all.

Law: rows are printed as they arrive wherever possible, however many there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import number
from holdfast.edges.cli.output import document, item_document, rows, say, shown_time
from holdfast.edges.cli.tables import (
    HERE,
    Everything,
    Filter,
    Limit,
    Owner,
    PartitionKey,
    Table,
    json_option,
    typed,
)

Cursor = Annotated[str | None, Parameter(help="Continue after an earlier page; the cursor is in its JSON.")]
Show = Annotated[
    tuple[str, ...], Parameter(help="Only this path, such as meta.tag; may be given several times.")
]
Reverse = Annotated[bool, Parameter(help="Reverse the order.")]


async def query(
    table: Table,
    partition_key: PartitionKey,
    /,
    *,
    sort_key: str | None = None,
    where: Filter = None,
    show: Show = (),
    limit: Limit = None,
    cursor: Cursor = None,
    everything: Everything = False,
    reverse: Reverse = False,
    owner: Owner = HERE,
) -> None:
    """Print the items of a partition in the order of their sort keys, one line of JSON each.

    Parameters
    ----------
    sort_key
        Condition on the sort key, as JSON: '{"between": [1, 9]}'; eq lt lte gt gte between begins_with.
    """
    condition, wanted = json_option(sort_key, field="sort-key"), _wanted(where, show, limit, reverse=reverse)
    async with owner.look() as store:
        tables = owner.tables(store)
        described = await tables.describe_table(table)
        key = typed(partition_key, described["partition_key"], field="partition_key")

        async def page(cursor: str | None) -> holdfast.ItemPage:
            return await tables.query(table, key, sk=condition, cursor=cursor, **wanted)

        await _print_pages(page, cursor, owner, everything=everything)


async def scan(
    table: Table,
    /,
    *,
    where: Filter = None,
    show: Show = (),
    limit: Limit = None,
    cursor: Cursor = None,
    everything: Everything = False,
    reverse: Reverse = False,
    owner: Owner = HERE,
) -> None:
    """Print the items of a table in the order of their keys, one line of JSON each."""
    wanted = _wanted(where, show, limit, reverse=reverse)
    async with owner.look() as store:
        tables = owner.tables(store)

        async def page(cursor: str | None) -> holdfast.ItemPage:
            return await tables.scan(table, cursor=cursor, **wanted)

        await _print_pages(page, cursor, owner, everything=everything)


async def query_index(
    table: Table,
    index: str,
    value: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    where: Filter = None,
    show: Show = (),
    limit: Limit = None,
    cursor: Cursor = None,
    everything: Everything = False,
    reverse: Reverse = False,
    owner: Owner = HERE,
) -> None:
    """Print the items whose indexed attribute has a value, one line of JSON each.

    Parameters
    ----------
    index
        The index.
    value
        Value of the attribute; a binary one as base64.
    """
    wanted = _wanted(where, show, limit, reverse=reverse)
    async with owner.look() as store:
        tables = owner.tables(store)
        keys = {one["name"]: one["key"] for one in (await tables.describe_table(table))["indexes"]}
        given = typed(value, keys[index], field="value") if index in keys else value

        async def page(cursor: str | None) -> holdfast.ItemPage:
            return await tables.query_index(table, index, given, cursor=cursor, **wanted)

        await _print_pages(page, cursor, owner, everything=everything)


async def changes(
    table: Table,
    /,
    *,
    since: Annotated[int, Parameter(converter=number)] = 0,
    view: Literal["keys", "new", "old", "both"] = "keys",
    limit: Limit = None,
    everything: Everything = False,
    owner: Owner = HERE,
) -> None:
    """Print the changes of a table: time, operation, version, key and writer.

    Parameters
    ----------
    since
        Start after this version; 0 starts with the oldest change in the journal.
    view
        Item images to include; only with --json.
    """
    async with owner.look() as store:
        tables = owner.tables(store)
        while True:
            page = await tables.changes(table, since, limit=limit, view=view)
            if owner.json and not everything:
                document(page)
            elif owner.json:
                for change in page.changes:
                    document(change)
            else:
                rows(("time", "op", "version", "key", "writer"), map(_cells, page.changes))
            if page.gap:
                say(f"what changed before version {page.oldest} is not known any more")
            if not everything or not page.changes:
                return
            since = page.next


def _wanted(where: str | None, show: tuple[str, ...], limit: int | None, *, reverse: bool) -> dict[str, Any]:
    return {
        "filter": json_option(where, field="where"),
        "projection": show or None,
        "limit": limit,
        "reverse": reverse,
    }


async def _print_pages(
    page_after: Callable[[str | None], Awaitable[holdfast.ItemPage]],
    cursor: str | None,
    owner: Owner,
    *,
    everything: bool,
) -> None:
    while True:
        page = await page_after(cursor)
        cursor = page.cursor
        if owner.json and not everything:
            document(_page_document(page))
            return
        for item in page.items:
            document(item_document(item) if owner.json else item.value)
        if cursor is None:
            return
        if not everything:
            say(f"there may be more items: --all lists them, --cursor {cursor} goes on")
            return


def _page_document(page: holdfast.ItemPage) -> dict[str, Any]:
    items = [item_document(item) for item in page.items]
    return {"items": items, "count": page.count, "truncated": page.truncated, "cursor": page.cursor}


def _cells(change: holdfast.ItemChange) -> tuple[Any, ...]:
    key = [change.partition_key] if change.sort_key is None else [change.partition_key, change.sort_key]
    shown = msgspec.json.encode(key).decode()
    return shown_time(change.at), change.op, change.version, shown, change.last_writer
