"""Cleaning up after tables and blobs: rows of dropped tables and indexes, parts of blobs, and expired items.

Law: this module finds what to remove, and commands remove it, like any other change. Any process can continue
the removal, because what is left of a drop is itself recorded as a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.blobs.manifest import GRACE
from holdfast.engine import Scan
from holdfast.handles.table_walks import expiry_of, pages, step, tables_at
from holdfast.rows import DROPPED, PARTS
from holdfast.tables.commands import Purge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.commands import Command
    from holdfast.engine import Engine
    from holdfast.tables.commands import ExpireItems

DUE: Final = 25
"""Number of expired rows removed at a time, since each may be large and is loaded in full."""
AT_ONCE: Final = 16
"""Number of parts of blobs removed at a time: the database reads each of them to find its pages."""


async def purge(
    engine: Engine,
    namespace: str,
    now: Callable[[], int],
    ask: Callable[[Command], Awaitable[object]],
    *,
    early: bool = False,
) -> bool:
    """Remove what is left of a namespace's dropped tables and indexes, and of replaced and deleted blobs.

    The parts of a blob are left for a while to readers that have begun, unless there is no room (`early`).

    Returns:
        True if something was removed.
    """
    marked = [
        bytes(key).decode()
        async for found in pages(lambda query: engine.scan(query, now()), namespace, DROPPED)
        for key, row in zip(found.keys, found.rows, strict=True)
        if early or not bytes(key).decode().startswith(PARTS) or row.updated_at + GRACE * 1000 <= now()
    ]
    for space in marked:
        more, before = True, None
        while more:
            keys = await _left(engine, namespace, space, now)
            if keys and keys == before:
                break  # none of them could be removed, and an immediate retry won't help
            more, before = bool(keys), keys
            await ask(Purge(namespace=namespace, space=space, keys=keys, last=not more))
    return bool(marked)


async def _left(engine: Engine, namespace: str, space: str, now: Callable[[], int]) -> tuple[bytes, ...]:
    """Return the keys of some of the rows that are left in a space."""
    if space.startswith(PARTS):
        query = Scan(
            namespace=namespace, space=space, start=b"", limit=AT_ONCE, max_bytes=rules.MAX_TRANSFER_BYTES
        )
        return tuple((await engine.scan(query, now())).keys)
    # Values are read too, because their size limits the number of rows: those with a deadline are
    # loaded in full.
    found = await engine.scan(step(namespace, space, None), now())
    # A scan does not show expired rows, but they must be removed too.
    due = await engine.due(space, now(), limit=DUE, namespace=namespace)
    return tuple({*found.keys, *(row.key for row in due if isinstance(row.key, bytes))})


async def expired_items(engine: Engine, namespace: str, now: Callable[[], int]) -> AsyncIterator[ExpireItems]:
    """Yield the commands that expire a namespace's due items. Execute each before taking the next."""
    for schema in await tables_at(lambda query: engine.scan(query, now()), namespace):
        more, before = schema.ttl_attribute is not None, None
        while more:
            due = await engine.due(schema.item_space, now(), limit=DUE, namespace=namespace)
            if due and due == before:
                break  # none of them could be removed, and an immediate retry won't help
            if due:
                yield expiry_of(namespace, schema, due)
            more = len(due) == DUE
            before = due
