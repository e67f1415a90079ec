"""The other verbs, of Holdfast alone: over NATS, embedded on SQLite and embedded on PostgreSQL.

The same calls through the public handle, at every door. Over NATS the handle is `holdfast.open` on the
service's address, which is the client that users of Python have.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import holdfast
from bench.doors import value
from bench.embedded import fill
from bench.measure import closed_loop
from bench.over_nats import told
from tests.edges.running import started_up
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bench.run import Run

    Call = Callable[[int], Awaitable[object]]

IN_FLIGHT: Final = 128
LISTED: Final = 1_000


async def verbs(run: Run) -> None:
    """List, contended compare-and-set, one counter, TTL sets, batches, few and many plugins, and items."""
    async with contextlib.AsyncExitStack() as stack:
        stores = {name: await stack.enter_async_context(open_()) for name, open_ in DOORS.items()}
        scenarios = {name: await _prepared(store) for name, store in stores.items()}
        for _ in run.rounds():
            for scenario, (_, in_flight, each) in next(iter(scenarios.values())).items():
                for door, calls in scenarios.items():
                    window = await closed_loop(calls[scenario][0], in_flight=in_flight, seconds=run.seconds)
                    told(run.book, window, scenario, door)
                    run.book.add(f"verbs.{scenario}", door, window.per_second * each, unit="/s")
                    run.book.add(f"verbs.{scenario}.p50", door, window.percentiles()["p50"], unit="ms")


async def _prepared(store: holdfast.Store) -> dict[str, tuple[Call, int, int]]:
    """What is called, how many are in flight, and how many operations a call is."""
    kv, many = store.kv("bench"), [store.kv(f"p{number}") for number in range(1_000)]
    await fill(store.kv("listed"), LISTED)
    return {
        "list-1000": (lambda _: store.kv("listed").list(limit=LISTED), 1, 1),
        "cas-on-10": (lambda number: compare_and_set(kv, f"contended:{number % 10}"), IN_FLIGHT, 1),
        "incr-on-1": (lambda _: kv.incr("counter"), IN_FLIGHT, 1),
        "append-to-1": (lambda n: kv.append("log", value(n), keep=1_000), IN_FLIGHT, 1),
        "set-with-ttl": (lambda n: kv.set(f"ttl:{n % 2000}", value(n), ttl=3600), IN_FLIGHT, 1),
        "batch-of-100": (lambda n: kv.batch(writes=_hundred(n)), 4, 100),
        "set-10-plugins": (lambda n: many[n % 10].set(f"key:{n % 2000}", value(n)), IN_FLIGHT, 1),
        "set-1000-plugins": (lambda n: many[n % 1000].set(f"key:{n % 2000}", value(n)), IN_FLIGHT, 1),
    } | await _items(store)


async def logs(run: Run) -> None:
    """Appends beside sets, and beside a head with compare-and-set; `once` beside request ids."""
    async with _on_sqlite() as store:
        kv, numbers = store.kv("bench"), itertools.count()
        sides: dict[str, Call] = {
            "append": lambda n: kv.append("log", value(n)),
            "append, keeping 1000": lambda n: kv.append("kept", value(n), keep=1_000),
            "append once": lambda n: kv.append("once", value(n), once=f"a{next(numbers)}"),
            "set of a new key": lambda n: kv.set(f"key:{next(numbers)}", value(n)),
            "set with a request id": lambda n: kv.set(
                f"k:{n % 2000}", value(n), request_id=f"r{next(numbers)}"
            ),
            "set once": lambda n: kv.set(f"k:{n % 2000}", value(n), once=f"o{next(numbers)}"),
            "head and item": lambda n: _head_and_item(kv, n),
        }
        for _ in run.rounds():
            for side, call in sides.items():
                window = await closed_loop(call, in_flight=10, seconds=run.seconds)
                told(run.book, window, "logs", side)
                run.book.add("logs.10", side, window.per_second, unit="/s")


async def _head_and_item(kv: holdfast.KV, number: int) -> None:
    """Append as a program does without `append`: the head counts the items, and its version decides."""
    for _ in itertools.repeat(None, 1_000):
        head = await kv.get("head")
        last, version = (0, 0) if head is None else (head.value, head.version)
        entry: dict[str, Any] = {"key": f"item/{last + 1:012}", "value": value(number)}
        writes = [{"key": "head", "value": last + 1}, entry]
        with contextlib.suppress(holdfast.VersionConflict):
            await kv.batch(checks=[{"key": "head", "version": version}], writes=writes)
            return
    raise RuntimeError("a race was lost a thousand times")


async def compare_and_set(kv: holdfast.KV, key: str) -> None:
    """Read a key and change it if nobody else has; a lost race is read again until it is won."""
    for _ in itertools.repeat(None, 1_000):
        entry = await kv.get(key)
        seen = 0 if entry is None else entry.version
        count = entry.value + 1 if entry is not None else 1
        with contextlib.suppress(holdfast.VersionConflict):
            await kv.set(key, count, expected_version=seen)
            return
    raise RuntimeError("a race was lost a thousand times")


def _hundred(number: int) -> list[dict[str, object]]:
    return [{"key": f"batch:{(number * 100 + step) % 2000}", "value": value(number)} for step in range(100)]


async def _items(store: holdfast.Store) -> dict[str, tuple[Call, int, int]]:
    tables = store.tables("bench")
    await tables.create_table("events", partition_key=("user", "string"), sort_key=("at", "number"))
    await tables.create_index("events", "by_score", key=("score", "number"))
    for start in range(0, 2_000, 100):
        await tables.transact_write(
            [{"put": {"table": "events", "item": item(start + n)}} for n in range(100)]
        )
    return {
        "put-item": (lambda n: tables.put_item("events", item(n % 2000)), IN_FLIGHT, 1),
        "get-item": (lambda n: tables.get_item("events", f"user{n % 20}", n % 2000), IN_FLIGHT, 1),
        "query-20": (lambda n: tables.query("events", f"user{n % 20}", limit=20), 32, 1),
        "query-index-20": (lambda n: tables.query_index("events", "by_score", n % 100, limit=20), 32, 1),
    }


def item(number: int) -> dict[str, object]:
    """An item of about 100 bytes; twenty users, a hundred scores."""
    return {"user": f"user{number % 20}", "at": number, "score": number % 100, "pad": "x" * 60}


@contextlib.asynccontextmanager
async def _over_nats() -> AsyncIterator[holdfast.Store]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with started_up(Path(folder)) as up, holdfast.open(up.url) as store:
            yield store


@contextlib.asynccontextmanager
async def _on_sqlite() -> AsyncIterator[holdfast.Store]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with holdfast.open(Path(folder) / "store.db") as store:
            yield store


@contextlib.asynccontextmanager
async def _on_postgres() -> AsyncIterator[holdfast.Store]:
    with postgres_server() as server:
        async with holdfast.open(server.create_database()) as store:
            yield store


DOORS: Final = {"nats": _over_nats, "embedded": _on_sqlite, "postgres": _on_postgres}
