"""Snapshots are made while several nodes write, so that the log does not grow for ever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from holdfast.engines.cluster import snapshots
from tests.cluster import Nodes, engine_of
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from holdfast.store import Store


async def test_nodes_that_write_in_turn_make_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While several nodes write, none holds the lease; the one that wrote last makes the snapshot."""
    monkeypatch.setattr(snapshots, "LOOK_SECONDS", 0.05)
    async with servers_running(1) as servers, AsyncExitStack() as stack:
        nodes = Nodes(servers, tmp_path, stack)
        stores = [await nodes.open(number, snapshot_every=10) for number in (1, 2)]
        writing = [asyncio.create_task(_write(store)) for store in stores]
        try:
            async with asyncio.timeout(60):
                while not await engine_of(stores[0])._snapshots.notes(0):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.05)
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)


async def _write(store: Store) -> None:
    while True:
        await store.kv("trivia").incr("sum")
