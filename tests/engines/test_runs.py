"""Entries that expire in a run leave what they would have left one by one, on every engine.

Two stores get the same commands at the same times; one is swept in runs, the other key by key. What can
be seen through the protocol must be the same, and nothing is known here of what is right.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec
import pytest

from holdfast.commands import Removed
from holdfast.engine import JournalQuery, Scan
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sql.layout import WALK
from holdfast.engines.sqlite import SqliteEngine
from holdfast.rows import KV, Address
from holdfast.upkeep_commands import Expire, ExpireRun
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.engine import Engine

NOW: Final = 1_700_000_000_000
LATER: Final = NOW + 100_000
NAMES: Final = ("kv/a", "kv/b")
OUTSIDE: Final = (
    "INSERT INTO plugin_kv_storage (plugin_name, key, value_json, expires_at) "
    "VALUES ('a', 'outside', '1', {})"
)


@asynccontextmanager
async def opened(make: Callable[[], Engine]) -> AsyncIterator[Engine]:
    """An engine, from its start to its end."""
    engine = make()
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


async def fill(engine: Engine, seed: int) -> None:
    """Entries of two namespaces, many with a deadline of their own, some of which are reached later."""
    dice = random.Random(seed)
    deadlines = iter(dice.sample(range(1, 150), 120))
    for name in NAMES:
        verbs = Verbs(name, writer="w", new_id=id_maker(), now=lambda: 0)
        for number in range(60):
            value, key = "é" * dice.randrange(30), f"{dice.random()}{'ü' * (number % 3)}"
            meant = {"purpose": "config"} if dice.random() < 0.1 else None
            ttl = None if dice.random() < 0.1 else next(deadlines)
            command = verbs.set(key, value, ttl=ttl, semantics=meant, writer=f"w{number % 4}")
            await engine.transact([command], lambda: NOW)


async def in_runs(engine: Engine, name: str, limit: int) -> int:
    """Have all that may go in runs do so; how many those were."""
    total = 0
    while True:
        outcome = await engine.transact([ExpireRun(namespace=name, limit=limit)], lambda: LATER)
        [result] = outcome.results
        assert isinstance(result, Removed)
        assert [run.count for run in outcome.runs] == [result.count] * bool(result.count)
        if not result.count:
            return total
        total += result.count


async def one_by_one(engine: Engine, name: str, *, plain: bool) -> int:
    """Notice what is due, key by key: what would go in runs, or the rest."""
    due = await engine.due(KV, LATER, limit=1000, namespace=name)
    rows = await engine.read([Address(name, KV, one.key) for one in due], NOW - 10**9)
    keys = [one.key for one, row in zip(due, rows, strict=True) if row and (row.semantics is None) == plain]
    await engine.transact([Expire(namespace=name, space=KV, keys=tuple(keys))], lambda: LATER)
    return len(keys)


async def seen(engine: Engine) -> list[object]:
    """All that can be seen of an engine."""
    found: list[object] = [await engine.totals(LATER)]
    for name in NAMES:
        page = await engine.journal(JournalQuery(namespace=name, limit=1000))
        found.append([_told(record) for record in page.records])
        found.append((page.floor, page.head))
        scan = Scan(namespace=name, space=KV, start="", limit=1000, max_bytes=10**6)
        found.append((await engine.scan(scan, LATER)).keys)
        found.append(await engine.due(KV, LATER, limit=1000, namespace=name))
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_a_run_of_expiries_equals_expiring_one_by_one(make: Callable[[], Engine], seed: int) -> None:
    """Versions, records, counters and what is left are the same, whichever way entries expire."""
    async with AsyncExitStack() as stack:
        runs, singles = [await stack.enter_async_context(opened(make)) for _ in range(2)]
        for engine in (runs, singles):
            await fill(engine, seed)
        for name in NAMES:
            assert await in_runs(runs, name, limit=7) == await one_by_one(singles, name, plain=True) > 20
            for engine in (runs, singles):
                await one_by_one(engine, name, plain=False)
        assert await seen(runs) == await seen(singles)
        assert await runs.due(KV, LATER, limit=9) == []


async def test_entries_with_one_deadline_expire_once_across_runs(make: Callable[[], Engine]) -> None:
    """Entries that expire at the same instant go as far as a run may, without any twice or left out."""
    async with opened(make) as engine:
        verbs = Verbs("kv/a", writer="w", new_id=id_maker(), now=lambda: 0)
        await engine.transact([verbs.set(f"{n:03}", "x" * n, ttl=1) for n in range(100)], lambda: NOW)
        assert await in_runs(engine, "kv/a", limit=9) == 100
        [totals] = await engine.totals(LATER)
        assert (totals.namespace.keys, totals.namespace.bytes, totals.namespace.revision) == (0, 0, 200)
        page = await engine.journal(JournalQuery(namespace="kv/a", since=100, limit=1000))
        assert sorted(record.key for record in page.records) == [f"{n:03}" for n in range(100)]
        assert [record.version for record in page.records] == list(range(101, 201))


async def test_two_sweeps_in_one_group_count_each_entry_once(make: Callable[[], Engine]) -> None:
    """Two sweeps that come together count each entry once: the second finds what the first has left."""
    async with opened(make) as engine:
        verbs = Verbs("kv/a", writer="w", new_id=id_maker(), now=lambda: 0)
        await engine.transact([verbs.set(f"{n}", 1, ttl=1) for n in range(10)], lambda: NOW)
        outcome = await engine.transact([ExpireRun(namespace="kv/a", limit=6)] * 2, lambda: LATER)
        assert outcome.results == [Removed(6), Removed(0)]
        assert await in_runs(engine, "kv/a", limit=6) == 4
        [totals] = await engine.totals(LATER)
        assert (totals.namespace.keys, totals.namespace.bytes, totals.namespace.revision) == (0, 0, 20)


async def test_a_run_takes_a_bounded_number_of_one_namespace_only(make: Callable[[], Engine]) -> None:
    """A run looks at a bounded number of due entries, and takes none of another namespace."""
    async with opened(make) as engine:
        for name, ttl, count in (("kv/a", 2, 30), ("kv/b", 1, WALK)):
            verbs = Verbs(name, writer="w", new_id=id_maker(), now=lambda: 0)
            await engine.transact([verbs.set(f"{n}", 1, ttl=ttl) for n in range(count)], lambda: NOW)
        removed = await in_runs(engine, "kv/a", limit=50)
        assert removed == (30 if isinstance(engine, MemoryEngine) else 0)
        assert len(await engine.due(KV, LATER, limit=2 * WALK, namespace="kv/b")) == WALK
        assert await in_runs(engine, "kv/b", limit=500) == WALK
        assert await in_runs(engine, "kv/a", limit=50) == 30 - removed


@pytest.mark.parametrize("make", ["sqlite", "postgres"], indirect=True)
async def test_a_run_expires_rows_written_with_sql(make: Callable[[], Engine]) -> None:
    """A row that another program wrote expires in a crowd like any other, is uncounted and recorded."""
    async with opened(make) as engine:
        verbs = Verbs("kv/a", writer="w", new_id=id_maker(), now=lambda: 0)
        await engine.transact([verbs.set(f"{n}", 1, ttl=1) for n in range(10)], lambda: NOW)
        await _insert_outside(engine)
        assert await in_runs(engine, "kv/a", limit=100) == 11
        [totals] = await engine.totals(LATER)
        assert (totals.namespace.keys, totals.namespace.bytes, totals.namespace.revision) == (0, 0, 22)
        assert await engine.due(KV, LATER, limit=9) == []


async def _insert_outside(engine: Engine) -> None:
    if isinstance(engine, SqliteEngine):
        with closing(sqlite3.connect(engine.path, isolation_level=None)) as file:
            file.execute(OUTSIDE.format(NOW + 1))
    elif isinstance(engine, PostgresEngine):
        server = await asyncpg.connect(engine._dsn)
        await server.execute(OUTSIDE.format(f"to_timestamp({(NOW + 1) / 1000})"))
        await server.close()


def _told(record: Any) -> Any:
    return msgspec.structs.replace(record, request_id=None)
