"""How cost grows with the number of keys: 10,000 to 10,000,000.

The files are filled with plain SQL in the order of their keys, which takes minutes where the verbs would take
hours. So the rows are packed as after a VACUUM and have no history; what is measured then goes through the
verbs, on keys spread over all of them.

All sizes are open at the same time and measured in turn.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import holdfast
from bench.client import Plan, Task, clients
from bench.doors import key_of, value
from bench.measure import closed_loop
from bench.over_nats import told, turned
from tests.edges.running import started_up

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bench.client import Clients
    from bench.measure import Window
    from bench.run import Run

SIZES: Final = (10_000, 100_000, 1_000_000, 10_000_000)
IN_FLIGHT: Final = 128
_CHANCE: Final = random.Random(1)
"""Never begun anew: keys that an earlier round has read would be in a cache."""
_FILL: Final = """
WITH RECURSIVE numbers(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)
INSERT INTO plugin_kv_storage (plugin_name, key, value_json, created_at, updated_at, version, last_writer)
SELECT 'bench', printf('key:%08d', n), ?, 1, 1, n + 1, 'bench' FROM numbers
"""
_COUNT: Final = """
UPDATE holdfast_namespaces SET revision = ?, keys = keys + ?, bytes = bytes + ? WHERE name = 'kv/bench'
"""


async def prepare(path: Path, count: int) -> None:
    """A store with so many keys of the plugin `bench`."""
    async with holdfast.open(path, reap=False) as store:
        await store.kv("bench").set("key:", 0)
    content = msgspec.json.encode(value(0)).decode()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for start in range(0, count, 500_000):
            connection.execute(_FILL, [start, min(start + 500_000, count), content])
        connection.execute(_COUNT, [count + 1, count, count * len(content)])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def growth(run: Run) -> None:
    """Bars 7 and 9: get, set and list over NATS and embedded, at every size."""
    from holdfast.engines.sqlite.setup import READER_KIB, WRITER_KIB

    run.book.note(
        "growth: files filled with plain SQL, packed; the connection that writes caches "
        f"{WRITER_KIB // 1024} MB of pages, those that read {READER_KIB // 1024} MB"
    )
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        paths = {}
        for count in SIZES:
            paths[f"{count:,}"] = path = Path(folder) / f"{count}" / "store.db"
            path.parent.mkdir()
            await prepare(path, count)
            run.book.add("growth.file", f"{count:,}", path.stat().st_size / 1e6, unit="MB")
        await _over_nats(run, paths)
        await _embedded(run, paths)


async def _over_nats(run: Run, paths: dict[str, Path]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        asking: dict[str, Clients] = {}
        stores: dict[str, holdfast.Store] = {}
        for name, path in paths.items():
            up = await stack.enter_async_context(started_up(path.parent, "--db", path))
            keys = int(name.replace(",", ""))
            plan = Plan(door="nats", url=up.url, plugins=["bench"], keys=keys)
            asking[name] = await stack.enter_async_context(clients(plan))
            stores[name] = await stack.enter_async_context(holdfast.open(up.url))
        for number in run.rounds():
            for verb, share in (("get", 1.0), ("set", 0.0)):
                for name in turned(list(paths), number):
                    window = await asking[name].work(
                        Task(gets=share, seconds=run.seconds, in_flight=IN_FLIGHT)
                    )
                    told(run.book, window, f"growth.nats.{verb}.{IN_FLIGHT}", name)
                    run.book.add(f"growth.nats.{verb}.{IN_FLIGHT}", name, window.per_second, unit="/s")
            for name in turned(list(paths), number):
                window = await _listed(stores[name].kv("bench"), run)
                run.book.add("growth.nats.list-1000.p50", name, window.percentiles()["p50"], unit="ms")


async def _listed(kv: holdfast.KV, run: Run) -> Window:
    return await closed_loop(lambda _: kv.list(limit=1_000), in_flight=1, seconds=run.seconds)


async def _embedded(run: Run, paths: dict[str, Path]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stores = {
            name: await stack.enter_async_context(holdfast.open(path, reap=False))
            for name, path in paths.items()
        }
        for number in run.rounds():
            for verb in ("get", "set"):
                for name in turned(list(paths), number):
                    window = await _spread(stores[name].kv("bench"), verb, int(name.replace(",", "")), run)
                    told(run.book, window, f"growth.embedded.{verb}.{IN_FLIGHT}", name)
                    run.book.add(f"growth.embedded.{verb}.{IN_FLIGHT}", name, window.per_second, unit="/s")


async def _spread(kv: holdfast.KV, verb: str, count: int, run: Run) -> Window:
    def call(number: int) -> Awaitable[object]:
        key = key_of(_CHANCE.randrange(count))
        return kv.get(key) if verb == "get" else kv.set(key, value(number))

    return await closed_loop(call, in_flight=IN_FLIGHT, seconds=run.seconds)
