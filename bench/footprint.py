"""What the service costs while it does nothing: memory, room on disk, and the time until it answers.

Law: the memory is that of the `holdfast up` process, read from the system; its nats-server is told apart.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.embedded import fill
from bench.machine import resident
from tests.edges.running import ask, holdfast_up, plain_client

if TYPE_CHECKING:
    from bench.run import Run

ROWS: Final = 100_000
_CONTENT: Final = """
SELECT sum(length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))) FROM plugin_kv_storage
"""


async def startup(run: Run) -> None:
    """Bar 10: seconds from starting `holdfast up` on a store that is there to its first reply."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        await _first_reply(Path(folder))
        for _ in run.rounds():
            run.book.add("startup.first-reply", "holdfast", await _first_reply(Path(folder)), unit="s")


async def _first_reply(folder: Path) -> float:
    began = time.perf_counter()
    async with holdfast_up(folder) as up, plain_client(up.url) as client:
        await ask(client, "db.kv.bench.set", key="first", value=1)
        return time.perf_counter() - began


async def footprint(run: Run) -> None:
    """Bar 10: memory with no keys, and what 100,000 and 1,000,000 keys add."""
    await _memory(run, {"more-for-100000": 100_000, "more-for-1000000": 1_000_000})
    await _overhead(run)


async def footprint_small(run: Run) -> None:
    """Memory with no keys and what 100,000 add, and what a row costs on disk."""
    await _memory(run, {"more-for-100000": 100_000})
    await _overhead(run)


async def _memory(run: Run, steps: dict[str, int]) -> None:
    """Once each: memory that a process has taken is not given back, so rounds would need new processes."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with holdfast_up(Path(folder)) as up, holdfast.open(up.url) as store:
            await store.kv("bench").get("nothing")
            idle = resident(up.pid)
            run.book.add("footprint.idle", "holdfast", idle, unit="MB")
            for name, count in steps.items():
                await fill(store.kv("bench"), count)
                await _read_all(store.kv("bench"))
                run.book.add(f"footprint.{name}", "holdfast", resident(up.pid) - idle, unit="MB")


async def _read_all(kv: holdfast.KV) -> None:
    cursor = None
    while True:
        page = await kv.list(limit=10_000, cursor=cursor, values=True)
        cursor = page.cursor
        if cursor is None:
            return


async def _overhead(run: Run) -> None:
    """Bytes of a row beside its key, its value and the indexes: a copy of the file with that table alone."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path, copy = Path(folder) / "store.db", Path(folder) / "copy.db"
        async with holdfast.open(path, reap=False) as store:
            await fill(store.kv("bench"), ROWS, ttl=3600)
        shutil.copy(path, copy)
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            for table in ("holdfast_journal", "holdfast_rows", "holdfast_namespaces"):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("DROP INDEX idx_kv_expires_at")
            connection.execute("VACUUM")
            [pages] = connection.execute("PRAGMA page_count").fetchone()
            [size] = connection.execute("PRAGMA page_size").fetchone()
            [content] = connection.execute(_CONTENT).fetchone()
    run.book.add("footprint.row-overhead", "holdfast", (pages * size - content) / ROWS, unit="bytes")
