"""Many writers on one key: no increment is lost and no version is given twice."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import holdfast
from tests.forking import fork
from tests.robustness.incrementing_process import increment

if TYPE_CHECKING:
    from pathlib import Path


async def test_increments_of_ten_tasks_add_up_on_sqlite(tmp_path: Path) -> None:
    """Ten tasks that increment by CAS and by incr come to the exact total on SQLite."""
    url = str(tmp_path / "store.db")
    await increment(url, tasks=10, times=50)
    await _check(url, total=500)


async def test_increments_of_ten_processes_add_up_on_postgres(pg_store_url: str) -> None:
    """Ten processes that increment by CAS and by incr come to the exact total on PostgreSQL."""
    module, words = "tests.robustness.incrementing_process", [pg_store_url, "2", "8"]
    processes = [fork(module, words, env=os.environ, streams=(0, 1, 2)) for _ in range(10)]
    assert await asyncio.gather(*(asyncio.to_thread(process.wait, 60) for process in processes)) == [0] * 10
    await _check(pg_store_url, total=160)


async def _check(url: str, *, total: int) -> None:
    async with holdfast.open(url, reap=False) as store:
        kv = store.kv("count")
        assert [entry.value for entry in ((await kv.list(values=True)).entries or [])] == [total, total]
        versions: list[int] = []
        since = 0
        while (page := await kv.changes(since)).changes:
            versions += [change.version for change in page.changes]
            since = page.next
        assert versions == list(range(1, 2 * total + 1))
