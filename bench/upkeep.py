"""Removing what has expired, and what gets feel of it.

The store's own sweep, at one jump of its clock; gets come at a rate meanwhile, and their latencies count
from when they were due. A quiet while comes before each sweep, with all that it will remove in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.book import HOLDFAST
from bench.embedded import fill, in_turn
from bench.measure import open_loop, percentile
from bench.peers.drivers import SQLITE_DURABILITY, RawItems
from bench.sides import OWN_DURABILITY
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.embedded import Call
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


async def items(run: Run) -> None:
    """Items beside the same on the bare sqlite3 with the same index: get, put, queries of 1 and of 100."""
    run.book.durability |= {HOLDFAST: OWN_DURABILITY[HOLDFAST], "sqlite3": SQLITE_DURABILITY}
    count = 2_000
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        contextlib.closing(RawItems(Path(folder) / "raw.db")) as raw,
    ):
        for number in range(count):
            await raw.put(_item(number, None))
        async with holdfast.open(Path(folder) / "store.db", reap=False) as store:
            handle = await _filled(store, count)

            def changed(number: int) -> dict[str, object]:
                return _item(number % count, None) | {"pad": f"{number:060}"}

            async def beside(verb: str, ours: Call, theirs: Call, in_flight: int = 1) -> None:
                await in_turn(run, f"items.{verb}", {HOLDFAST: (ours, in_flight), "sqlite3": (theirs, 1)})

            await beside(
                "get", lambda n: _get(handle, n % count), lambda n: raw.get(_user(n % count), n % 100)
            )
            for in_flight in (1, 128):
                await beside(
                    f"put.{in_flight}",
                    lambda n: handle.put_item("events", changed(n)),
                    lambda n: raw.put(changed(n)),
                    in_flight,
                )
            for limit in (1, 100):
                await beside(
                    f"query-{limit}",
                    partial(_query, handle, count, limit),
                    partial(_raw_query, raw, count, limit),
                )
                await beside(
                    f"query-index-{limit}",
                    partial(_query_index, handle, count, limit),
                    partial(_raw_query_index, raw, count, limit),
                )


def _item_calls() -> dict[str, Callable[[holdfast.Tables, int], Callable[[int], Awaitable[object]]]]:
    """Each call by the handle and how many items there are, on any of them."""
    return {
        "get": lambda handle, count: lambda _: _get(handle, _CHANCE.randrange(count)),
        "query-100": lambda handle, count: lambda _: _query(handle, count, 100, _CHANCE.randrange(count)),
        "query-index-100": lambda handle, count: (
            lambda _: _query_index(handle, count, 100, _CHANCE.randrange(count))
        ),
    }


def _get(handle: holdfast.Tables, number: int) -> Awaitable[object]:
    return handle.get_item("events", _user(number), number % 100)


def _query(handle: holdfast.Tables, count: int, limit: int, number: int) -> Awaitable[object]:
    return handle.query("events", _user(number % count), limit=limit)


def _query_index(handle: holdfast.Tables, count: int, limit: int, number: int) -> Awaitable[object]:
    return handle.query_index("events", "by_score", number % count // 100, limit=limit)


def _raw_query(raw: RawItems, count: int, limit: int, number: int) -> Awaitable[object]:
    return raw.query(_user(number % count), limit)


def _raw_query_index(raw: RawItems, count: int, limit: int, number: int) -> Awaitable[object]:
    return raw.query_index(number % count // 100, limit)


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
