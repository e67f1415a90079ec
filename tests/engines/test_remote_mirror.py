"""Mirrors over NATS: nothing is missed while the connection is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import holdfast
from tests.edges.nats.ground import serving
from tests.nats import nats_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 30.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a mirror's contents have no event
            await asyncio.sleep(0.01)


async def test_a_mirror_survives_a_restart_of_its_nats_server(tmp_path: Path) -> None:
    """A mirror outlives its NATS server: it says how stale it is, and has every change once it is back."""
    path = str(tmp_path / "store.db")
    told: list[str] = []
    async with (
        nats_server() as server,
        serving(server.url, storage=path) as running,
        holdfast.open(f"{server.url}?timeout=0.5") as client,
    ):
        kv, inside = client.kv("trivia"), running.store.kv("trivia")
        await kv.set("c:a", 1)
        async with kv.mirror("c:", on_change=lambda key, entry: told.append(key)) as mirror:
            await mirror.reached((await kv.set("c:b", 1)).version)
            await server.stop()
            await inside.set("c:a", 2)
            await inside.delete("c:b")
            last = await inside.set("c:c", 3)
            await until(lambda: mirror.stale_for > 0.5)
            assert dict(mirror) == {"c:a": 1, "c:b": 1}
            await server.start()
            async with asyncio.timeout(PATIENCE):
                await mirror.reached(last.version)
            assert dict(mirror) == {"c:a": 2, "c:c": 3}
            assert sorted(told) == ["c:a", "c:b", "c:b", "c:c"]
