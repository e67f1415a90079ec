"""Many who change the same item at once, in tasks, stores and processes, lose nothing of each other's."""

from __future__ import annotations

import asyncio

import holdfast
from tests.forking import completed

TASKS, TIMES = 10, 10


async def test_adding_in_two_processes_and_two_stores_loses_nothing(pg_store_url: str) -> None:
    """update_item is one step for everybody on a PostgreSQL database, and so is what its index has."""
    async with (
        holdfast.open(pg_store_url, reap=False) as one,
        holdfast.open(pg_store_url, reap=False) as other,
    ):
        tables = one.tables("crowd")
        await tables.create_table("totals", partition_key=("id", "string"))
        await tables.create_index("totals", "by", key=("tag", "string"))
        processes = [
            asyncio.to_thread(
                completed, "tests.robustness.adding_process", pg_store_url, str(TASKS), str(TIMES)
            )
            for _ in range(2)
        ]
        here = [
            store.tables("crowd").update_item("totals", "sum", add={"n": 1})
            for store in (one, other)
            for _ in range(TASKS * TIMES)
        ]
        said, _ = await asyncio.gather(asyncio.gather(*processes), asyncio.gather(*here))
        assert [done.returncode for done in said] == [0, 0]
        assert [done.stdout.count("added\n") for done in said] == [TASKS * TIMES] * 2
        item = await other.tables("crowd").get_item("totals", "sum")
        assert item is not None
        assert item.value["n"] == 4 * TASKS * TIMES
        assert (await tables.check_index("totals", "by"))["consistent"] is True
        found = await tables.query_index("totals", "by", item.value["tag"])
        assert found.items == [item]
