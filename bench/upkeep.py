"""Removing what has expired, and what gets feel of it.

The store's own sweep, at one jump of its clock; gets come at a rate meanwhile, and their latencies count
from when they were due. A quiet while comes before each sweep, with all that it will remove in the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.embedded import fill
from bench.measure import open_loop, percentile
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.measure import Window
    from bench.run import Run

LIVE: Final = 10_000
GETS: Final = 1_000
"""How many gets a second come meanwhile."""
LARGEST: Final = 1_000_000
_CHANCE: Final = random.Random(1)
"""Never begun anew: items that an earlier round has read would be in a cache."""


class Ahead:
    """The wall clock, and whatever it was told to jump."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> int:
        """Milliseconds."""
        return int((time.time() + self._ahead) * 1000)

    def jump(self, seconds: float) -> None:
        """Go ahead."""
        self._ahead += seconds


async def cleanup(run: Run) -> None:
    """Bar 8: 10,000, 100,000 and 1,000,000 expired entries on SQLite, and 10,000 on PostgreSQL."""
    await _sqlite(run, 10_000, rounds=run.count)
    for count in (100_000, LARGEST):
        await _sqlite(run, count, rounds=min(run.count, 3))
    run.book.note("cleanup: 100,000 and 1,000,000 are swept in at most 3 rounds, since filling takes long")
    with postgres_server() as server:
        await _swept(run, server.create_database(), 10_000, rounds=run.count, side="holdfast-postgres")


async def cleanup_small(run: Run) -> None:
    """10,000 expired entries on SQLite."""
    await _sqlite(run, 10_000, rounds=run.count)


async def _sqlite(run: Run, count: int, *, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        await _swept(run, str(Path(folder) / "store.db"), count, rounds=rounds, side="holdfast")


async def _swept(run: Run, url: str, count: int, *, rounds: int, side: str) -> None:
    clock = Ahead()
    async with holdfast.open(url, reap=False, clock=clock) as store:
        kv = store.kv("bench")
        await fill(kv, LIVE, name="live")
        for _ in range(rounds):
            await fill(kv, count, name="dead", ttl=60)
            await asyncio.to_thread(os.sync)  # what the filling left to the disk is no part of the sweep
            quiet = await _gets(kv, after(run.seconds))
            clock.jump(61)
            seconds, swept = await during(store.sweep, lambda until: _gets(kv, until), count)
            run.book.add(f"cleanup.{count}.seconds", side, seconds, unit="s")
            run.book.add(f"cleanup.{count}.rate", side, count / seconds, unit="/s")
            if side == "holdfast":
                for name, window in (("quiet", quiet), ("sweeping", swept)):
                    run.book.add(
                        f"cleanup.{count}.get-p99", name, percentile(window.latencies, 0.99), unit="ms"
                    )


async def during(
    sweep: Callable[[], Awaitable[int]],
    gets: Callable[[Callable[[], bool]], Awaitable[Window]],
    count: int,
) -> tuple[float, Window]:
    """Sweep while gets come: the seconds it took, and the gets' window."""
    began, took = time.perf_counter(), 0.0

    async def timed() -> int:
        nonlocal took
        removed = await sweep()
        took = time.perf_counter() - began
        return removed

    sweeping = asyncio.create_task(timed())
    window = await gets(sweeping.done)
    if (removed := await sweeping) != count:
        raise RuntimeError(f"a sweep removed {removed} of {count}")
    return took, window


def after(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have gone since."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


async def _gets(kv: holdfast.KV, until: Callable[[], bool]) -> Window:
    return await open_loop(lambda n: kv.get(f"live:{n % LIVE:08}"), per_second=GETS, until=until)


# Tables


async def tables(run: Run) -> None:
    """Items: get, query and query_index at 10,000 and 1,000,000 items, and a sweep of 100,000 beside gets."""
    from bench.embedded import in_turn

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        clock = Ahead()
        async with (
            holdfast.open(Path(folder) / "small.db", reap=False, clock=clock) as small,
            holdfast.open(Path(folder) / "large.db", reap=False) as large,
        ):
            sides = {"10,000": await _filled(small, 10_000), "1,000,000": await _filled(large, 1_000_000)}
            counts = {"10,000": 10_000, "1,000,000": 1_000_000}
            for verb, call in _item_calls().items():
                await in_turn(
                    run,
                    f"tables.{verb}",
                    {name: (call(handle, counts[name]), 32) for name, handle in sides.items()},
                )
            await _sweep_items(run, sides["10,000"], clock)


def _item_calls() -> dict[str, Callable[[holdfast.Tables, int], Callable[[int], Awaitable[object]]]]:
    """Each call by the handle and how many items there are, on any of them."""
    return {
        "get": lambda handle, count: lambda _: _get(handle, _CHANCE.randrange(count)),
        "query-100": lambda handle, count: lambda _: _query(handle, _CHANCE.randrange(count)),
        "query-index-100": lambda handle, count: lambda _: _query_index(handle, _CHANCE.randrange(count)),
    }


def _get(handle: holdfast.Tables, number: int) -> Awaitable[object]:
    return handle.get_item("events", _user(number), number % 100)


def _query(handle: holdfast.Tables, number: int) -> Awaitable[object]:
    return handle.query("events", _user(number), limit=100)


def _query_index(handle: holdfast.Tables, number: int) -> Awaitable[object]:
    return handle.query_index("events", "by_score", number // 100, limit=100)


def _user(number: int) -> str:
    return f"user{number // 100}"


async def _filled(store: holdfast.Store, count: int) -> holdfast.Tables:
    """A hundred items for each user, and a hundred for each score, put through the verbs."""
    handle = store.tables("bench")
    await handle.create_table(
        "events", partition_key=("user", "string"), sort_key=("at", "number"), ttl_attribute="gone"
    )
    await handle.create_index("events", "by_score", key=("score", "number"))
    await _put(handle, range(count), gone=None)
    return handle


async def _put(handle: holdfast.Tables, numbers: range, *, gone: int | None) -> None:
    for start in range(0, len(numbers), 500):
        await handle.batch_write_item(
            "events",
            [{"put": {"item": _item(number, gone)}} for number in numbers[start : start + 500]],
        )


def _item(number: int, gone: int | None) -> dict[str, object]:
    made = {"user": _user(number), "at": number % 100, "score": number // 100, "pad": "x" * 60}
    return made if gone is None else made | {"gone": gone}


async def _sweep_items(run: Run, handle: holdfast.Tables, clock: Ahead) -> None:
    async def sweep() -> int:
        removed = 0
        while (some := await handle.sweep_expired_ttl("events")) > 0:
            removed += some
        return removed

    async def gets(until: Callable[[], bool]) -> Window:
        call = _item_calls()["get"](handle, 10_000)
        return await open_loop(call, per_second=GETS, until=until)

    count, gone = 100_000, clock.now() // 1000 + 3600
    await _put(handle, range(LARGEST, LARGEST + count), gone=gone)
    await asyncio.to_thread(os.sync)
    quiet = await gets(after(run.seconds))
    clock.jump(3601)
    seconds, swept = await during(sweep, gets, count)
    run.book.add("tables.cleanup.100000.rate", "holdfast", count / seconds, unit="/s")
    for name, window in (("quiet", quiet), ("sweeping", swept)):
        run.book.add("tables.cleanup.100000.get-p99", name, percentile(window.latencies, 0.99), unit="ms")
