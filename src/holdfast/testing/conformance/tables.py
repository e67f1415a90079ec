"""Tables and their items: definitions, values, versions, conditions, updates, several writes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.errors import (
    ConditionFailed,
    Fenced,
    HoldfastError,
    ItemNotFound,
    MissingField,
    QuotaExceeded,
    TableExists,
    TableNotFound,
    TtlNotConfigured,
    Unsupported,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.store import Store
from holdfast.tables.conditions import attr
from holdfast.tables.updates import if_not_exists
from holdfast.testing.conformance.batches import take
from holdfast.testing.conformance.fixtures import Fixtures, Reopen
from holdfast.testing.exact import present, refusal, same


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
        found = present(await tables.get_item("events", "a", 1))
        assert found == second
        assert found.value == {"user": "a", "at": 1, "meta": {"x": [1, 2]}, "y": None}
        assert await tables.get_item("events", "a", 2) is None
        some = await tables.get_item("events", "a", 1, projection=["meta.x[1]", "gone"])
        assert present(some).value == {"meta": {"x": [2]}}
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
        found = present(await tables.get_item("events", "\x00a\x01", 2**53 + 1))
        assert same(found.value, put.value)
        assert same({name: found.value[name] for name in values}, values)
        head = len('{"user":"a","at":1,"pad":""}')
        await tables.put_item("events", {"user": "a", "at": 1, "pad": "x" * (409_600 - head)})
        assert len(present(await tables.get_item("events", "a", 1)).value["pad"]) == 409_600 - head
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
        assert present(await tables.get_item("events", "a", 0)).value["at"] == 0
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
        assert present(await tables.get_item("blobs", "\x00" * 512, b"\xff" * 1024)).value["c"] == "z" * 1024
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
        assert present(await tables.get_item("events", "a", 1)).value["n"] == 60


class TableRules(Fixtures):
    """The rules of tables."""

    async def test_tables_come_are_described_and_go(self, tables: Tables, store: Store) -> None:
        """A table is described as it was created, exists once, and every verb reports a missing one."""
        made = await tables.create_table(
            "events",
            partition_key=("user", "string"),
            sort_key={"name": "at", "type": "number"},
            ttl_attribute="ends",
            stream="new",
        )
        await tables.create_table("Z-1.x", partition_key=("id", "binary"))
        described = await tables.describe_table("events")
        assert described == {name: value for name, value in made.items() if name != "version"}
        assert (described["partition_key"], described["sort_key"]) == (
            {"name": "user", "type": "string"},
            {"name": "at", "type": "number"},
        )
        assert (described["ttl_attribute"], described["stream"], described["indexes"]) == ("ends", "new", [])
        assert await tables.list_tables() == ["Z-1.x", "events"]
        assert await store.tables("other").list_tables() == []
        with refusal(TableExists, field="table"):
            await tables.create_table("events", partition_key=("user", "string"))
        await tables.drop_table("events")
        assert await tables.list_tables() == ["Z-1.x"]
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "drop": lambda: tables.drop_table("events"),
            "describe": lambda: tables.describe_table("events"),
            "put": lambda: tables.put_item("events", {"user": "a", "at": 1}),
            "get": lambda: tables.get_item("events", "a", 1),
            "update": lambda: tables.update_item("events", "a", 1, set={"x": 1}),
            "delete": lambda: tables.delete_item("events", "a", 1),
            "query": lambda: tables.query("events", "a"),
            "scan": lambda: tables.scan("events"),
            "create_index": lambda: tables.create_index("events", "i", key=("x", "string")),
            "drop_index": lambda: tables.drop_index("events", "i"),
            "query_index": lambda: tables.query_index("events", "i", "x"),
            "check_index": lambda: tables.check_index("events", "i"),
            "batch_get": lambda: tables.batch_get_item("events", [("a", 1)]),
            "transact": lambda: tables.transact_write([{"put": {"table": "events", "item": {"user": "a"}}}]),
            "set_ttl": lambda: tables.set_ttl("events", "a", 1, 5),
            "remove_ttl": lambda: tables.remove_ttl("events", "a", 1),
            "get_ttl": lambda: tables.get_ttl("events", "a", 1),
            "sweep": lambda: tables.sweep_expired_ttl("events"),
            "changes": lambda: tables.changes("events"),
        }
        for name, call in calls.items():
            with refusal(TableNotFound, field="table", about=name):
                await call()
        [one] = await tables.batch_write_item("events", [{"put": {"item": {"user": "a", "at": 1}}}])
        assert isinstance(one, TableNotFound)

    async def test_a_table_that_is_made_again_with_another_key(self, tables: Tables) -> None:
        """Reading an item goes by the key that its table has now, not by the one of a dropped table."""
        kinds: list[tuple[Any, Any]] = [("string", "a"), ("number", 5), ("string", "5"), ("binary", b"5")]
        for kind, key in kinds:
            await tables.create_table("t", partition_key=("id", kind))
            await tables.put_item("t", {"id": key})
            assert present(await tables.get_item("t", key)).version
            with refusal(ValidationError, field="partition_key"):
                await tables.get_item("t", True)
            with refusal(ValidationError, field="sort_key"):
                await tables.get_item("t", key, 1)
            await tables.drop_table("t")
            with refusal(TableNotFound, field="table"):
                await tables.get_item("t", 1.5)

    async def test_definitions_that_are_not_legal(self, tables: Tables) -> None:
        """Table names and key types are validated, and an attribute has only one role."""
        key = ("user", "string")
        wrong: list[tuple[str, str, dict[str, Any]]] = [
            ("table", "a b", {"partition_key": key}),
            ("table", "", {"partition_key": key}),
            ("table", "x" * 101, {"partition_key": key}),
            ("partition_key", "t", {"partition_key": ("user", "text")}),
            ("partition_key", "t", {"partition_key": ("", "string")}),
            ("sort_key", "t", {"partition_key": key, "sort_key": ("user", "number")}),
            ("ttl_attribute", "t", {"partition_key": key, "ttl_attribute": "user"}),
            ("stream", "t", {"partition_key": key, "stream": "some"}),
        ]
        for field, name, definition in wrong:
            with refusal(ValidationError, field=field, about=(field, name)):
                await tables.create_table(name, **definition)
        assert await tables.list_tables() == []

    async def test_batches_of_items(self, tables: Tables) -> None:
        """Several items are read by position; each of several writes succeeds or fails on its own."""
        await events(tables)
        results = await tables.batch_write_item(
            "events",
            [
                {"put": {"item": {"user": "a", "at": 1}}},
                {"put": {"item": {"user": "a"}}},
                {"delete": {"partition_key": "a", "sort_key": 9}},
                {"put": {"item": {"user": "a", "at": 2}, "condition": attr("x").exists()}},
                {"put": {"item": {"user": "a", "at": 1, "second": True}, "expected_version": 0}},
                {"put": {"item": {"user": "b", "at": 3}}},
                {"update": {"partition_key": "a", "sort_key": 1}},
            ],
        )
        kinds = [type(result) if isinstance(result, HoldfastError) else dict for result in results]
        assert kinds == [
            *(dict, ValidationError, dict, ConditionFailed, VersionConflict, dict, ValidationError),
        ]
        assert results[2] == {"deleted": False}
        found = await tables.batch_get_item("events", [("b", 3), ("a", 9), ("a", 1), ("b", 3)])
        assert [None if item is None else item.value for item in found] == [
            {"user": "b", "at": 3},
            None,
            {"user": "a", "at": 1},
            {"user": "b", "at": 3},
        ]

    async def test_a_transaction_is_all_or_nothing(self, tables: Tables) -> None:
        """Writes to several tables take effect together or not at all, and every failed one is listed."""
        await events(tables)
        await tables.create_table("totals", partition_key=("user", "string"))
        await tables.put_item("totals", {"user": "a", "sum": 1})
        versions = await tables.transact_write(
            [
                {"put": {"table": "events", "item": {"user": "a", "at": 1}, "expected_version": 0}},
                {"update": {"table": "totals", "partition_key": "a", "add": {"sum": 4}}},
                {"check": {"table": "totals", "partition_key": "b", "expected_version": 0}},
                {"delete": {"table": "events", "partition_key": "z", "sort_key": 1}},
            ]
        )
        assert [version is None for version in versions] == [False, False, True, True]
        assert present(await tables.get_item("totals", "a")).value["sum"] == 5
        stale = {"expected_version": 1}
        with refusal(ConditionFailed) as failed:
            await tables.transact_write(
                [
                    {"put": {"table": "events", "item": {"user": "a", "at": 2}}},
                    {"check": {"table": "totals", "partition_key": "a", "condition": {"sum": {"lt": 5}}}},
                    {"delete": {"table": "events", "partition_key": "a", "sort_key": 1, **stale}},
                ]
            )
        assert [conflict.position for conflict in failed.value.conflicts] == [1, 2]
        assert present(failed.value.conflicts[0].current).value["sum"] == 5
        refused: list[list[dict[str, Any]]] = [
            [{"put": {"table": "events", "item": {"user": "a", "at": at}}} for at in (3, 3.0)],
            [{"put": {"table": "events", "item": {"user": "a", "at": 3}}}, {"put": {"table": "events"}}],
        ]
        for writes in refused:
            with pytest.raises(HoldfastError):
                await tables.transact_write(writes)
        assert [item.value["at"] for item in (await tables.scan("events")).items] == [1]
        assert present(await tables.get_item("totals", "a")).value["sum"] == 5

    async def test_a_request_id_has_one_effect(self, tables: Tables, reopen: Reopen, store: Store) -> None:
        """A repeated write gets its original reply, also after a restart; other content is refused."""
        await events(tables)
        await tables.create_table("other", partition_key=("id", "string"), request_id="make")
        await tables.create_table("other", partition_key=("id", "string"), request_id="make")
        writes = [{"put": {"table": "events", "item": {"user": "t", "at": 1}}}]
        some: list[dict[str, Any]] = [
            {"put": {"item": {"user": "b", "at": 1}}},
            {"put": {"item": {"user": "b"}}},
        ]

        async def calls(tables: Tables) -> list[Any]:
            batch = await tables.batch_write_item("events", some, request_id="batch")
            return [
                await tables.put_item("events", {"user": "a", "at": 1, "n": 2**70}, request_id="put"),
                await tables.update_item("events", "a", 1, add={"n": 1}, request_id="add"),
                await tables.update_item(
                    "events", "a", 1, add={"n": 1}, request_id="old", return_values="old"
                ),
                await tables.delete_item("events", "c", 1, request_id="nothing"),
                await tables.delete_item("events", "a", 1, request_id="gone", return_values="old"),
                await tables.transact_write(writes, request_id="all"),
                [type(one) if isinstance(one, HoldfastError) else one for one in batch],
            ]

        first = await calls(tables)
        assert first[1].value["n"] == 2**70 + 1
        await tables.put_item("events", {"user": "c", "at": 1})
        version = (await store.stats("table/trivia")).version
        assert await calls(tables) == first
        assert (await store.stats("table/trivia")).version == version
        with refusal(VersionConflict) as reused:
            await tables.update_item("events", "a", 1, add={"n": 2}, request_id="add")
        assert reused.value.reason == "request_id_reused"
        if (again := await reopen()) is not None:
            assert await calls(again.tables("trivia")) == first
            found = await again.tables("trivia").get_item("events", "c", 1)
            assert present(found).value == {"user": "c", "at": 1}

    async def test_a_repeated_definition_does_nothing_again(
        self, tables: Tables, reopen: Reopen, store: Store
    ) -> None:
        """A repeated create or drop of a table or an index returns its original reply and does nothing else.

        That holds whatever has happened to the table since: no version is used and nothing is filled.
        """
        plan: dict[str, Callable[[Tables], Awaitable[Any]]] = {
            "table": lambda on: on.create_table("t", partition_key=("id", "string"), request_id="table"),
            "index": lambda on: on.create_index("t", "by", key=("tag", "string"), request_id="index"),
            "no index": lambda on: on.drop_index("t", "by", request_id="no index"),
            "no table": lambda on: on.drop_table("t", request_id="no table"),
        }

        async def assert_repeated(on: Store) -> None:
            version = (await on.stats("table/trivia")).version
            for name, answer in answers.items():
                assert await plan[name](on.tables("trivia")) == answer, name
            assert (await on.stats("table/trivia")).version == version

        answers: dict[str, Any] = {}
        for name, call in plan.items():
            answers[name] = await call(tables)
            await assert_repeated(store)
            if name == "table":
                await tables.put_item("t", {"id": "a", "tag": "x"})
            elif name == "index":
                await tables.put_item("t", {"id": "b", "tag": "x"})
                await tables.create_index("t", "other", key=("tag", "string"))
                await assert_repeated(store)
                assert await tables.check_index("t", "by") == {
                    "consistent": True,
                    "items": 2,
                    "entries": 2,
                    "missing": 0,
                    "extra": 0,
                }
        assert [index["name"] for index in answers["index"]["indexes"]] == ["by"]
        await tables.create_table("t", partition_key=("number", "number"))
        await assert_repeated(store)
        assert (await tables.describe_table("t"))["partition_key"]["name"] == "number"
        if (again := await reopen()) is not None:
            await assert_repeated(again)

    async def test_calls_take_effect_in_the_order_in_which_they_are_begun(self, tables: Tables) -> None:
        """Tables are created, dropped and indexed between writes, and each call sees those before it."""
        calls: list[Awaitable[Any]] = []
        for life in range(3):
            calls.append(events(tables))
            calls += [tables.put_item("events", {"user": "a", "at": at, "life": life}) for at in range(30)]
            calls.append(tables.create_index("events", "by", key=("life", "number")))
            calls += [tables.update_item("events", "a", at, add={"life": 1}) for at in range(0, 40, 2)]
            calls += [tables.delete_item("events", "a", at) for at in range(1, 30, 2)]
            calls.append(tables.query("events", "a", limit=50))
            if life < 2:
                calls.append(tables.drop_table("events"))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [answer for answer in answers if isinstance(answer, BaseException)] == []
        pages = [answer.items for answer in answers if hasattr(answer, "items") and hasattr(answer, "cursor")]
        for life, items in enumerate(pages):
            expected = [{"user": "a", "at": at, "life": life + 1 if at < 30 else 1} for at in range(0, 40, 2)]
            assert [item.value for item in items] == expected
        found = await tables.query_index("events", "by", 3)
        assert [item.value["at"] for item in found.items] == list(range(0, 30, 2))
        assert (await tables.check_index("events", "by"))["consistent"] is True

    async def test_what_changed_in_a_table(self, tables: Tables) -> None:
        """The changes of a table are only its own, with the images that were requested and kept."""
        await events(tables)
        await tables.create_table("plain", partition_key=("id", "string"), stream="new")
        await tables.put_item("events", {"user": "a", "at": 1, "n": 1}, writer="agent:task", request_id="r")
        await tables.update_item("events", "a", 1, add={"n": 1})
        await tables.put_item("plain", {"id": "x"})
        await tables.delete_item("events", "a", 1)
        found = await tables.changes("events", view="both")
        assert [(change.op, change.old, change.new) for change in found.changes] == [
            ("set", None, {"user": "a", "at": 1, "n": 1}),
            ("set", {"user": "a", "at": 1, "n": 1}, {"user": "a", "at": 1, "n": 2}),
            ("deleted", {"user": "a", "at": 1, "n": 2}, None),
        ]
        first = found.changes[0]
        assert (first.table, first.partition_key, first.sort_key) == ("events", "a", 1)
        assert (first.last_writer, first.request_id) == ("agent:task", "r")
        page = await tables.changes("events", limit=1)
        assert [change.version for change in page.changes] == [first.version]
        assert page.changes[0].new is None
        rest = await tables.changes("events", page.next, view="new")
        assert [change.new for change in rest.changes] == [{"user": "a", "at": 1, "n": 2}, None]
        assert (await tables.changes("events", rest.next)).changes == []
        with refusal(Unsupported, field="view"):
            await tables.changes("plain", view="old")
        await tables.drop_table("events")
        await events(tables)
        assert (await tables.changes("events")).changes == []
        assert (await tables.changes("events", 10**9)).changes == []

    async def test_fences_of_tables(self, tables: Tables, kv: KV) -> None:
        """Every write to tables is refused once a newer holder has taken the lock, a key of the plugin."""
        await events(tables, ttl_attribute="end")
        await tables.put_item("events", {"user": "a", "at": 1})
        old, new = await take(kv), await take(kv)
        item = {"user": "a", "at": 1, "n": 2}
        calls: dict[str, Callable[[dict[str, Any]], Awaitable[object]]] = {
            "create_table": lambda fence: tables.create_table(
                "other", partition_key=("user", "string"), fence=fence
            ),
            "put_item": lambda fence: tables.put_item("events", item, fence=fence),
            "update_item": lambda fence: tables.update_item("events", "a", 1, add={"n": 1}, fence=fence),
            "set_ttl": lambda fence: tables.set_ttl("events", "a", 1, 60, fence=fence),
            "remove_ttl": lambda fence: tables.remove_ttl("events", "a", 1, fence=fence),
            "batch_write_item": lambda fence: tables.batch_write_item(
                "events", [{"put": {"item": item}}], fence=fence
            ),
            "transact_write": lambda fence: tables.transact_write(
                [{"put": {"table": "events", "item": item}}], fence=fence
            ),
            "delete_item": lambda fence: tables.delete_item("events", "a", 1, fence=fence),
            "drop_table": lambda fence: tables.drop_table("other", fence=fence),
        }
        for verb, call in calls.items():
            with refusal(Fenced, field="fence", says="newer holder", about=verb):
                await call(old)
            with refusal(Fenced, field="fence", says="no longer held", about=verb):
                await call(new | {"live": True})
        assert present(await tables.get_item("events", "a", 1)).value == {"user": "a", "at": 1}
        for call in calls.values():
            await call(new)
        assert await tables.get_item("events", "a", 1) is None
        async with kv.lock("b") as lock:
            await tables.put_item("events", item, fence=lock.fence | {"live": True})
        assert (await tables.list_tables()) == ["events"]

    async def test_errors_of_other_kinds(self, tables: Tables) -> None:
        """A fence of a lock never taken is refused, and so is a ttl verb without a ttl attribute."""
        await events(tables)
        with refusal(Fenced, field="fence"):
            await tables.put_item("events", {"user": "a", "at": 1}, fence={"lock": "l", "token": 1})
        assert await tables.get_item("events", "a", 1) is None
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "set_ttl": lambda: tables.set_ttl("events", "a", 1, 5),
            "remove_ttl": lambda: tables.remove_ttl("events", "a", 1),
            "get_ttl": lambda: tables.get_ttl("events", "a", 1),
            "sweep": lambda: tables.sweep_expired_ttl("events"),
        }
        for name, call in calls.items():
            with refusal(TtlNotConfigured, field="table", about=name):
                await call()
        await tables.create_table("ends", partition_key=("id", "string"), ttl_attribute="ends")
        for call in (lambda: tables.set_ttl("ends", "x", None, 5), lambda: tables.remove_ttl("ends", "x")):
            with refusal(ItemNotFound, field="partition_key"):
                await call()
        for ttl in (0, -1, 1.5, True, "5", 2**31):
            with refusal(ValidationError, field="ttl_seconds", about=ttl):
                await tables.set_ttl("ends", "x", None, ttl)  # type: ignore[arg-type]

    async def test_policies_hold_for_tables(self, tables: Tables, store: Store) -> None:
        """A quota counts items, and the audit of a table's namespace has every change, including drops."""
        await events(tables)
        await store.set_policy("table/trivia", {"quota_keys": 2, "audit": True})
        await tables.put_item("events", {"user": "a", "at": 1})
        await tables.put_item("events", {"user": "a", "at": 2})
        with refusal(QuotaExceeded):
            await tables.put_item("events", {"user": "a", "at": 3})
        await tables.put_item("events", {"user": "a", "at": 2, "again": True})
        assert (await store.stats("table/trivia")).keys == 2
        await tables.delete_item("events", "a", 1)
        await tables.update_item("events", "a", 3, set={"x": 1})
        await tables.drop_table("events")
        stats = await store.stats("table/trivia")
        assert (stats.keys, stats.bytes) == (0, 0)
        audit = store.audit("table/trivia")
        records = (await audit.log()).records
        assert [record.op for record in records] == [
            *("policy", "set", "set", "set", "deleted", "set", "table_dropped"),
        ]
        assert records[1].key == 'events:["a",1]'
        assert (await audit.verify()).broken_at is None
