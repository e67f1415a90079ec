"""A program that sees entries expire, as a process of its own whose wall clock a file sets from outside.

    python -m tests.clocks.expiring_process STORAGE SKEW KEYS

It writes so many entries that live for a second. As soon as it has seen that all of them are gone, it
prints their versions as JSON, and then it sees that they are gone again and again until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import holdfast
from holdfast.clock import SystemClock
from tests.clocks.skewed_process import Skew


async def expire(storage: str, skew: Skew, count: int) -> None:
    """Write the entries, and look at them."""
    async with holdfast.open(storage, clock=SystemClock(wall=skew.wall)) as store:
        kv, keys = store.kv("trivia"), [f"gone{number}" for number in range(count)]
        written = await kv.set_many([{"key": key, "value": 1, "ttl": 1} for key in keys])
        versions = {entry.key: entry.version for entry in written if isinstance(entry, holdfast.Entry)}
        told = False
        while True:
            there = any(entry is not None for entry in await kv.get_many(keys))
            if not there and not told:
                sys.stdout.write(f"{json.dumps(versions)}\n")
                sys.stdout.flush()
                told = True
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(expire(sys.argv[1], Skew(Path(sys.argv[2])), int(sys.argv[3])))
