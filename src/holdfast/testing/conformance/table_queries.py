"""Walks over items: queries, scans, conditions on sort keys, filters, pages and their cursors.

Law: see the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import ValidationError
from holdfast.tables.conditions import attr
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.table_items import events
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import ManualClock
    from holdfast.handles.tables import Tables
    from holdfast.model import ItemPage


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
