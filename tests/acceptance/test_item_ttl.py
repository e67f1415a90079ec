"""Deadlines of items and the reaper, as a user of an embedded store on a file meets them.

Real files and the store's own verbs. A reaper runs in real time; a test waits for what it does, not for
a while.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.errors import ItemNotFound, TtlNotConfigured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.handles.tables import Tables
    from holdfast.rows import Record
    from holdfast.store import Store

PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store."""
    return tmp_path / "store.db"


@pytest.fixture
def clock() -> ManualClock:
    """The time that items go by."""
    return ManualClock()


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    """A store on the file, with a table of sessions that end and one of notes that don't."""
    async with holdfast.open(path, clock=clock, reap=False) as store:
        tables = store.tables("app")
        await tables.create_table("sessions", partition_key=("id", "string"), ttl_attribute="expires")
        await tables.create_table("notes", partition_key=("id", "string"))
        yield store


@pytest.fixture
def tables(store: Store) -> Tables:
    """The tables of the plugin."""
    return store.tables("app")


class Noticed:
    """Waits for expiries, as the store tells of them."""

    def __init__(self, store: Store) -> None:
        self.keys: set[str] = set()
        self._more = asyncio.Event()
        store.pipeline.listen(self._hear)

    def _hear(self, records: list[Record]) -> None:
        self.keys |= {record.key for record in records if record.op == "expired"}
        self._more.set()

    async def until(self, count: int) -> None:
        """Wait until so many items have been noticed."""
        async with asyncio.timeout(PATIENCE):
            while len(self.keys) < count:
                self._more.clear()
                await self._more.wait()


def stored(path: Path) -> int:
    """How many items are in the file, seen or not."""
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT count(*) FROM holdfast_rows WHERE space LIKE 'item/%'"
        return int(connection.execute(sql).fetchone()[0])


async def test_setting_a_ttl_moves_the_expiry(tables: Tables, clock: ManualClock) -> None:
    """set_ttl writes now and the seconds into the attribute, and the item is gone when they are over."""
    await tables.put_item("sessions", {"id": "a", "user": "alice"})
    item = await tables.set_ttl("sessions", "a", None, 60)
    assert item.value == {"id": "a", "user": "alice", "expires": clock.now() // 1000 + 60}
    await tables.set_ttl("sessions", "a", None, 120)
    clock.advance(119)
    assert await tables.get_item("sessions", "a") is not None
    clock.advance(1)
    assert await tables.get_item("sessions", "a") is None


async def test_setting_a_ttl_needs_a_table_with_a_ttl_attribute(tables: Tables) -> None:
    """Without a ttl attribute every ttl verb is refused, and the item stays as it is."""
    put = await tables.put_item("notes", {"id": "a"})
    for call in (
        tables.set_ttl("notes", "a", ttl_seconds=60),
        tables.remove_ttl("notes", "a"),
        tables.get_ttl("notes", "a"),
        tables.sweep_expired_ttl("notes"),
    ):
        with pytest.raises(TtlNotConfigured):
            await call
    assert await tables.get_item("notes", "a") == put


async def test_setting_a_ttl_needs_the_item(tables: Tables) -> None:
    """A ttl is not set on an item that was never there, and none is made."""
    with pytest.raises(ItemNotFound):
        await tables.set_ttl("sessions", "nobody", None, 60)
    assert (await tables.scan("sessions")).items == []


async def test_removing_a_ttl_makes_an_item_permanent(tables: Tables, clock: ManualClock) -> None:
    """After remove_ttl the attribute is 0 and the item outlives its old deadline by years."""
    await tables.put_item("sessions", {"id": "a", "expires": clock.now() // 1000 + 60})
    item = await tables.remove_ttl("sessions", "a")
    assert (item.value["expires"], item.expires_at) == (0, None)
    clock.advance(10 * 365 * 86_400)
    assert await tables.get_item("sessions", "a") is not None
    assert await tables.sweep_expired_ttl("sessions") == 0


async def test_a_ttl_is_told_as_the_seconds_that_remain(tables: Tables, clock: ManualClock) -> None:
    """get_ttl answers what was set, at whatever part of a second that was, and counts down to 1."""
    await tables.put_item("sessions", {"id": "a"})
    for part in (0, 0.001, 0.5, 0.998):
        clock.advance(part)
        await tables.set_ttl("sessions", "a", ttl_seconds=60)
        assert await tables.get_ttl("sessions", "a") == 60
    clock.advance(1.0)
    assert await tables.get_ttl("sessions", "a") == 59
    clock.advance(58.9)
    assert await tables.get_ttl("sessions", "a") == 1


async def test_an_item_without_a_ttl_has_none_to_tell(tables: Tables) -> None:
    """A missing attribute, 0 and what is no number all mean that the item lives for ever."""
    for name, item in (("a", {}), ("b", {"expires": 0}), ("c", {"expires": "soon"})):
        await tables.put_item("sessions", {"id": name, **item})
        assert await tables.get_ttl("sessions", name) is None


async def test_the_ttl_of_what_has_expired_is_0(tables: Tables, clock: ManualClock) -> None:
    """An item past its deadline has no time left, and neither has one that was never there."""
    await tables.put_item("sessions", {"id": "a", "expires": clock.now() // 1000 + 1})
    clock.advance(1)
    assert await tables.get_ttl("sessions", "a") == 0
    assert await tables.get_ttl("sessions", "nobody") == 0


async def test_a_reaper_removes_what_has_expired(
    store: Store, tables: Tables, clock: ManualClock, path: Path
) -> None:
    """Every interval a reaper sweeps until nothing is left, also more than one sweep holds."""
    noticed = Noticed(store)
    soon = clock.now() // 1000 + 1
    writes = [{"put": {"item": {"id": f"s{number}", "expires": soon}}} for number in range(150)]
    await tables.batch_write_item("sessions", writes)
    reaper = tables.start_reaper(interval=0.01)
    clock.advance(1)
    await noticed.until(150)
    assert stored(path) == 0
    await tables.put_item("sessions", {"id": "later", "expires": soon + 5})
    clock.advance(5)
    await noticed.until(151)
    await reaper.stop()
    assert stored(path) == 0


async def test_a_reaper_leaves_tables_without_a_ttl_alone(
    store: Store, tables: Tables, clock: ManualClock, path: Path
) -> None:
    """An attribute of the same name means nothing where the table does not say so."""
    noticed = Noticed(store)
    await tables.put_item("notes", {"id": "n", "expires": 1})
    await tables.put_item("sessions", {"id": "s", "expires": clock.now() // 1000 + 1})
    clock.advance(1)
    reaper = tables.start_reaper(interval=0.01)
    await noticed.until(1)
    await reaper.stop()
    assert noticed.keys == {'sessions:["s"]'}
    assert await tables.get_item("notes", "n") is not None
    assert stored(path) == 1


async def test_a_reaper_stops_when_it_is_told_to(
    store: Store, tables: Tables, clock: ManualClock, path: Path
) -> None:
    """After stop nothing is swept, stopping again does no harm, and closing the store stops one too."""
    noticed = Noticed(store)
    await tables.put_item("sessions", {"id": "a", "expires": clock.now() // 1000 + 1})
    await tables.put_item("sessions", {"id": "b", "expires": clock.now() // 1000 + 2})
    clock.advance(1)
    reaper = tables.start_reaper(interval=0.001)
    await noticed.until(1)
    await reaper.stop()
    await reaper.stop()
    assert not [task for task in asyncio.all_tasks() if "reaper of table/app" in task.get_name()]
    clock.advance(1)
    assert stored(path) == 1
    tables.start_reaper()
    await noticed.until(2)
    await store.aclose()
    assert not [task for task in asyncio.all_tasks() if "reaper of table/app" in task.get_name()]


async def test_a_reaper_leaves_living_items_alone(
    store: Store, tables: Tables, clock: ManualClock, path: Path
) -> None:
    """Only what is past its deadline goes: neither a later deadline nor a missing one is touched."""
    noticed = Noticed(store)
    now = clock.now() // 1000
    for name, expires in (("gone", now + 1), ("later", now + 2), ("never", 0), ("word", "1")):
        await tables.put_item("sessions", {"id": name, "expires": expires})
    clock.advance(1)
    reaper = tables.start_reaper(interval=0.01)
    await noticed.until(1)
    await reaper.stop()
    names = [item.value["id"] for item in (await tables.scan("sessions")).items]
    assert names == ["later", "never", "word"]
    assert stored(path) == 3


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
async def test_a_reaper_pauses_between_its_rounds(tables: Tables, interval: float) -> None:
    """A reaper that would never let go is refused."""
    with pytest.raises(holdfast.ValidationError) as refused:
        tables.start_reaper(interval)
    assert refused.value.field == "interval"
