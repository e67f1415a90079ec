"""What a store costs the process that opens it, and what asking for its size costs."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.engines.sqlite import sql as statements

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 25_000
BYTES_PER_KEY = 500
"""What a key may cost a process: 50 MB for 100,000 of them."""

READER = """
import asyncio, sys, holdfast

async def read_all(path):
    async with holdfast.open(path) as store:
        kv, cursor, seen = store.kv("p"), None, 0
        while True:
            page = await kv.list(limit=10_000, cursor=cursor, values=True)
            seen += page.count
            cursor = page.cursor
            if cursor is None:
                break
        await kv.set("one more", 1)
        for line in open("/proc/self/status"):
            if line.startswith("VmRSS"):
                print(seen, line.split()[1])

asyncio.run(read_all(sys.argv[1]))
"""

GETTER = """
import asyncio, sys, holdfast

def resident():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmRSS")]
    return int(line.split()[1])

async def get_all(path, count):
    async with holdfast.open(path) as store:
        kv = store.kv("p")
        for number in range(0, count, 1_000):
            await kv.get(f"key:{number:07}")
        before = resident()
        for number in range(0, count, 20):
            await kv.get(f"key:{number:07}")
            if number % 1_000 == 0:
                await kv.list(limit=1_000, prefix=f"key:{number // 1_000:04}")
        print(resident() - before)

asyncio.run(get_all(sys.argv[1], int(sys.argv[2])))
"""

FILLER = """
import asyncio, sys, holdfast

async def fill(path, count):
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for start in range(0, count, 1_000):
            value = {"start": start, "pad": "x" * 80}
            await kv.batch(writes=[{"key": f"key:{start + n:07}", "value": value} for n in range(1_000)])

for path, count in zip(sys.argv[1::2], sys.argv[2::2]):
    asyncio.run(fill(path, int(count)))
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Stores with few and with many keys, by how many."""
    folder = tmp_path_factory.mktemp("footprint")
    sizes = {0: folder / "empty.db", 1_000: folder / "small.db", KEYS: folder / "large.db"}
    given = [str(word) for count, path in sizes.items() for word in (path, count)]
    subprocess.run([sys.executable, "-c", FILLER, *given], check=True)
    return sizes


@pytest.mark.unmeasured
def test_many_keys_cost_little_memory(stores: dict[int, Path]) -> None:
    """A process that opened and read many keys stays close to one that opened none."""
    seen, memory = zip(*(_read_all(stores[count]) for count in (0, KEYS)), strict=True)
    assert seen == (0, KEYS)
    assert (memory[1] - memory[0]) * 1024 < BYTES_PER_KEY * KEYS


@pytest.mark.unmeasured
def test_reads_fill_no_memory_while_nobody_writes(stores: dict[int, Path]) -> None:
    """A process that goes on to read here and there in a large file does not grow by what it reads."""
    said = subprocess.run(
        [sys.executable, "-c", GETTER, stores[KEYS], str(KEYS)], capture_output=True, text=True, check=True
    )
    assert int(said.stdout) < 6 * 1024


@pytest.mark.parametrize("statement", statements.totals(owned=True))
def test_count_and_bytes_cost_the_same_for_every_size(stores: dict[int, Path], statement: str) -> None:
    """Asking how much a namespace holds takes as many steps with 25,000 keys as with 1,000."""
    parameters = (1, "p") if "expires_at" in statement else ("kv/p",)
    steps = [_steps(stores[count], statement, parameters) for count in (1_000, KEYS)]
    assert steps[0] == steps[1]


async def test_count_and_bytes_are_exact(stores: dict[int, Path]) -> None:
    """The counters of a namespace say what a full walk would."""
    async with holdfast.open(stores[1_000], reap=False) as store:
        stats = await store.stats("kv/p")
    with sqlite3.connect(stores[1_000]) as connection:
        expected = connection.execute(
            "SELECT count(*), sum(length(key) + length(value_json)) FROM plugin_kv_storage"
        ).fetchone()
    connection.close()
    assert (stats.keys, stats.bytes) == expected


def _read_all(path: Path) -> tuple[int, int]:
    """How many keys a fresh process read, and how many kilobytes it then held."""
    said = subprocess.run([sys.executable, "-c", READER, path], capture_output=True, text=True, check=True)
    seen, kilobytes = said.stdout.split()
    return int(seen), int(kilobytes)


def _steps(path: Path, sql: str, parameters: tuple[object, ...]) -> int:
    """How many steps of SQLite's machine a statement takes."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = sqlite3.connect(path)
    connection.set_progress_handler(count, 1)
    connection.execute(sql, parameters).fetchall()
    connection.close()
    return steps
