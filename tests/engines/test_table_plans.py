"""How SQLite and PostgreSQL go about tables: by the primary key and the index of deadlines, past no live row.

Plans and counts of steps of the engines' own statements, on tables with rows in them; no time is taken.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pytest

import holdfast
from holdfast.engine import Scan, Scanned
from holdfast.engines.postgres import sql as postgres
from holdfast.engines.postgres.sql import keys_text
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite import sql as statements
from holdfast.rows import Address

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from holdfast.store import Store

NAME: Final = "table/p"
NOW: Final = 1_700_000_000_000
COUNT: Final = 2_000


async def fill(store: Store) -> tuple[str, str]:
    """A table of many items of which few have expired, and an index; the spaces of both."""
    tables = store.tables("p")
    made = await tables.create_table(
        "t", partition_key=("p", "string"), sort_key=("s", "number"), ttl_attribute="e"
    )
    indexed = await tables.create_index("t", "by", key=("tag", "string"))
    for start in range(0, COUNT, 500):
        items = [
            {"p": "a", "s": s, "tag": "x", "e": 1 if s % 400 == 0 else 0} for s in range(start, start + 500)
        ]
        await tables.batch_write_item("t", [{"put": {"item": item}} for item in items])
    return f"item/{made['version']}", f"index/{made['version']}/{indexed['version']}"


class Counted:
    """A SQLite engine whose steps are counted: the instructions of SQLite's machine."""

    def __init__(self, engine: SqliteEngine) -> None:
        self.engine = engine
        self._count = 0
        for connection in (engine._inline, engine._patient):
            assert connection is not None
            connection.set_progress_handler(self._step, 1)

    async def cost(self, look: Awaitable[Any], *, finds: int) -> int:
        """How many steps a look takes, which has to find so many rows."""
        self._count = 0
        found = await look
        assert len(found.keys if isinstance(found, Scanned) else found) == finds
        return self._count

    def _step(self) -> int:
        self._count += 1
        return 0


async def test_sqlite_reads_items_at_a_constant_cost(tmp_path: Path) -> None:
    """A get, a sweep, and a page anywhere in a query or an index, either way, cost the same."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        spaces = await fill(store)
    engine = SqliteEngine(path)
    await engine.start()
    counted = Counted(engine)
    with contextlib.closing(sqlite3.connect(path)) as plain:
        for space in spaces:
            found = plain.execute("SELECT key FROM holdfast_rows WHERE space = ? ORDER BY key", (space,))
            keys = [key for (key,) in found]
            assert len(keys) == COUNT
            get = engine.read([Address(NAME, space, keys[9])], NOW)
            assert await counted.cost(get, finds=1) < 100
            due = engine.due(space, NOW, limit=100, namespace=NAME)
            assert await counted.cost(due, finds=5) < 200
            for reverse in (False, True):
                for at in (20, COUNT // 2, COUNT - 20):
                    page = engine.scan(page_after(space, keys, at, reverse=reverse), NOW)
                    assert await counted.cost(page, finds=10) < 1_000, (space, reverse, at)
    await engine.aclose()


def page_after(space: str, keys: list[bytes], at: int, *, reverse: bool) -> Scan:
    """Ten rows of a partition after a key."""
    return Scan(
        namespace=NAME,
        space=space,
        start=keys[0],
        stop=keys[-1] + b"\x00",
        after=keys[at],
        limit=10,
        max_bytes=1 << 20,
        values=True,
        reverse=reverse,
    )


@pytest.mark.parametrize(
    ("sql", "parameters", "index"),
    [
        (statements._load_rows(1, shown=True), (NAME, "item/1", b"k"), "PRIMARY KEY"),
        (statements.GET_ROW, (NAME, "item/1", b"k"), "PRIMARY KEY"),
        *(
            (
                statements.scan(space, values=True, bounded=True, after=after, reverse=reverse),
                (NAME, space, b"a", b"b", NOW, 11),
                "PRIMARY KEY",
            )
            for space in ("item/1", "index/1/2")
            for after in (False, True)
            for reverse in (False, True)
        ),
        (statements.due("item/1", owned=True), (NOW, NAME, "item/1", 100), "idx_rows_expires_at"),
    ],
)
async def test_sqlite_statements_about_items_scan_and_sort_nothing(
    tmp_path: Path, sql: str, parameters: tuple[object, ...], index: str
) -> None:
    """No statement about items walks a table or sorts what it finds."""
    async with holdfast.open(tmp_path / "store.db", reap=False):
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    steps = [step for step in plan if "holdfast_rows" in step]
    assert [step.startswith("SEARCH") and index in step for step in steps] == [True], plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


async def test_postgres_finds_items_by_an_index(pg_url: str) -> None:
    """Gets, pages and sweeps find their rows by an index, and pass by none that they don't give."""
    async with holdfast.open(pg_url, reap=False) as store:
        spaces = await fill(store)
    connection = await asyncpg.connect(pg_url)
    try:
        await connection.execute("ANALYZE")
        for space in spaces:
            found = await connection.fetch(
                "SELECT key FROM holdfast_rows WHERE space = $1 ORDER BY key", space
            )
            keys = [row[0] for row in found]
            key = keys_text([Address(NAME, space, keys[9])])
            await _looked_up(connection, postgres.READ_OTHERS, [NAME], [space], key, within=2)
            for reverse in (False, True):
                page = postgres.scan_others(values=True, bounded=True, after=True, reverse=reverse)
                bounds = (keys[0], NAME, space, keys[-1] + b"\x00", keys[COUNT // 2])
                await _looked_up(connection, page, NOW, 11, 1 << 20, *bounds, within=12)
            await _looked_up(connection, postgres.due_others(one=True), NOW, 100, space, NAME, within=10)
    finally:
        await connection.close()


async def _looked_up(connection: asyncpg.Connection, sql: str, *parameters: Any, within: int) -> None:
    """Rows are found by an index, and of those few are passed by."""
    found = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}", *parameters)
    plan = "\n".join(line[0] for line in found)
    rows = [line for line in plan.splitlines() if "on holdfast_rows" in line]
    assert rows, plan
    assert all("Index" in line or "Bitmap Heap" in line for line in rows), plan
    removed = [int(line.split(":")[1]) for line in plan.splitlines() if "Rows Removed by Filter" in line]
    assert sum(removed) <= within, plan
