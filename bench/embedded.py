"""What is measured of a store in this process.

Law: a scenario runs both sides of its comparison in turn, in one process, on the same files.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.measure import Comparison, latencies, percentile, throughput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

VALUE: Final = {"turn": "alice", "score": [3, 1, 4], "pad": "x" * 60}
EXPIRED: Final = 100_000


async def group_commit(rounds: int, seconds: float) -> Comparison:
    """Durable sets on SQLite: 128 at a time against one at a time."""
    alone: list[float] = []
    together: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with holdfast.open(Path(folder) / "store.db", reap=False) as store:
            kv = store.kv("bench")
            for _ in range(rounds):
                for in_flight, found in ((1, alone), (128, together)):
                    found.append(
                        await throughput(
                            lambda number: kv.set(f"key:{number % 10_000}", VALUE),
                            in_flight=in_flight,
                            seconds=seconds,
                        )
                    )
    ratio = statistics.median(new / old for new, old in zip(together, alone, strict=True))
    return Comparison(
        "sqlite: durable sets, 128 in flight against 1",
        unit="sets/s",
        base=alone,
        measured=together,
        bar="at least 4 x",
        passed=ratio >= 4,
    )


async def sweep(rounds: int, seconds: float) -> Comparison:
    """The p99 of gets on SQLite while 100,000 expired entries are swept, against quiet."""
    quiet: list[float] = []
    swept: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        clock = _Ahead()
        async with holdfast.open(Path(folder) / "store.db", reap=False, clock=clock) as store:
            kv = store.kv("bench")
            await _fill(kv, "live", 10_000, ttl=None)
            for _ in range(rounds):
                quiet.append(await _p99(kv, partial(_past, time.perf_counter() + seconds)))
                await _fill(kv, "dead", EXPIRED, ttl=60)
                clock.jump(61)
                swept.append(await _p99_during(kv, store))
    ratio = statistics.median(new / old for new, old in zip(swept, quiet, strict=True))
    return Comparison(
        f"sqlite: p99 of gets while {EXPIRED:,} expire",
        unit="ms",
        base=quiet,
        measured=swept,
        bar="at most 3 x",
        passed=ratio <= 3,
    )


class _Ahead:
    """The wall clock, and whatever it was told to jump."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> int:
        return int((time.time() + self._ahead) * 1000)

    def steer(self, offset: float) -> None:
        """There is nothing to steer by."""

    def jump(self, seconds: float) -> None:
        self._ahead += seconds


def _past(end: float) -> bool:
    return time.perf_counter() > end


async def _fill(kv: holdfast.KV, name: str, count: int, *, ttl: int | None) -> None:
    for start in range(0, count, 1_000):
        keys = range(start, min(start + 1_000, count))
        await kv.batch(writes=[{"key": f"{name}:{key:06}", "value": VALUE, "ttl": ttl} for key in keys])


async def _p99(kv: holdfast.KV, until: Callable[[], bool]) -> float:
    def get(number: int) -> Awaitable[object]:
        return kv.get(f"live:{number % 10_000:06}")

    return percentile(await latencies(get, per_second=1_000, until=until), 0.99)


async def _p99_during(kv: holdfast.KV, store: holdfast.Store) -> float:
    sweeping = asyncio.create_task(store.sweep())
    p99 = await _p99(kv, sweeping.done)
    if await sweeping != EXPIRED:
        raise RuntimeError("the sweep did not remove what had expired")
    return p99
