"""Cancelling a caller cancels the wait, never half a write."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from typing import TYPE_CHECKING

import pytest

import holdfast

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 50
OPERATIONS = int(os.environ.get("HOLDFAST_CANCELLED_OPERATIONS", "50"))
"""How many operations each key gets."""


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("pg_store_url"))
    return "memory://" if request.param == "memory" else str(tmp_path / "store.db")


async def test_cancelled_writes_happen_whole_or_not_at_all(url: str) -> None:
    """After thousands of operations with cancelled callers every entry is old or new, and nothing leaks."""
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    files = len(os.listdir("/proc/self/fd"))
    async with holdfast.open(url, reap=False) as store:
        kv = store.kv("p")
        cancelled = await asyncio.gather(*(_work(kv, number) for number in range(KEYS)))
        assert sum(cancelled) > KEYS * OPERATIONS / 20
        assert (await store.stats("kv/p")).keys == len((await kv.list()).keys)
        await kv.set("usable", True)
    assert len(asyncio.all_tasks()) == tasks
    assert threading.active_count() <= threads + 1  # the loop's own executor keeps a thread
    assert len(os.listdir("/proc/self/fd")) <= files


async def _work(kv: holdfast.KV, number: int) -> int:
    """Write one key again and again, giving up at random moments; how often that was."""
    seed = random.Random(number)
    key, cancelled = f"k{number}", 0
    possible: set[object] = {None}
    version = 0
    for count in range(OPERATIONS):
        value = {"count": count, "pad": "x" * seed.randint(0, 200)}
        call = asyncio.create_task(kv.set(key, value) if seed.random() < 0.8 else kv.incr(key + ":n"))
        for _ in range(seed.randint(0, 12)):
            await asyncio.sleep(0)
        if seed.random() < 0.5:
            call.cancel()
        try:
            entry = await call
        except asyncio.CancelledError:
            cancelled += 1
            possible.add(str(value))
            continue
        if entry.key == key:
            possible = {str(value)}
        else:
            assert entry.version > version
            version = entry.version
        found = await kv.get(key)
        now = None if found is None else str(found.value)
        assert now in possible
        possible = {now}
    return cancelled
