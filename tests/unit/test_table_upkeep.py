"""What is done for tables unasked: unfinished indexes are filled, and expired items go on request."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
import holdfast.upkeep.tables
from holdfast.clock import ManualClock
from holdfast.commands import Removed
from holdfast.decide import Loaded, decide
from holdfast.edges import serve
from holdfast.edges.settings.table import Config
from holdfast.engine import Scan
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import Busy, InternalError, QuotaExceeded, Unavailable
from holdfast.rows import DROPPED, Address, Namespace, Row
from holdfast.store import Store
from holdfast.tables.commands import Defined, FillIndex, Purge
from holdfast.upkeep.tables import finish_indexes, reap_tables, sweep_tables
from tests.verbs import TableVerbs

PATIENCE = 60.0
NOW = 1_700_000_000


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store."""
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    """A store that does nothing by itself."""
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        yield store


async def interrupted(store: Store, *, items: int, plugin: str = "trivia") -> None:
    """Leave an index behind that was begun and never filled, as a process does that ends meanwhile."""
    tables = store.tables(plugin)
    await tables.create_table("t", partition_key=("id", "number"))
    writes = [{"put": {"item": {"id": number, "team": "red"}}} for number in range(items)]
    await tables.batch_write_item("t", writes)
    verbs = TableVerbs(store.pipeline.verbs(f"table/{plugin}"))
    key = {"name": "team", "type": "string"}
    await store.pipeline.execute(verbs.create_index({"table": "t", "index": "by-team", "index_key": key}))


async def state(store: Store) -> str:
    """What the index is like."""
    described = await store.tables("trivia").describe_table("t")
    return str(described["indexes"][0]["state"])


async def test_upkeep_fills_an_index_that_nobody_finished(store: Store) -> None:
    """An interrupted index answers no query until upkeep has filled it; then it has every item."""
    await interrupted(store, items=300)
    with pytest.raises(Busy):
        await store.tables("trivia").query_index("t", "by-team", "red")
    await store.upkeep()
    assert (await store.tables("trivia").query_index("t", "by-team", "red")).count == 300
    assert (await store.tables("trivia").check_index("t", "by-team"))["consistent"] is True


async def test_an_index_for_which_there_is_no_room_does_not_keep_others_waiting(store: Store) -> None:
    """A quota may refuse to fill it each time. The indexes of other plugins are filled all the same."""
    await interrupted(store, items=30, plugin="full")
    await interrupted(store, items=30)
    await store.set_policy("table/full", {"quota_bytes": 1})
    with pytest.raises(QuotaExceeded):
        await finish_indexes(store.pipeline)
    assert await state(store) == "ready"


async def test_the_same_call_goes_on_with_an_index(store: Store) -> None:
    """Whoever was interrupted may also call create_index again."""
    await interrupted(store, items=3)
    made = await store.tables("trivia").create_index("t", "by-team", key=("team", "string"))
    assert made["indexes"][0]["state"] == "ready"


async def test_two_who_fill_the_same_index_do_no_harm(store: Store) -> None:
    """Several processes may go on with an index at once, while items change."""
    await interrupted(store, items=300)
    tables = store.tables("trivia")
    await asyncio.gather(
        finish_indexes(store.pipeline),
        finish_indexes(store.pipeline),
        *(tables.delete_item("t", number) for number in range(0, 300, 7)),
        *(tables.put_item("t", {"id": number, "team": "blue"}) for number in range(0, 300, 5)),
    )
    assert (await tables.check_index("t", "by-team"))["consistent"] is True
    assert (await state(store), await store.recount("table/trivia")) == ("ready", 0)


async def test_an_index_is_not_filled_with_what_has_expired(store: Store, clock: ManualClock) -> None:
    """An item that expires between being found and being entered gets no entry, which nobody would remove."""
    await expiring(store, "trivia", items=3)
    verbs = TableVerbs(store.pipeline.verbs("table/trivia"))
    made = await store.pipeline.execute(
        verbs.create_index(
            {"table": "t", "index": "by-end", "index_key": {"name": "expires", "type": "number"}}
        )
    )
    assert isinstance(made, Defined)
    [index], space = made.schema.indexes, made.schema.item_space
    query = Scan(namespace="table/trivia", space=space, start=b"", limit=9, max_bytes=10**6)
    keys = tuple((await store._engine.scan(query, clock.now())).keys)
    clock.advance(1)
    fill = FillIndex(
        namespace="table/trivia", table="t", index_id=index.id, space=space, keys=keys, last=True
    )
    assert await store.pipeline.call(fill) == Removed(0)


async def test_upkeep_removes_all_rows_of_a_dropped_table(tmp_path: Path) -> None:
    """Upkeep removes the items and index entries of a dropped table from the file, and of no other."""
    path = tmp_path / "state.db"
    async with holdfast.open(path, reap=False) as store:
        tables = store.tables("trivia")
        for name in ("gone", "stays"):
            await tables.create_table(name, partition_key=("id", "number"))
            await tables.create_index(name, "by-team", key=("team", "string"))
            await tables.put_item(name, {"id": 1, "team": "red"})
        await tables.drop_table("gone")
        await store.upkeep()
        rows = (
            "SELECT space, key FROM holdfast_rows WHERE space LIKE 'i%' OR space = 'dropped' ORDER BY space"
        )
        with closing(sqlite3.connect(path)) as file:
            [(index, _), (items, key)] = file.execute(rows).fetchall()
        assert (index.partition("/")[0], items.partition("/")[0]) == ("index", "item")
        purge = Purge(namespace="table/trivia", space=items, keys=(key,), last=True)
        assert await store.pipeline.call(purge) == Removed(0)
        assert await tables.get_item("stays", 1) is not None


def test_rows_that_another_process_has_purged_are_not_counted() -> None:
    """A purge of rows that another process has just removed removes and counts nothing."""
    marker = Row(value="", size=0, version=1, created_at=0, updated_at=0)
    loaded = Loaded(
        namespaces={"table/trivia": Namespace(name="table/trivia", keys=1)},
        rows={Address("table/trivia", DROPPED, b"item/1"): marker},
    )
    purge = Purge(namespace="table/trivia", space="item/1", keys=(b"gone",), last=False)
    outcome = decide(loaded, [purge], 0)
    assert (outcome.results, outcome.rows, outcome.namespaces) == ([Removed(0)], {}, [])


async def test_a_store_that_is_opened_goes_on_with_indexes(tmp_path: Path) -> None:
    """After a restart an unfinished index is filled without anybody asking."""
    path = str(tmp_path / "state.db")
    async with holdfast.open(path, reap=False) as store:
        await interrupted(store, items=10)
        assert await state(store) == "building"
    async with asyncio.timeout(PATIENCE), holdfast.open(path) as store:
        while await state(store) != "ready":  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)
        assert (await store.tables("trivia").query_index("t", "by-team", "red")).count == 10


async def expiring(store: Store, plugin: str, *, items: int) -> None:
    """A table with items that expire a second after the clock's beginning, and one without a deadline."""
    tables = store.tables(plugin)
    await tables.create_table("t", partition_key=("id", "number"), ttl_attribute="expires")
    await tables.create_table("plain", partition_key=("id", "number"))
    writes = [{"put": {"item": {"id": number, "expires": NOW + 1}}} for number in range(items)]
    await tables.batch_write_item("t", [*writes, {"put": {"item": {"id": -1}}}])
    await tables.put_item("plain", {"id": 1, "expires": 1})


async def test_a_sweep_goes_through_all_tables(store: Store, clock: ManualClock) -> None:
    """Every plugin's expired items go, however many; live ones and tables without a ttl attribute stay."""
    await expiring(store, "trivia", items=250)
    await expiring(store, "quotes", items=3)
    await store.kv("trivia").set("k", 1)
    assert await sweep_tables(store.pipeline) == 0
    clock.advance(1)
    assert await sweep_tables(store.pipeline) == 253
    assert [(one.namespace, one.keys) for one in await store.namespaces()] == [
        ("kv/trivia", 1),
        ("table/quotes", 2),
        ("table/trivia", 2),
    ]


async def test_a_sweep_goes_past_a_table_that_can_not_be_swept(store: Store, clock: ManualClock) -> None:
    """Another program has spoiled the policy of its namespace. The items of other plugins go all the same."""
    await expiring(store, "spoiled", items=3)
    await expiring(store, "trivia", items=3)
    assert isinstance(store._engine, MemoryEngine)
    store._engine._namespaces["table/spoiled"].policy = '{"trash":'
    clock.advance(1)
    with pytest.raises(InternalError):
        await sweep_tables(store.pipeline)
    assert [(one.namespace, one.keys) for one in await store.namespaces()] == [
        ("table/spoiled", 5),
        ("table/trivia", 2),
    ]


class Sleeps:
    """Sleeps without waiting so many times, and then for good."""

    def __init__(self, most: int) -> None:
        self.slept: list[float] = []
        self.over = asyncio.Event()
        self._most = most

    async def sleep(self, seconds: float) -> None:
        """Note it."""
        self.slept.append(seconds)
        if len(self.slept) == self._most:
            self.over.set()
            await asyncio.Event().wait()


async def test_the_reaper_goes_on_after_an_error(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was removed is told; an error is told as well, and a pause of a minute at most follows it."""
    await expiring(store, "trivia", items=3)
    clock.advance(1)
    sleeps = Sleeps(2)
    monkeypatch.setattr(holdfast.upkeep.tables, "asyncio", SimpleNamespace(sleep=sleeps.sleep))
    totals, failing = store._engine.totals, [True]

    async def sometimes(now: int) -> Any:
        if failing.pop() if failing else False:
            raise Unavailable("the disk is away")
        return await totals(now)

    monkeypatch.setattr(store._engine, "totals", sometimes)
    with caplog.at_level(logging.INFO, logger="holdfast.reaper"):
        task = asyncio.create_task(reap_tables(store.pipeline, 3600))
        async with asyncio.timeout(PATIENCE):
            await sleeps.over.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert sleeps.slept == [60, 3600]
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines[0] == ("INFO", "cleanup of expired items started")
    assert lines[1][0] == "ERROR"
    assert lines[2][1].startswith("removed 3 expired items in ")
    assert lines[3] == ("INFO", "cleanup of expired items stopped")


async def test_the_service_sweeps_tables_if_it_is_told_to(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    """Without the setting nothing is removed; with it the sweeping begins and ends with the service."""
    await expiring(store, "trivia", items=3)
    clock.advance(1)
    config = Config(db="memory://", data_dir=str(tmp_path))
    async with serve._table_reaper(config, store):
        await asyncio.sleep(0)
    assert (await store.stats("table/trivia")).keys == 5
    config = Config(db="memory://", data_dir=str(tmp_path), table_reaper_interval_seconds=3600)
    async with asyncio.timeout(PATIENCE), serve._table_reaper(config, store):
        while (await store.stats("table/trivia")).keys != 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "holdfast table reaper"]
