"""`holdfast trash`: removed entries that can be restored.

Nothing here writes; `holdfast restore` brings a key back.
"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import number
from holdfast.edges.cli.output import document, rows, say, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target

_COLUMNS = ("key", "op", "at", "by", "version", "purpose", "purged at")


async def list_trash(
    prefix: str = "",
    /,
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    cursor: str | None = None,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    values: bool = False,
    target: Target = HERE,
) -> None:
    """List deleted and expired entries that can be restored: how, when and by whom they were removed.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    limit
        Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page.
    cursor
        Continue after an earlier page; the cursor is in its JSON.
    everything
        All of it, page by page.
    values
        Include the values; only with --json.
    """
    async with target.look() as store:
        namespace = target.keys(store).namespace
        while True:
            page = await store.trash(namespace, prefix, limit=limit, cursor=cursor, values=values)
            _print(page, target, by_line=everything)
            cursor = page.cursor
            if not everything or cursor is None:
                break
    if cursor is not None and not target.json:
        say(f"there is more in the trash: --all lists it, --cursor {cursor} goes on")


def _print(page: holdfast.TrashPage, target: Target, *, by_line: bool) -> None:
    if not target.json:
        rows(_COLUMNS, map(_cells, page.entries))
    elif by_line:
        for entry in page.entries:
            document(entry)
    else:
        document(page)


def _cells(entry: holdfast.TrashEntry) -> tuple[Any, ...]:
    return (
        shown_key(entry.key),
        entry.op,
        shown_time(entry.at),
        entry.by,
        entry.version,
        entry.purpose,
        shown_time(entry.purged_at),
    )
