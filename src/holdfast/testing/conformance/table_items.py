"""Single items of tables: values, keys, versions, conditions, updates.

Law: see the package.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import (
    ConditionFailed,
    MissingField,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.tables.conditions import attr
from holdfast.tables.updates import if_not_exists
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import refusal, same

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.handles.tables import Tables
    from holdfast.model import Item


def there(item: Item | None) -> Item:
    """Return an item that must exist."""
    assert item is not None, "there is no item"
    return item


async def events(tables: Tables, **given: Any) -> Tables:
    """Create the table that most tests use."""
    await tables.create_table("events", partition_key=("user", "string"), sort_key=("at", "number"), **given)
    return tables


class TableItemRules(Fixtures):
    """The rules of single items."""

    async def test_an_item_is_put_got_and_replaced(self, tables: Tables) -> None:
        """A put replaces the whole item, versions grow, and `return_values` selects what is returned."""
        await events(tables)
        first = await tables.put_item("events", {"user": "a", "at": 1, "old": True}, return_values="new")
        second = await tables.put_item("events", {"user": "a", "at": 1, "meta": {"x": [1, 2]}, "y": None})
        assert second.version > first.version
        assert second.expires_at is None
        found = there(await tables.get_item("events", "a", 1))
        assert found == second
        assert found.value == {"user": "a", "at": 1, "meta": {"x": [1, 2]}, "y": None}
        assert await tables.get_item("events", "a", 2) is None
        some = await tables.get_item("events", "a", 1, projection=["meta.x[1]", "gone"])
        assert there(some).value == {"meta": {"x": [2]}}
        old = await tables.put_item("events", {"user": "a", "at": 1}, return_values="old")
        assert old == second
        assert await tables.put_item("events", {"user": "a", "at": 1}, return_values="none") is None
        assert await tables.put_item("events", {"user": "b", "at": 1}, return_values="old") is None
        with refusal(ValidationError, field="return_values"):
            await tables.put_item("events", {"user": "a", "at": 1}, return_values="all")  # type: ignore[call-overload]

    async def test_values_come_back_exactly(self, tables: Tables) -> None:
        """Every JSON value in an item is returned exactly, up to 400 KB; one byte more is refused."""
        await events(tables)
        values: dict[str, Any] = {
            "numbers": [2**53 + 1, 1, 1.0, -0.0, 0.1, 5e-324, 10**300, -(2**70)],
            "texts": ["", "\x00", "é\U0001f600", "\u2028"],
            "nested": {"a": [{"b": [None, True, False]}], "\x00": {}, "a.b": 1},
        }
        put = await tables.put_item("events", {"user": "\x00a\x01", "at": 2**53 + 1, **values})
        found = there(await tables.get_item("events", "\x00a\x01", 2**53 + 1))
        assert same(found.value, put.value)
        assert same({name: found.value[name] for name in values}, values)
        head = len('{"user":"a","at":1,"pad":""}')
        await tables.put_item("events", {"user": "a", "at": 1, "pad": "x" * (409_600 - head)})
        assert len(there(await tables.get_item("events", "a", 1)).value["pad"]) == 409_600 - head
        with refusal(ValueTooLarge, field="item"):
            await tables.put_item("events", {"user": "a", "at": 1, "pad": "x" * (409_601 - head)})
        with refusal(ValueTooLarge, field="item"):
            await tables.update_item("events", "a", 1, set={"more": "x"})
        for value in (float("nan"), float("inf"), "\ud800"):
            with refusal(ValidationError, field="item"):
                await tables.put_item("events", {"user": "a", "at": 1, "value": value})

    async def test_keys_by_their_types(self, tables: Tables) -> None:
        """1 and 1.0 are the same key, text and bytes are exact, and a wrong type is refused."""
        await events(tables)
        await tables.put_item("events", {"user": "a", "at": 1})
        await tables.put_item("events", {"user": "a", "at": 1.0, "again": True})
        await tables.put_item("events", {"user": "a", "at": -0.0})
        await tables.put_item("events", {"user": "a", "at": 2**53})
        await tables.put_item("events", {"user": "a", "at": 2**53 + 1})
        page = await tables.query("events", "a")
        assert same([item.value["at"] for item in page.items], [-0.0, 1.0, 2**53, 2**53 + 1])
        assert there(await tables.get_item("events", "a", 0)).value["at"] == 0
        for item, field in (
            ({"user": "a"}, "item.at"),
            ({"at": 1}, "item.user"),
            ({"user": 1, "at": 1}, "item.user"),
            ({"user": "a", "at": "1"}, "item.at"),
            ({"user": "a", "at": True}, "item.at"),
            ({"user": None, "at": 1}, "item.user"),
            ({"user": "x" * 1025, "at": 1}, "item.user"),
            ({"user": "\x00" * 513, "at": 1}, "item.user"),
        ):
            with refusal(ValidationError, field=field, about=item):
                await tables.put_item("events", item)
        for key, field in ((("a", "1"), "sort_key"), ((1, 1), "partition_key"), (("a", None), "sort_key")):
            with refusal(ValidationError, field=field, about=key):
                await tables.get_item("events", *key)

    async def test_only_binary_keys_are_bytes(self, tables: Tables) -> None:
        """Bytes are accepted for a binary key; every verb that writes refuses them anywhere else."""
        await tables.create_table("blobs", partition_key=("a", "string"), sort_key=("b", "binary"))
        put = await tables.put_item("blobs", {"a": "x", "b": b"\x00"})
        wrong = {"a": "x", "b": b"\x00", "c": b"\x01"}
        with refusal(ValidationError, field="item.c"):
            await tables.put_item("blobs", wrong)
        with refusal(ValidationError, field="item.a"):
            await tables.put_item("blobs", {"a": b"x", "b": b"\x00"})
        with refusal(ValidationError, field="item.c"):
            await tables.transact_write([{"put": {"table": "blobs", "item": wrong}}])
        [refused] = await tables.batch_write_item("blobs", [{"put": {"item": wrong}}])
        assert isinstance(refused, ValidationError)
        for nested in ({"c": [b"\x01"]}, {"c": {"d": b"\x01"}}):
            with refusal(ValidationError, field="item"):
                await tables.put_item("blobs", {"a": "x", "b": b"\x00", **nested})
        with refusal(ValidationError, field="set"):
            await tables.update_item("blobs", "x", b"\x00", set={"c": b"\x01"})
        assert await tables.get_item("blobs", "x", b"\x00") == put

    async def test_keys_of_several_items(self, tables: Tables) -> None:
        """batch_get_item takes keys as request fields, as pairs, or as one value without a sort key."""
        await events(tables)
        await tables.put_item("events", {"user": "a", "at": 1})
        await tables.create_table("blobs", partition_key=("id", "binary"))
        await tables.put_item("blobs", {"id": b"\x00"})
        found = await tables.batch_get_item(
            "events", [{"partition_key": "a", "sort_key": 1}, ("a", 1), ["a", 2]]
        )
        assert [item is not None for item in found] == [True, True, False]
        found = await tables.batch_get_item("blobs", [{"partition_key": b"\x00"}, b"\x00"])
        assert [item is not None for item in found] == [True, True]
        with refusal(MissingField, field="partition_key"):
            await tables.batch_get_item("blobs", [{"id": b"\x00"}])

    async def test_the_longest_keys(self, tables: Tables) -> None:
        """Keys of 1,024 bytes each, with an index on a value of 1,024 bytes, work like any other."""
        await tables.create_table("blobs", partition_key=("a", "string"), sort_key=("b", "binary"))
        await tables.create_index("blobs", "by", key=("c", "string"))
        longest = {"a": "\x00" * 512, "b": b"\xff" * 1024, "c": "z" * 1024}
        near = {"a": "\x00" * 512, "b": b"\xff" * 1023 + b"\xfe", "c": "z" * 1024}
        await tables.put_item("blobs", longest)
        await tables.put_item("blobs", near)
        assert there(await tables.get_item("blobs", "\x00" * 512, b"\xff" * 1024)).value["c"] == "z" * 1024
        page = await tables.query_index("blobs", "by", "z" * 1024, limit=1)
        rest = await tables.query_index("blobs", "by", "z" * 1024, cursor=page.cursor)
        assert len({item.value["b"] for item in (*page.items, *rest.items)}) == 2
        assert (await tables.check_index("blobs", "by"))["consistent"] is True
        [last] = (await tables.query("blobs", "\x00" * 512, sk={"begins_with": b"\xff" * 1024})).items
        assert await tables.delete_item("blobs", "\x00" * 512, last.value["b"]) is True
        assert [change.op for change in (await tables.changes("blobs")).changes] == ["set", "set", "deleted"]

    async def test_an_update_changes_parts_of_an_item(self, tables: Tables) -> None:
        """Set, remove and add work on nested paths in one step, and create missing parts, even the item."""
        await events(tables)
        made = await tables.update_item(
            "events", "a", 1, set={"meta.tag": "x"}, add={"score": 2, "tags": ["t"]}
        )
        assert made.value == {"user": "a", "at": 1, "meta": {"tag": "x"}, "score": 2, "tags": ["t"]}
        after = await tables.update_item(
            "events",
            "a",
            1,
            set={"meta.tag": if_not_exists("y"), "list[0]": {"n": 1}, "new": if_not_exists(0)},
            add={"score": -0.5, "tags": ["u", "t"]},
            remove=["gone.away", "meta.none"],
        )
        assert after.value["meta"] == {"tag": "x"}
        assert (after.value["list"], after.value["new"]) == ([{"n": 1}], 0)
        assert (after.value["score"], after.value["tags"]) == (1.5, ["t", "u"])
        old = await tables.update_item("events", "a", 1, remove=["list[0].n"], return_values="old")
        assert old == after
        assert await tables.update_item("events", "a", 1, set={"x": 1}, return_values="none") is None
        assert await tables.update_item("events", "b", 1, set={"x": 1}, return_values="old") is None
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("set", {"set": {"at": 2}}),
            ("set", {}),
            ("set", {"set": {"score.inner": 1}}),
            ("remove", {"set": {"meta.tag": 1}, "remove": ["meta"]}),
            ("add", {"add": {"meta": 1}}),
            ("add", {"add": {"score": "1"}}),
            ("set", {"set": {"list[7]": 1}}),
            ("remove", {"remove": ["user"]}),
        ]
        before = await tables.get_item("events", "a", 1)
        for field, update in wrong:
            with pytest.raises(ValidationError) as caught:
                await tables.update_item("events", "a", 1, **update)
            assert caught.value.field in ("set", "remove", "add"), (field, update)
        assert await tables.get_item("events", "a", 1) == before

    async def test_writes_that_expect_something(self, tables: Tables) -> None:
        """Put, update and delete take a version or a condition; if it fails, nothing is written."""
        await events(tables)
        item = {"user": "a", "at": 1, "score": 5}
        first = await tables.put_item("events", item, expected_version=0)
        verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "put": lambda **how: tables.put_item("events", item | {"new": 1}, **how),
            "update": lambda **how: tables.update_item("events", "a", 1, set={"new": 1}, **how),
            "delete": lambda **how: tables.delete_item("events", "a", 1, **how),
        }
        for name, call in verbs.items():
            for version in (0, first.version + 1):
                with refusal(VersionConflict, about=name) as stale:
                    await call(expected_version=version)
                assert stale.value.item == first
            with refusal(ConditionFailed, field="condition", about=name) as failed:
                await call(condition={"score": {"gt": 5}})
            assert failed.value.current == first
            with refusal(ValidationError, field="condition", about=name):
                await call(condition={"score": {"above": 5}})
            assert await tables.get_item("events", "a", 1) == first
        done = await tables.update_item(
            "events",
            "a",
            1,
            set={"score": 6},
            condition=attr("score").eq(5.0) & ~attr("closed").exists(),
            expected_version=first.version,
        )
        assert await tables.delete_item("events", "a", 1, condition={"score": {"eq": 6}}) is True
        assert done.value["score"] == 6
        with refusal(ConditionFailed, field="condition") as gone:
            await tables.put_item("events", item, condition={"user": {"exists": True}})
        assert gone.value.current is None
        with refusal(VersionConflict) as missing:
            await tables.delete_item("events", "a", 1, expected_version=done.version)
        assert missing.value.item is None
        await tables.put_item("events", item, condition={"user": {"not_exists": True}})

    async def test_a_delete_is_idempotent(self, tables: Tables) -> None:
        """A delete returns whether the item existed, or the item; a version is never reused."""
        await events(tables)
        put = await tables.put_item("events", {"user": "a", "at": 1})
        assert await tables.delete_item("events", "a", 1, return_values="old") == put
        assert await tables.delete_item("events", "a", 1, return_values="old") is None
        assert await tables.delete_item("events", "a", 1) is False
        again = await tables.put_item("events", {"user": "a", "at": 1})
        assert again.version > put.version + 1
        assert await tables.delete_item("events", "a", 1, expected_version=again.version) is True

    async def test_counting_by_many_at_once_loses_nothing(self, tables: Tables) -> None:
        """An update that adds is atomic: no concurrent addition is lost."""
        await events(tables)
        adds = [tables.update_item("events", "a", 1, add={"n": 1}, return_values="none") for _ in range(60)]
        await asyncio.gather(*adds)
        assert there(await tables.get_item("events", "a", 1)).value["n"] == 60
