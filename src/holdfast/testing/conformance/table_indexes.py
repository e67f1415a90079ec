"""Indexes: creating, backfilling, maintaining, querying, checking and dropping them.

Law: see the package.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Busy, IndexNotFound, ValidationError
from holdfast.testing.conformance.fixtures import Fixtures, Reopen
from holdfast.testing.conformance.table_items import events
from holdfast.testing.conformance.table_queries import fill, walk
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.handles.tables import Tables
    from holdfast.model import ItemPage
    from holdfast.store import Store


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
        if store.capabilities.durable:
            assert await found((await reopen()).tables("trivia"), "y") == [1]

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
            with pytest.raises(IndexNotFound):
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
