"""What it costs to have Holdfast and do nothing: memory, room on disk, and the time until it answers.

The memory is that of the `holdfast up` process, read from the system; its nats-server is told apart.
Processes find their modules compiled, as those of an installation are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.embedded import fill
from bench.machine import resident
from tests.edges.running import ask, plain_client, started_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.run import Run

ROWS: Final = 100_000
COMMANDS: Final = 5
"""How many processes are started for one figure, which is the median of theirs."""
_CONTENT: Final = """
SELECT sum(length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))) FROM plugin_kv_storage
"""


async def startup(run: Run) -> None:
    """Bar 10: seconds from starting `holdfast up` on a store that is there to its first reply."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        await _first_reply(Path(folder))
        for _ in run.rounds():
            run.book.add("startup.first-reply", "holdfast", await _first_reply(Path(folder)), unit="s")
        await _get_command(run, Path(folder))


async def _first_reply(folder: Path) -> float:
    began = time.perf_counter()
    async with started_up(folder) as up, plain_client(up.url) as client:
        await ask(client, "db.kv.bench.set", key="first", value=1)
        return time.perf_counter() - began


async def _get_command(run: Run, folder: Path) -> None:
    """Bar 10: seconds of `holdfast get` from start to end, on a file and over NATS, beside a bare Python."""
    get = [str(Path(sys.executable).with_name("holdfast")), "get", "k", "--plugin", "bench", "--url"]
    file = folder / "own.db"
    async with started_up(folder) as up:
        for url in (file, up.url):
            async with holdfast.open(url) as store:
                await store.kv("bench").set("k", 1)
        sides = {
            "holdfast": [*get, str(file)],
            "over nats": [*get, up.url],
            "bare python": [sys.executable, "-c", ""],
        }
        for command in sides.values():
            await _process(command)
        for _ in run.rounds():
            for side, command in sides.items():
                took = statistics.median([await _process(command) for _ in range(COMMANDS)])
                run.book.add("startup.get", side, took, unit="s")


async def _process(command: Sequence[str]) -> float:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, env=kept, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait():
        raise RuntimeError(f"{command[0]} has failed")
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
        async with started_up(Path(folder)) as up, holdfast.open(up.url) as store:
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
