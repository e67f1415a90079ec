"""Cleaning up after tables: rows of dropped tables and indexes, and expired items.

Law: this module finds what to remove, and commands remove it, like any other change. Any process can continue
the removal, because what is left of a drop is itself recorded as a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.handles.table_reads import pages, step, tables_at
from holdfast.handles.table_upkeep import expiry_of
from holdfast.rows import DROPPED
from holdfast.tables.commands import Purge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.commands import Command
    from holdfast.engine import Engine, Scan, Scanned
    from holdfast.tables.commands import ExpireItems

DUE: Final = 25
"""Number of expired rows removed at a time, since each may be large and is loaded in full."""


async def purge(
    engine: Engine, namespace: str, now: Callable[[], int], ask: Callable[[Command], Awaitable[object]]
) -> None:
    """Remove what is left of a namespace's dropped tables and indexes."""

    def scan(query: Scan) -> Awaitable[Scanned]:
        return engine.scan(query, now())

    marked = [bytes(key).decode() async for found in pages(scan, namespace, DROPPED) for key in found.keys]
    for space in marked:
        more = True
        while more:
            found = await scan(step(namespace, space, None))
            # A scan does not show expired rows, but they must be removed too.
            due = await engine.due(space, now(), limit=DUE, namespace=namespace)
            keys = tuple({*found.keys, *(row.key for row in due)})
            more = bool(keys)
            await ask(Purge(namespace=namespace, space=space, keys=keys, last=not more))


async def expired_items(engine: Engine, namespace: str, now: Callable[[], int]) -> AsyncIterator[ExpireItems]:
    """Yield the commands that expire a namespace's due items. Execute each before taking the next."""
    for schema in await tables_at(lambda query: engine.scan(query, now()), namespace):
        more = schema.ttl_attribute is not None
        while more:
            due = await engine.due(schema.item_space, now(), limit=DUE, namespace=namespace)
            if due:
                yield expiry_of(namespace, schema, due)
            more = len(due) == DUE
