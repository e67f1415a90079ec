"""What a caller was told is there survives `kill -9`."""

from __future__ import annotations

import os
import random
import sqlite3
from typing import TYPE_CHECKING

import holdfast
from tests.robustness.killing import said_until_killed

if TYPE_CHECKING:
    from pathlib import Path

CYCLES = int(os.environ.get("HOLDFAST_KILL_CYCLES", "3"))


async def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    """The reply comes after the data is durable: each acknowledged write is there with its version."""
    path = tmp_path / "store.db"
    seed = random.Random(11)
    acknowledged: dict[str, int] = {}
    for cycle in range(CYCLES):
        acknowledged |= _write_and_kill(path, f"life{cycle}", after_lines=seed.randint(20, 400))
        assert await lost(path, acknowledged) == {}
    assert len(acknowledged) > CYCLES * 20


async def test_acknowledging_before_the_commit_is_noticed(tmp_path: Path) -> None:
    """Negative control: an engine that answers before it commits loses writes, and the check sees it."""
    path = tmp_path / "store.db"
    acknowledged = _write_and_kill(path, "early", "early", after_lines=50)
    assert await lost(path, acknowledged) != {}


def _write_and_kill(path: Path, life: str, *plant: str, after_lines: int) -> dict[str, int]:
    """Let a process write until it has said so many lines, kill it, and return all that it said."""
    said = said_until_killed("writing_process", str(path), life, *plant, after_lines=after_lines)
    return {key: int(version) for key, version in said}


async def lost(path: Path, acknowledged: dict[str, int]) -> dict[str, tuple[int, int | None]]:
    """What was acknowledged and is not there, with the version that is there instead."""
    lost: dict[str, tuple[int, int | None]] = {}
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("crash")
        for key, version in acknowledged.items():
            entry = await kv.get(key)
            found = None if entry is None else entry.version
            if found != version:
                lost[key] = (version, found)
        stats = await store.stats("kv/crash")
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        [count] = connection.execute("SELECT count(*) FROM plugin_kv_storage").fetchone()
    connection.close()
    assert stats.keys == count
    return lost
