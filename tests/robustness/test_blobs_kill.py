"""Blobs survive `kill -9` whole or not at all, and what a dead writer has sent is swept."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.blobs.manifest import GRACE, UPLOAD_IDLE, manifest_of
from holdfast.clock import ManualClock
from holdfast.engine import Scan
from holdfast.rows import DROPPED, KV, UPLOAD
from tests.robustness.blob_process import NAMES, TORN, seed_of
from tests.robustness.killing import said_until_killed

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.rows import Row
    from holdfast.store import Store

CYCLES = int(os.environ.get("HOLDFAST_BLOB_CYCLES", "2"))
SPACE = "blob/crash"


@pytest.mark.unmeasured
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_no_blob_is_torn_and_none_is_left_over(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """After `kill -9` every blob is whole and no older than acknowledged, and a sweep leaves no orphans."""
    url = str(tmp_path / "store.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    drawn = random.Random(11)
    now = time.time_ns() // 1_000_000
    puts = 0
    for cycle in range(CYCLES):
        lines, later = drawn.randint(3, 25), drawn.uniform(0, 0.05)
        said = await asyncio.to_thread(_write_and_kill, url, cycle + 1, lines, later)
        assert TORN not in {name for name, _, _ in said}
        puts += len(said)
        now += 2 * UPLOAD_IDLE * 1000
        clock = ManualClock(now)
        async with holdfast.open(url, reap=False, clock=clock) as store:
            await _check(store, {name: (seed, version) for name, seed, version in said}, clock)
        now = clock.now()
    assert puts > 3 * CYCLES


async def _check(store: Store, said: dict[str, tuple[int, int]], clock: ManualClock) -> None:
    blobs = store.blobs("crash")
    for name in (*NAMES, *(f"{name}-copy" for name in NAMES)):
        reader = await blobs.get(name)
        _, version = said.get(name, (0, 0))
        if reader is None:
            assert name not in said or name not in NAMES, f"{name} was put and is gone"
            continue
        assert seed_of(await reader.read()) is not None, f"{name} is torn"
        assert reader.blob.version >= version, f"{name} is older than acknowledged"
    await store.upkeep()  # gives up what was being sent
    clock.advance(GRACE)
    await store.upkeep()
    entries = await _rows(store, KV)
    known = {manifest_of(name, row.value).upload for name, row in entries.items()}
    assert {int.from_bytes(key, "big") for key in await _rows(store, UPLOAD)} == known
    assert await _rows(store, DROPPED) == {}
    assert await store.recount(SPACE) == 0
    sizes = {m.upload: m.size for m in (manifest_of(name, row.value) for name, row in entries.items())}
    kept = (await store.stats(SPACE)).parts.blobs
    assert sum(sizes.values()) <= kept <= sum(sizes.values()) * 1.01 + 2_000 * len(entries), (
        "parts are left over"
    )


async def _rows(store: Store, space: str) -> dict[Any, Row]:
    start: str | bytes = "" if space == KV else b""
    query = Scan(namespace=SPACE, space=space, start=start, limit=10_000, max_bytes=10_000_000, values=True)
    found = await store.pipeline.scan(query)
    assert not found.more
    return dict(zip(found.keys, found.rows, strict=True))


def _write_and_kill(url: str, life: int, after_lines: int, later: float) -> list[tuple[str, int, int]]:
    """Let a process write until it has said so many lines, kill it a moment later, and return all it said."""
    said = said_until_killed("blob_process", url, str(life), after_lines=after_lines, later=later)
    return [(name, int(seed), int(version)) for name, seed, version in said]
