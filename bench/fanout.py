"""Watchers over NATS: how many changes reach them, and how late.

A watcher is the public `watch` of a store that is connected to the service. Lag is counted from when the
set was due to when the watcher has the change, at a rate that the service can serve.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.doors import value
from bench.measure import closed_loop, open_loop, percentile
from tests.edges.running import started_up

if TYPE_CHECKING:
    from bench.run import Run

RATE: Final = 100
PATIENCE: Final = 30.0


class Audience:
    """So many watchers of one plugin, each of which notes when it had which change."""

    def __init__(self, kv: holdfast.KV, count: int) -> None:
        self._kv = kv
        self.seen = 0
        self.wanted = 0
        self.lags: list[float] = []
        self.due: dict[str, float] = {}
        self._caught_up = asyncio.Event()
        self._tasks = [asyncio.create_task(self._watch()) for _ in range(count)]

    async def caught_up(self) -> None:
        """Wait until everybody has had every change."""
        self.wanted = len(self.due) * len(self._tasks)
        async with asyncio.timeout(PATIENCE):
            while self.seen < self.wanted:
                self._caught_up.clear()
                await self._caught_up.wait()

    async def close(self) -> None:
        """Send everybody home."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self) -> None:
        async for change in self._kv.watch(since=0):
            if (due := self.due.get(change.key)) is None:
                continue
            self.lags.append((time.perf_counter() - due) * 1000)
            self.seen += 1
            if self.seen >= self.wanted:
                self._caught_up.set()


async def watch(run: Run) -> None:
    """1, 10 and 100 watchers: changes a second that reached them all, and the p99 of their lag."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with (
            started_up(Path(folder)) as up,
            holdfast.open(up.url) as readers,
            holdfast.open(up.url) as writer,
        ):
            for number in run.rounds():
                for count in (1, 10, 100):
                    plugin = f"round{number}-{count}"
                    lag, rate = await _round(readers.kv(plugin), writer.kv(plugin), count, run.seconds)
                    run.book.add("watch.lag-p99", f"{count} watchers", lag, unit="ms")
                    run.book.add("watch.events", f"{count} watchers", rate, unit="/s")


async def _round(
    readers: holdfast.KV, writer: holdfast.KV, count: int, seconds: float
) -> tuple[float, float]:
    audience = Audience(readers, count)

    async def put(number: int, *, name: str) -> None:
        key = f"{name}:{number}"
        audience.due[key] = time.perf_counter()
        await writer.set(key, value(number))

    try:
        await put(0, name="first")
        await audience.caught_up()
        audience.lags.clear()
        await open_loop(lambda number: put(number, name="rate"), per_second=RATE, seconds=seconds)
        await audience.caught_up()
        lag, before, began = percentile(audience.lags, 0.99), audience.seen, time.perf_counter()
        await closed_loop(lambda number: put(number, name="flood"), in_flight=32, seconds=seconds)
        await audience.caught_up()
        return lag, (audience.seen - before) / (time.perf_counter() - began)
    finally:
        await audience.close()
