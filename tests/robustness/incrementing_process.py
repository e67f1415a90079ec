"""A process that counts, by CAS and by incr, together with others on the same store."""

from __future__ import annotations

import asyncio
import sys

import holdfast


async def increment(url: str, *, tasks: int, times: int) -> None:
    """Add one to each of two counters, `times` from each of `tasks`."""
    async with holdfast.open(url, reap=False) as store:
        kv = store.kv("count")
        await asyncio.gather(*(_by_incr(kv, times) for _ in range(tasks)))
        await asyncio.gather(*(_by_cas(kv, times) for _ in range(tasks)))


async def _by_incr(kv: holdfast.KV, times: int) -> None:
    for _ in range(times):
        await kv.incr("incr")


async def _by_cas(kv: holdfast.KV, times: int) -> None:
    entry = await kv.get("cas")
    while times:
        value, version = (0, 0) if entry is None else (entry.value, entry.version)
        try:
            entry = await kv.set("cas", value + 1, expected_version=version)
        except holdfast.VersionConflict as conflict:
            entry = conflict.current
        else:
            times -= 1


if __name__ == "__main__":
    asyncio.run(increment(sys.argv[1], tasks=int(sys.argv[2]), times=int(sys.argv[3])))
