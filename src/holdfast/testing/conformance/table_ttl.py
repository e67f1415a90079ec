"""Deadlines of items: when an item expires, what sees it, and how its expiry is noticed.

Law: see the package.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import moment
from holdfast.errors import ConditionFailed, HoldfastError, ItemNotFound, MissingField
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.table_items import events, there
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.tables import Tables
    from holdfast.store import Store


async def ending(tables: Tables) -> Tables:
    """Create a table with a ttl attribute and an index."""
    await events(tables, ttl_attribute="ends")
    await tables.create_index("events", "by", key=("tag", "string"))
    return tables


async def seen(tables: Tables, user: str, at: float) -> set[str]:
    """Return the names of the reads that see an item."""
    reads = {
        "get": await tables.get_item("events", user, at),
        "query": (await tables.query("events", user, sk={"eq": at})).items,
        "scan": [item for item in (await tables.scan("events")).items if item.value["at"] == at],
        "index": [
            item for item in (await tables.query_index("events", "by", "x")).items if item.value["at"] == at
        ],
        "batch": (await tables.batch_get_item("events", [(user, at)]))[0],
    }
    return {name for name, answer in reads.items() if answer}


async def shrunk(store: Store, keys: int) -> bool:
    """Wait until this number of items is left. Returns False if that does not happen."""
    for _ in range(2000):
        if (await store.stats("table/trivia")).keys == keys:
            return True
        await asyncio.sleep(0.01)
    return False


ALL = {"get", "query", "scan", "index", "batch"}


class TableTtlRules(Fixtures):
    """The rules of deadlines of items."""

    async def test_what_the_ttl_attribute_means(self, tables: Tables, clock: ManualClock) -> None:
        """An item is expired when the attribute is a number other than 0 that is not later than now."""
        await ending(tables)
        now = clock.now() / 1000
        living: list[Any] = [0, 0.0, -0.0, None, "1", True, [1], {}, now + 0.001, 10**30]
        gone: list[Any] = [now, 1, -1, 0.5, now - 0.001, -(10**30)]
        for at, value in enumerate([*living, *gone]):
            lives = at < len(living)
            await tables.put_item("events", {"user": "a", "at": at, "tag": "x", "ends": value})
            assert await seen(tables, "a", at) == (ALL if lives else set()), value
        await tables.put_item("events", {"user": "a", "at": 99, "tag": "x"})
        assert await seen(tables, "a", 99) == ALL
        clock.advance(0.001)
        assert await seen(tables, "a", 8) == set()
        assert len((await tables.scan("events")).items) == 10

    async def test_an_expired_item_is_gone_for_every_verb(self, tables: Tables, clock: ManualClock) -> None:
        """At its deadline an item is gone for reads, conditions and writes; its expiry is recorded first."""
        await ending(tables)
        soon = clock.now() // 1000 + 5
        for at in range(6):
            await tables.put_item("events", {"user": "a", "at": at, "tag": "x", "ends": soon, "n": 7})
        clock.advance(4.999)
        assert await seen(tables, "a", 0) == ALL
        clock.advance(0.001)
        assert await seen(tables, "a", 0) == set()
        assert await tables.delete_item("events", "a", 0) is False
        updated = await tables.update_item("events", "a", 1, add={"n": 1}, expected_version=0)
        assert updated.value == {"user": "a", "at": 1, "n": 1}
        with refusal(ConditionFailed, field="condition") as failed:
            await tables.put_item("events", {"user": "a", "at": 2}, condition={"n": {"eq": 7}})
        assert failed.value.current is None
        old = await tables.put_item("events", {"user": "a", "at": 3, "tag": "y"}, return_values="old")
        assert old is None
        await tables.transact_write(
            [{"put": {"table": "events", "item": {"user": "a", "at": 4}, "expected_version": 0}}]
        )
        for call in (tables.set_ttl("events", "a", 5, 9), tables.remove_ttl("events", "a", 5)):
            with pytest.raises(ItemNotFound):
                await call
        assert await tables.get_ttl("events", "a", 5) == 0
        told = [(change.op, change.sort_key) for change in (await tables.changes("events")).changes[6:]]
        assert told == [
            ("expired", 0),
            ("expired", 1),
            ("set", 1),
            ("expired", 3),
            ("set", 3),
            ("expired", 4),
            ("set", 4),
        ]
        assert (await tables.check_index("events", "by"))["consistent"] is True
        page = await tables.query_index("events", "by", "x")
        assert page.items == []

    async def test_a_table_without_sort_keys_needs_none(self, tables: Tables) -> None:
        """Without a sort key, set_ttl takes the seconds by name, and reports when they are missing."""
        await tables.create_table("sessions", partition_key=("id", "string"), ttl_attribute="ends")
        await tables.put_item("sessions", {"id": "a"})
        await tables.set_ttl("sessions", "a", ttl_seconds=5)
        assert await tables.get_ttl("sessions", "a") == 5
        with pytest.raises(MissingField) as refused:
            await tables.set_ttl("sessions", "a")
        assert refused.value.field == "ttl_seconds"

    async def test_deadlines_are_moved_and_taken_away(self, tables: Tables, clock: ManualClock) -> None:
        """set_ttl sets ceil(now) plus the seconds, remove_ttl sets 0, get_ttl returns what was asked for."""
        await ending(tables)
        clock.advance(0.4)
        await tables.put_item("events", {"user": "a", "at": 1, "tag": "x"})
        assert await tables.get_ttl("events", "a", 1) is None
        ceiling = -(-clock.now() // 1000)
        item = await tables.set_ttl("events", "a", 1, 10)
        assert item.value["ends"] == ceiling + 10
        assert item.expires_at == moment((ceiling + 10) * 1000)
        assert await tables.get_ttl("events", "a", 1) == 10
        clock.advance(0.6)
        assert await tables.get_ttl("events", "a", 1) == 10
        clock.advance(1)
        assert await tables.get_ttl("events", "a", 1) == 9
        with pytest.raises(HoldfastError):
            await tables.set_ttl("events", "a", 1, 99, condition={"tag": {"eq": "y"}})
        removed = await tables.remove_ttl("events", "a", 1, expected_version=item.version)
        assert (removed.value["ends"], removed.expires_at) == (0, None)
        assert await tables.get_ttl("events", "a", 1) is None
        clock.advance(3600)
        assert await seen(tables, "a", 1) == ALL
        await tables.set_ttl("events", "a", 1, 1)
        assert await tables.get_ttl("events", "a", 1) == 1
        clock.advance(1)
        assert (await tables.get_ttl("events", "a", 1), await tables.get_ttl("events", "a", 2)) == (0, 0)
        assert await seen(tables, "a", 1) == set()

    async def test_a_sweep_removes_at_most_a_hundred(
        self, tables: Tables, store: Store, clock: ManualClock
    ) -> None:
        """A sweep removes expired items, a hundred at a time, with their index entries, and records them."""
        await ending(tables)
        soon = clock.now() // 1000 + 5
        await tables.batch_write_item(
            "events",
            [{"put": {"item": {"user": "a", "at": at, "tag": "x", "ends": soon}}} for at in range(130)],
        )
        await tables.put_item("events", {"user": "b", "at": 0, "tag": "x", "ends": soon + 1})
        assert await tables.sweep_expired_ttl("events") == 0
        clock.advance(5.5)
        assert await store.sweep() == 0
        assert (await store.stats("table/trivia")).keys == 131
        assert [await tables.sweep_expired_ttl("events") for _ in range(3)] == [100, 30, 0]
        assert (await store.stats("table/trivia")).keys == 1
        checked = await tables.check_index("events", "by")
        assert (checked["consistent"], checked["entries"]) == (True, 1)
        last = (await tables.changes("events", view="old")).changes[-1]
        assert (last.op, last.lag_ms, last.request_id) == ("expired", 500, None)
        assert there(await tables.get_item("events", "b", 0)).value["at"] == 0
        assert last.old is not None
        assert last.expired_version is not None

    async def test_a_quota_makes_room_first(self, tables: Tables, store: Store, clock: ManualClock) -> None:
        """Expired items are removed before a quota refuses an item."""
        await ending(tables)
        await store.set_policy("table/trivia", {"quota_keys": 1})
        await tables.put_item("events", {"user": "a", "at": 1, "ends": clock.now() // 1000 + 5})
        with pytest.raises(HoldfastError) as full:
            await tables.put_item("events", {"user": "a", "at": 2})
        assert full.value.code == "QUOTA_EXCEEDED"
        clock.advance(5)
        await tables.put_item("events", {"user": "a", "at": 2})
        assert (await store.stats("table/trivia")).keys == 1

    async def test_a_reaper_sweeps_until_it_is_stopped(
        self, tables: Tables, store: Store, clock: ManualClock
    ) -> None:
        """A reaper removes the expired items of every table with a ttl attribute until it is stopped."""
        await ending(tables)
        await tables.create_table("plain", partition_key=("id", "string"))
        await tables.put_item("plain", {"id": "a", "ends": 1})
        for at in range(3):
            await tables.put_item("events", {"user": "a", "at": at, "ends": clock.now() // 1000 + 1 + at})
        clock.advance(1)
        reaper = tables.start_reaper(interval=0.01)
        assert await shrunk(store, 3)
        clock.advance(1)
        assert await shrunk(store, 2)
        await reaper.stop()
        clock.advance(1)
        await asyncio.sleep(0.05)
        assert (await store.stats("table/trivia")).keys == 2
        assert there(await tables.get_item("plain", "a")).value["ends"] == 1
        tables.start_reaper(interval=3600)
