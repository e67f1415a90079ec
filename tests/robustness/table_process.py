"""A process that writes items with two indexes without pause, and makes one of these again and again.

A line on standard output means that the call had returned before. It is to be killed at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import holdfast
from holdfast.errors import IndexNotFound, TableExists, ValidationError

if TYPE_CHECKING:
    from holdfast.handles.tables import Tables

WRITERS = 8


async def main(url: str, life: str) -> None:
    """Write until killed."""
    async with holdfast.open(url, reap=False) as store:
        tables = store.tables("crash")
        with contextlib.suppress(TableExists):
            await tables.create_table("items", partition_key=("id", "string"), sort_key=("n", "number"))
            await tables.create_index("items", "by_tag", key=("tag", "string"))
        await asyncio.gather(indexing(tables), *(writing(tables, life, number) for number in range(WRITERS)))


async def writing(tables: Tables, life: str, number: int) -> None:
    """Put an item, change what its indexes have of it, remove every third, and say so."""
    count = 0
    while True:
        key = f"{life}-{number}"
        await tables.put_item("items", {"id": key, "n": count, "tag": "new", "score": count % 7})
        item = await tables.update_item("items", key, count, set={"tag": f"t{count % 5}"}, add={"score": 1})
        version = item.version
        if count % 3 == 0:
            await tables.delete_item("items", key, count)
            version = 0
        sys.stdout.write(f"{key} {count} {version}\n")
        sys.stdout.flush()
        count += 1


async def indexing(tables: Tables) -> None:
    """Make an index of all that is there, and drop it."""
    while True:
        with contextlib.suppress(ValidationError):  # it is there whole, from before
            await tables.create_index("items", "by_score", key=("score", "number"))
        with contextlib.suppress(IndexNotFound):
            await tables.drop_index("items", "by_score")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
