"""A process that adds to one item from many tasks at once, and says when it is done.

Every line of its standard output is one `update_item` that had returned before.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast


async def main(url: str, tasks: int, times: int) -> None:
    """Add 1 to a number, and move the item about in an index, so often in so many tasks."""
    async with holdfast.open(url, reap=False) as store:
        tables = store.tables("crowd")

        async def add(number: int) -> None:
            for count in range(times):
                tag = f"t{(number + count) % 3}"
                await tables.update_item("totals", "sum", add={"n": 1}, set={"tag": tag})
                sys.stdout.write("added\n")

        await asyncio.gather(*map(add, range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
