"""Walks over items, indexes, and the deadlines of items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.clock import ManualClock, moment
from holdfast.errors import (
    Busy,
    ConditionFailed,
    IndexNotFound,
    ItemNotFound,
    MissingField,
    QuotaExceeded,
    ValidationError,
)
from holdfast.handles.tables import Tables
from holdfast.model import ItemPage
from holdfast.store import Store
from holdfast.tables.conditions import attr
from holdfast.testing.conformance.fixtures import Fixtures, Reopen
from holdfast.testing.conformance.tables import events
from holdfast.testing.exact import present, refusal

ALL = {"get", "query", "scan", "index", "batch"}


async def fill(tables: Tables, user: str, count: int, **attributes: Any) -> None:
    """Put items with the sort keys 0, 1, 2 and so on, many at a time."""
    for start in range(0, count, 500):
        writes = [
            {"put": {"item": {"user": user, "at": at, **attributes}}}
            for at in range(start, min(start + 500, count))
        ]
        await tables.batch_write_item("events", writes)


async def walk(page_after: Callable[..., Awaitable[ItemPage]], **given: Any) -> list[Any]:
    """Return the sort keys of all items in the pages of a walk."""
    found: list[Any] = []
    cursor = None
    for _ in range(1000):
        page = await page_after(cursor=cursor, **given)
        found += [item.value["at"] for item in page.items]
        assert (page.cursor is not None) is page.truncated
        assert page.count <= given.get("limit", 1000)
        if page.cursor is None:
            return found
        cursor = page.cursor
    raise AssertionError("a walk did not end")


class TableQueryRules(Fixtures):
    """The rules of walks over items."""

    async def test_conditions_on_a_sort_key(self, tables: Tables) -> None:
        """A query returns a partition's items whose sort key meets the condition, in order or reversed."""
        await events(tables)
        at = [-(2**60), -1.5, 0, 0.1, 1, 2**53, 2**53 + 1]
        for key in reversed(at):
            await tables.put_item("events", {"user": "a", "at": key})
        await tables.put_item("events", {"user": "a\x00", "at": 0})
        await tables.put_item("events", {"user": "", "at": 0})
        cases: list[tuple[dict[str, Any] | None, list[Any]]] = [
            (None, at),
            ({"eq": 1.0}, [1]),
            ({"lt": 0}, at[:2]),
            ({"lte": 0}, at[:3]),
            ({"gt": 0}, at[3:]),
            ({"gte": 0.1}, at[3:]),
            ({"gt": 2**53}, at[6:]),
            ({"between": [-1.5, 1]}, at[1:5]),
            ({"between": [1, 0]}, []),
            ({"gte": 0, "lt": 1}, at[2:4]),
        ]
        for condition, expected in cases:
            page = await tables.query("events", "a", sk=condition)
            assert [item.value["at"] for item in page.items] == expected, condition
            page = await tables.query("events", "a", sk=condition, reverse=True)
            assert [item.value["at"] for item in page.items] == expected[::-1], condition
        await tables.create_table("texts", partition_key=("id", "number"), sort_key=("name", "string"))
        names = ["", "a", "a\x00", "a\x00b", "a\x01", "ab", "é", "\uffff", "\U0001f600"]
        for name in names:
            await tables.put_item("texts", {"id": 1, "name": name})
        found = await tables.query("texts", 1.0)
        assert [item.value["name"] for item in found.items] == names
        for prefix in ("a", "a\x00", "\uffff", ""):
            found = await tables.query("texts", 1, sk={"begins_with": prefix})
            assert [item.value["name"] for item in found.items] == [n for n in names if n.startswith(prefix)]
        for condition in ({"above": 1}, {"between": [1]}, {"eq": "1"}, {"begins_with": 1}, {}):
            with refusal(ValidationError, field="sort_key_condition", about=condition):
                await tables.query("events", "a", sk=condition)
        await tables.create_table("flat", partition_key=("id", "number"))
        with refusal(ValidationError, field="sort_key_condition"):
            await tables.query("flat", 1, sk={"eq": 1})

    async def test_pages_filters_and_projections(self, tables: Tables) -> None:
        """A limit counts the returned items, a filter omits the rest, and a projection shows parts."""
        await events(tables)
        await fill(tables, "a", 600, odd=False)
        for at in (3, 299, 300, 599):
            await tables.update_item("events", "a", at, set={"odd": True, "meta": {"x": at}})
        wanted = attr("odd").eq(True)
        page = await tables.query("events", "a", filter=wanted, limit=2, projection=["at", "meta.x"])
        assert [item.value for item in page.items] == [{"at": at, "meta": {"x": at}} for at in (3, 299)]
        assert page.truncated is True
        rest = await tables.query("events", "a", filter=wanted, limit=2, cursor=page.cursor)
        assert ([item.value["at"] for item in rest.items], rest.truncated) == ([300, 599], False)

        async def query(**given: Any) -> ItemPage:
            return await tables.query("events", "a", **given)

        assert await walk(query, limit=299) == list(range(600))
        assert await walk(query, limit=300, reverse=True) == list(range(599, -1, -1))
        assert await walk(query, limit=1, reverse=True, filter=wanted) == [599, 300, 299, 3]
        await tables.put_item("events", {"user": "b", "at": -1})

        async def scan(**given: Any) -> ItemPage:
            return await tables.scan("events", **given)

        assert await walk(scan, limit=250) == [*range(600), -1]
        assert await walk(scan, limit=601, reverse=True) == [-1, *range(599, -1, -1)]
        assert await walk(scan, filter={"at": {"lt": 0}}, limit=5) == [-1]

    async def test_a_page_ends_at_512_kilobytes(self, tables: Tables) -> None:
        """A page that would be larger is cut short and its cursor continues; a large item comes alone."""
        await events(tables)
        for at in range(4):
            await tables.put_item("events", {"user": "a", "at": at, "pad": "x" * 200_000})
        page = await tables.query("events", "a")
        assert ([item.value["at"] for item in page.items], page.truncated) == ([0, 1], True)

        async def query(**given: Any) -> ItemPage:
            return await tables.query("events", "a", **given)

        assert await walk(query) == [0, 1, 2, 3]
        assert await walk(query, reverse=True) == [3, 2, 1, 0]

    async def test_a_cursor_stays_right_while_items_come_and_go(
        self, tables: Tables, clock: ManualClock
    ) -> None:
        """Each item that exists throughout is seen exactly once, whatever is written, removed or expires."""
        await events(tables, ttl_attribute="ends")
        await fill(tables, "a", 12)
        soon = clock.now() // 1000 + 5
        for at in (2.5, 7.5):
            await tables.put_item("events", {"user": "a", "at": at, "ends": soon})
        for reverse in (False, True):
            page = await tables.query("events", "a", limit=5, reverse=reverse)
            found = [item.value["at"] for item in page.items]
            assert (2.5 in found) is (not reverse)
            await tables.delete_item("events", "a", found[-1])
            await tables.put_item("events", {"user": "a", "at": -1 if not reverse else 99})
            clock.advance(5)
            cursor = page.cursor
            while cursor is not None:
                page = await tables.query("events", "a", limit=2, cursor=cursor, reverse=reverse)
                found += [item.value["at"] for item in page.items]
                cursor = page.cursor
            steady = [at for at in found if at not in (2.5, 7.5, -1, 99)]
            assert sorted(steady) == list(range(12))
            assert found == sorted(found, reverse=reverse)
            await fill(tables, "a", 12)
            for at in (2.5, 7.5):
                await tables.put_item("events", {"user": "a", "at": at, "ends": clock.now() // 1000 + 5})
            await tables.delete_item("events", "a", -1)

    async def test_walks_that_are_not_legal(self, tables: Tables) -> None:
        """Limits, cursors of other walks, filters and projections are validated."""
        await events(tables)
        await tables.create_table("other", partition_key=("user", "string"))
        await fill(tables, "a", 3)
        for name in "abc":
            await tables.put_item("other", {"user": name})
        cursor = (await tables.scan("other", limit=1)).cursor
        wrong: list[tuple[str, Any]] = [
            *(("limit", value) for value in (0, 10_001, 1.5, True, "1")),
            *(("cursor", value) for value in ("", "?", "AAAA", cursor, 5)),
            *(("reverse", value) for value in ("yes", 1)),
            *(("projection", value) for value in ([], "at", ["a..b"])),
            *(("filter", value) for value in ({}, {"at": 1}, {"at": {"near": 1}})),
        ]
        for field, value in wrong:
            with refusal(ValidationError, field=field, about=(field, value)):
                await tables.query("events", "a", **{field: value})


async def found(tables: Tables, value: Any, index: str = "by") -> list[Any]:
    """Return the sort keys of the items that an index finds. Asserts that it agrees with the items."""
    checked = await tables.check_index("events", index)
    assert (checked["consistent"], checked["missing"], checked["extra"]) == (True, 0, 0), checked
    return [item.value["at"] for item in (await tables.query_index("events", index, value)).items]


class TableIndexRules(Fixtures):
    """The rules of indexes."""

    async def test_an_index_is_kept_by_every_write(
        self, tables: Tables, reopen: Reopen, store: Store
    ) -> None:
        """Every write to an item shows in its indexes at once, also for items older than the index."""
        await events(tables)
        await tables.put_item("events", {"user": "a", "at": 1, "tag": "x", "n": 1})
        await tables.put_item("events", {"user": "a", "at": 2, "tag": 5})
        made = await tables.create_index("events", "by", key=("tag", "string"))
        assert made["indexes"] == [{"name": "by", "key": {"name": "tag", "type": "string"}, "state": "ready"}]
        await tables.create_index("events", "numbers", key=("n", "number"))
        assert await found(tables, "x") == [1]
        await tables.put_item("events", {"user": "a", "at": 2, "tag": "x", "n": 1.0})
        await tables.update_item("events", "b", 0, set={"tag": "x"}, add={"n": 1})
        assert await found(tables, "x") == [1, 2, 0]
        assert await found(tables, 1, "numbers") == [1, 2, 0]
        await tables.update_item("events", "a", 1, set={"tag": "y"}, remove=["n"])
        await tables.update_item("events", "a", 2, set={"other": True})
        assert (await found(tables, "x"), await found(tables, "y")) == ([2, 0], [1])
        assert await found(tables, 1, "numbers") == [2, 0]
        await tables.batch_write_item("events", [{"delete": {"partition_key": "b", "sort_key": 0}}])
        await tables.transact_write(
            [
                {"put": {"table": "events", "item": {"user": "c", "at": 7, "tag": "x"}}},
                {"update": {"table": "events", "partition_key": "a", "sort_key": 2, "set": {"tag": None}}},
            ]
        )
        assert await found(tables, "x") == [7]
        await tables.delete_item("events", "c", 7)
        assert await found(tables, "x") == []
        checked = await tables.check_index("events", "by")
        assert checked == {"consistent": True, "items": 2, "entries": 1, "missing": 0, "extra": 0}
        if (again := await reopen()) is not None:
            assert await found(again.tables("trivia"), "y") == [1]

    async def test_an_index_is_walked_like_a_table(self, tables: Tables) -> None:
        """A query of an index has pages, cursors, filters and a direction, in the order of item keys."""
        await events(tables)
        await fill(tables, "a", 300, tag="x", odd=False)
        await fill(tables, "b", 3, tag="x", odd=True)
        await fill(tables, "c", 2, tag="xx", odd=True)
        await tables.create_index("events", "by", key=("tag", "string"))

        async def query(**given: Any) -> ItemPage:
            return await tables.query_index("events", "by", "x", **given)

        expected = [*range(300), 0, 1, 2]
        assert await walk(query, limit=151) == expected
        assert await walk(query, limit=303, reverse=True) == expected[::-1]
        assert await walk(query, filter={"odd": {"eq": True}}, limit=2) == [0, 1, 2]
        page = await tables.query_index("events", "by", "xx", projection=["user"])
        assert [item.value for item in page.items] == [{"user": "c"}] * 2
        first = await query(limit=2)
        await tables.update_item("events", "a", 2, set={"tag": "z"})
        await tables.delete_item("events", "a", 1)
        await tables.put_item("events", {"user": "a", "at": 0.5, "tag": "x"})
        rest = await query(limit=2, cursor=first.cursor)
        assert [item.value["at"] for item in rest.items] == [3, 4]
        with refusal(ValidationError, field="key_value"):
            await tables.query_index("events", "by", 1)
        cursor = (await tables.scan("events", limit=1)).cursor
        with refusal(ValidationError, field="cursor"):
            await query(cursor=cursor)

    async def test_indexes_are_made_once_and_dropped(self, tables: Tables) -> None:
        """An index name is unique; an index recreated under it has nothing of the old one."""
        await events(tables)
        await fill(tables, "a", 5, tag="x", n=1)
        await tables.create_index("events", "by", key=("tag", "string"))
        with refusal(ValidationError, field="index"):
            await tables.create_index("events", "by", key=("tag", "string"))
        await tables.drop_index("events", "by")
        for call in (
            tables.drop_index("events", "by"),
            tables.query_index("events", "by", "x"),
            tables.check_index("events", "by"),
        ):
            with refusal(IndexNotFound, field="index"):
                await call
        await tables.create_index("events", "by", key=("n", "number"))
        assert await found(tables, 1) == [0, 1, 2, 3, 4]
        await tables.drop_table("events")
        await events(tables)
        assert (await tables.describe_table("events"))["indexes"] == []
        await tables.create_index("events", "by", key=("n", "number"))
        assert await found(tables, 1) == []

    async def test_an_index_is_filled_while_writes_go_on(self, tables: Tables) -> None:
        """An index is complete although writers change, add and remove items while it is filled."""
        await events(tables)
        await fill(tables, "a", 600, tag="old")

        async def write(number: int) -> None:
            for at in range(number, 600, 40):
                await tables.update_item("events", "a", at, set={"tag": "new"})
                await tables.delete_item("events", "a", at + 1)
                await tables.put_item("events", {"user": "a", "at": at + 1000, "tag": "new"})

        async def look() -> None:
            for _ in range(3):
                try:
                    await tables.query_index("events", "by", "new")
                except (Busy, IndexNotFound):
                    await asyncio.sleep(0)
                else:
                    checked = await tables.check_index("events", "by")
                    assert checked["consistent"], checked

        index = tables.create_index("events", "by", key=("tag", "string"))
        await asyncio.gather(index, *(write(number) for number in range(0, 8, 2)), look())
        items = (await tables.scan("events", limit=2000)).items
        for tag in ("old", "new"):
            assert await found(tables, tag) == [
                item.value["at"] for item in items if item.value["tag"] == tag
            ]


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
            with refusal(ItemNotFound, field="partition_key"):
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
        with refusal(MissingField, field="ttl_seconds"):
            await tables.set_ttl("sessions", "a")

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
        with refusal(ConditionFailed, field="condition"):
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
        assert present(await tables.get_item("events", "b", 0)).value["at"] == 0
        assert last.old is not None
        assert last.expired_version is not None

    async def test_a_quota_makes_room_first(self, tables: Tables, store: Store, clock: ManualClock) -> None:
        """Expired items are removed before a quota refuses an item."""
        await ending(tables)
        await store.set_policy("table/trivia", {"quota_keys": 1})
        await tables.put_item("events", {"user": "a", "at": 1, "ends": clock.now() // 1000 + 5})
        with refusal(QuotaExceeded):
            await tables.put_item("events", {"user": "a", "at": 2})
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
        assert present(await tables.get_item("plain", "a")).value["ends"] == 1
        tables.start_reaper(interval=3600)
