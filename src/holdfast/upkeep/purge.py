"""Cleaning up after tables: rows of dropped tables and indexes, and expired items.

Law: this module finds what to remove, and commands remove it, like any other change. Any process can continue
the removal, because what is left of a drop is itself recorded as a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.decide.schemas import schema_of
from holdfast.engine import Scan
from holdfast.rows import DROPPED, TABLE
from holdfast.tables.commands import ExpireItems, Purge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.commands import Command
    from holdfast.engine import Engine, Scanned

STEP: Final = 250
"""Number of rows read at a time."""
DUE: Final = 25
"""Number of expired rows removed at a time, since each may be large and is loaded in full."""


async def purge(
    engine: Engine, namespace: str, now: Callable[[], int], ask: Callable[[Command], Awaitable[object]]
) -> None:
    """Remove what is left of a namespace's dropped tables and indexes."""
    marked = [
        bytes(key).decode() async for found in _pages(engine, namespace, DROPPED, now) for key in found.keys
    ]
    for space in marked:
        more = True
        while more:
            # Values are read too, because their size limits the number of rows: those with a deadline are
            # loaded in full.
            found = await engine.scan(_step(namespace, space, None), now())
            # A scan does not show expired rows, but they must be removed too.
            due = await engine.due(space, now(), limit=DUE, namespace=namespace)
            keys = tuple({*found.keys, *(row.key for row in due)})
            more = bool(keys)
            await ask(Purge(namespace=namespace, space=space, keys=keys, last=not more))


async def expired_items(engine: Engine, namespace: str, now: Callable[[], int]) -> AsyncIterator[ExpireItems]:
    """Yield the commands that expire a namespace's due items. Execute each before taking the next."""
    found = [row async for page in _pages(engine, namespace, TABLE, now) for row in page.rows]
    for schema in (schema_of(row.value or "") for row in found):
        more = schema.ttl_attribute is not None
        while more:
            due = await engine.due(schema.item_space, now(), limit=DUE, namespace=namespace)
            keys = tuple(row.key for row in due if isinstance(row.key, bytes))
            if keys:
                yield ExpireItems(namespace=namespace, table=schema.name, space=schema.item_space, keys=keys)
            more = len(due) == DUE


async def _pages(
    engine: Engine, namespace: str, space: str, now: Callable[[], int]
) -> AsyncIterator[Scanned]:
    after: bytes | None = None
    more = True
    while more:
        found = await engine.scan(_step(namespace, space, after), now())
        yield found
        more = found.more
        after = found.keys[-1] if found.keys else None


def _step(namespace: str, space: str, after: bytes | None) -> Scan:
    return Scan(
        namespace=namespace,
        space=space,
        start=b"",
        after=after,
        limit=STEP,
        max_bytes=2 * rules.MAX_TRANSFER_BYTES,
        values=True,
    )
