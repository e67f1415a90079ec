"""A process that puts entries which expire and sweeps them in runs, to be killed at any moment.

A line on standard output means that a group has been committed. The clock is one that jumps.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast
from holdfast.clock import ManualClock

MANY = 2000


async def sweep(path: str, life: int) -> None:
    """Let entries expire and sweep them, over and over, until killed."""
    clock = ManualClock()
    clock.advance(life * 100_000)
    async with holdfast.open(path, clock=clock, reap=False) as store:
        kv = store.kv("crash")
        store.measure(grouped=lambda size: print(size, flush=True), swept=lambda *given: None)
        for turn in range(1000):
            keys = [f"{life}:{turn}:{number}" for number in range(MANY)]
            for start in range(0, MANY, 500):
                await kv.set_many([{"key": key, "value": key, "ttl": 1} for key in keys[start : start + 500]])
            clock.advance(2)
            await store.sweep()


if __name__ == "__main__":
    asyncio.run(sweep(sys.argv[1], int(sys.argv[2])))
