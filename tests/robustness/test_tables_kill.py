"""Items and their indexes survive `kill -9` together, while items are written and an index is filled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.errors import ValidationError
from tests.robustness.killing import said_until_killed
from tests.robustness.table_process import WRITERS

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.handles.tables import Tables
    from holdfast.store import Store

CYCLES = int(os.environ.get("HOLDFAST_KILL_CYCLES", "2"))


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_indexes_agree_with_the_items_after_kill_9(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """No acknowledged write is lost, and a finished index has exactly what the items ask for."""
    url = str(tmp_path / "store.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    seed = random.Random(7)
    acknowledged: dict[tuple[str, int], int] = {}
    for cycle in range(CYCLES):
        lines = seed.randint(30, 200)
        later = seed.uniform(0, 0.03)
        acknowledged |= await asyncio.to_thread(_write_and_kill, url, f"life{cycle}", lines, later)
        async with holdfast.open(url, reap=False) as store:
            await _check(store, acknowledged)
    assert len(acknowledged) > CYCLES * 20


async def _check(store: Store, acknowledged: dict[tuple[str, int], int]) -> None:
    tables = store.tables("crash")
    with contextlib.suppress(ValidationError):  # there it is whole
        await tables.create_index("items", "by_score", key=("score", "number"))
    for index in ("by_tag", "by_score"):
        found = await tables.check_index("items", index)
        assert (found["missing"], found["extra"], found["entries"]) == (0, 0, found["items"]), index
    there = await _versions(tables)
    lost = {key: version for key, version in acknowledged.items() if version != there.get(key, 0)}
    assert lost == {}
    unsaid = there.keys() - acknowledged.keys()
    assert len(unsaid) <= WRITERS * (1 + max(int(key[0].split("-")[0][4:]) for key in there))
    await store.upkeep()
    assert (await store.stats("table/crash")).keys == len(there)


async def _versions(tables: Tables) -> dict[tuple[str, int], int]:
    there: dict[tuple[str, int], int] = {}
    cursor = None
    while True:
        page = await tables.scan("items", cursor=cursor, limit=10_000)
        there |= {(item.value["id"], item.value["n"]): item.version for item in page.items}
        cursor = page.cursor
        if cursor is None:
            return there


def _write_and_kill(url: str, life: str, after_lines: int, later: float) -> dict[tuple[str, int], int]:
    """Let a process write until it has said so many lines, kill it a moment later, and return all it said."""
    said = said_until_killed("table_process", url, life, after_lines=after_lines, later=later)
    return {(key, int(number)): int(version) for key, number, version in said}
