"""A store in this process beside diskcache, the bare drivers and itself, in turn.

Both sides of a comparison run in this process and on this disk. What blocks the loop is called directly
where that is its quickest way.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
import holdfast.sync
from bench.book import HOLDFAST
from bench.doors import value
from bench.machine import package
from bench.measure import closed_loop
from bench.over_nats import told, turned
from bench.peers import diskcache
from bench.peers.drivers import ASYNCPG_DURABILITY, SQLITE_DURABILITY, RawAsyncpg, RawSqlite
from bench.sides import OWN_DURABILITY
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bench.run import Run

    Call = Callable[[int], Awaitable[object]]

KEYS: Final = 2_000


def key(number: int) -> str:
    """The key of a call."""
    return f"key:{number % KEYS:08}"


async def in_turn(
    run: Run, scenario: str, sides: Mapping[str, tuple[Call, int]], *, each: int | dict[str, int] = 1
) -> None:
    """Calls a second of each side, by the round; a call may be worth several (`each`)."""
    for number in run.rounds():
        for side in turned(list(sides), number):
            call, in_flight = sides[side]
            window = await closed_loop(call, in_flight=in_flight, seconds=run.seconds)
            told(run.book, window, scenario, side)
            worth = each if isinstance(each, int) else each.get(side, 1)
            run.book.add(scenario, side, window.per_second * worth, unit="/s")


async def embedded(run: Run) -> None:
    """Bar 5: durable sets of 128 tasks and sequential gets, beside diskcache and the bare sqlite3."""
    run.book.durability |= {
        HOLDFAST: OWN_DURABILITY[HOLDFAST],
        "diskcache": diskcache.DURABILITY,
        "sqlite3": SQLITE_DURABILITY,
    }
    run.book.versions.setdefault("diskcache", package("diskcache"))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        cache = stack.enter_context(diskcache.DiskCache(folder / "cache"))
        raw = stack.enter_context(contextlib.closing(RawSqlite(folder / "raw.db")))
        async with holdfast.open(folder / "store.db", reap=False) as store:
            kv = store.kv("bench")
            for number in range(KEYS):
                await cache.set(key(number), value(number))
            await raw.set_many([key(number) for number in range(KEYS)], value(0))
            await fill(kv, KEYS)
            await _embedded(run, kv, cache, raw)
        await _without_asyncio(run, folder / "store.db", cache)


async def _embedded(run: Run, kv: holdfast.KV, cache: diskcache.DiskCache, raw: RawSqlite) -> None:
    def many(number: int) -> Awaitable[None]:
        return raw.set_many([key(number * 128 + step) for step in range(128)], value(number))

    await in_turn(
        run,
        "embedded.set.128",
        {
            HOLDFAST: (lambda number: kv.set(key(number), value(number)), 128),
            "diskcache": (lambda number: cache.set(key(number), value(number)), 1),
            "sqlite3": (lambda number: raw.set(key(number), value(number)), 1),
            "sqlite3 by 128": (many, 1),
        },
        each={"sqlite3 by 128": 128},
    )
    await in_turn(
        run,
        "embedded.get.1",
        {
            HOLDFAST: (lambda number: kv.get(key(number)), 1),
            "diskcache": (lambda number: cache.get(key(number)), 1),
            "sqlite3": (lambda number: raw.get(key(number)), 1),
        },
    )


async def _without_asyncio(run: Run, path: Path, cache: diskcache.DiskCache) -> None:
    """Sequential gets with and without `await`: the same store, in turn on the loop and in this thread.

    Beside them diskcache, which has no other way.
    """
    with holdfast.sync.open(path, reap=False) as store:
        kv = store.kv("bench")

        async def plainly(number: int) -> object:
            return kv.get(key(number))

        async def on_the_loop(scenario: str) -> None:
            window = await closed_loop(
                lambda number: kv._handle.get(key(number)), in_flight=1, seconds=run.seconds
            )
            told(run.book, window, scenario, HOLDFAST)
            run.book.add(scenario, HOLDFAST, window.per_second, unit="/s")

        for number in run.rounds():
            for side in turned([HOLDFAST, "sync", "diskcache"], number):
                if side == HOLDFAST:
                    kv._thread.run(on_the_loop("embedded.sync-get.1"))
                else:
                    call: Call = plainly if side == "sync" else lambda number: cache.get(key(number))
                    window = await closed_loop(call, in_flight=1, seconds=run.seconds)
                    told(run.book, window, "embedded.sync-get.1", side)
                    run.book.add("embedded.sync-get.1", side, window.per_second, unit="/s")


async def group_commit(run: Run) -> None:
    """Durable sets on SQLite: 128 at a time against one at a time, and the pages of a group in the log."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "store.db"
        async with holdfast.open(path, reap=False) as store:
            kv = store.kv("bench")
            await fill(kv, KEYS)
            for count in (1, 64, 128):
                for number in range(5):
                    pages = await _pages(path, kv, range(number * count, (number + 1) * count))
                    run.book.add("group_commit.pages", f"{count} in flight", pages, unit="pages")
            sides = {
                f"{count} in flight": (lambda number: kv.set(key(number), value(number)), count)
                for count in (1, 128)
            }
            await in_turn(run, "group_commit", sides)


async def _pages(path: Path, kv: holdfast.KV, numbers: range) -> int:
    """Set keys that are far apart, all at once, and return how many pages that has added to the log."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        await asyncio.gather(*(kv.set(key(number * 1_009), value(number)) for number in numbers))
        [_, pages, _] = file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)


async def postgres(run: Run) -> None:
    """Bar 6: sets and gets of 128 tasks on PostgreSQL, beside asyncpg on as many held connections."""
    run.book.durability |= {"asyncpg": ASYNCPG_DURABILITY}
    run.book.durability[f"{HOLDFAST} (postgres.*)"] = OWN_DURABILITY["holdfast-postgres"]
    with postgres_server() as server:
        dsn = server.create_database()
        async with RawAsyncpg(dsn) as raw, holdfast.open(dsn, reap=False) as store:
            kv = store.kv("bench")
            await fill(kv, KEYS)
            for number in range(KEYS):
                await raw.set(key(number), value(number))
            for verb, ours, theirs in (
                (
                    "set",
                    lambda number: kv.set(key(number), value(number)),
                    lambda number: raw.set(key(number), value(number)),
                ),
                ("get", lambda number: kv.get(key(number)), lambda number: raw.get(key(number))),
            ):
                await in_turn(run, f"postgres.{verb}.128", {HOLDFAST: (ours, 128), "asyncpg": (theirs, 128)})


async def fill(kv: holdfast.KV, count: int, *, ttl: int | None = None, name: str = "key") -> None:
    """Put so many keys, a thousand in a batch."""
    for start in range(0, count, 1_000):
        numbers = range(start, min(start + 1_000, count))
        await kv.batch(writes=[{"key": f"{name}:{n:08}", "value": value(n), "ttl": ttl} for n in numbers])
