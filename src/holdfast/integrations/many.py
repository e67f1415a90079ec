"""Calls with more keys than one call of a handle takes.

Law: order and results are those of one large call; only atomicity is not, which no call with many keys has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.errors import HoldfastError, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

AT_ONCE: Final = 1_000
"""Keys that one call of a handle takes."""
_ROOM: Final = rules.MAX_TRANSFER_BYTES // 2
"""Bytes of values that are sent in one call; the rest is room for keys and for the form on the wire."""


async def found(kv: KV, keys: Sequence[str]) -> list[Entry | None]:
    """Return the entries of any number of keys, however large they are together."""
    entries: list[Entry | None] = []
    start, count = 0, AT_ONCE
    while start < len(keys):
        try:
            results = await kv.get_many(keys[start : start + count])
        except ValueTooLarge:
            count //= 2
            continue
        entries += map(accepted, results)
        start, count = start + count, min(2 * count, AT_ONCE)
    return entries


async def emptied(kv: KV, prefix: str) -> int:
    """Remove everything below a prefix and return how many keys there were."""
    cursor, count = None, 0
    while True:
        page = await kv.delete_prefix(prefix, cursor=cursor)
        count, cursor = count + len(page.keys), page.cursor
        if cursor is None:
            return count


def runs(sizes: Sequence[int], most: int = AT_ONCE) -> Iterator[tuple[int, int]]:
    """Cut values of these sizes in bytes into runs that fit into one call each, of at most `most` values."""
    start = total = 0
    for position, size in enumerate(sizes):
        if position > start and (total + size > _ROOM or position - start == most):
            yield start, position
            start, total = position, 0
        total += size
    if sizes:
        yield start, len(sizes)


def accepted(result: Any) -> Any:
    """Return a result of many, or raise it if it is an error."""
    if isinstance(result, HoldfastError):
        raise result
    return result
