"""The cost of a request: limits on what it may examine, load and show."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import ConditionFailed, TooExpensive, ValueTooLarge, VersionConflict
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.model import Item
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import present, refusal

LARGE = "x" * 65_000
"""A value that fits eight times into a reply."""
MANY = list(range(10, 60_000))
"""A list that may be searched a few times, but not sixty times."""


async def things(tables: Tables) -> Tables:
    """Create a table of things by their names."""
    await tables.create_table("things", partition_key=("name", "string"))
    return tables


def shown(item: Item | None) -> bool:
    """Return True if a conflict shows the attributes of an item."""
    value: object = None if item is None else item.value
    return isinstance(value, dict)


class CostRules(Fixtures):
    """The rules of what a request may cost."""

    async def test_a_condition_that_looks_at_too_much_is_refused(self, tables: Tables) -> None:
        """A condition that exceeds the work limit is TOO_EXPENSIVE, names the reason, and writes nothing."""
        await things(tables)
        before = await tables.put_item("things", {"name": "a", "tags": MANY})
        dear = {"or": [{"tags": {"contains": number}} for number in range(-60, 0)]}
        with refusal(TooExpensive, says="contains at 'tags'") as refused:
            await tables.put_item("things", {"name": "a"}, condition=dear)
        assert not refused.value.retryable
        assert "do not retry" in refused.value.message
        for verb in (tables.scan("things", filter=dear), tables.query("things", "a", filter=dear)):
            with refusal(TooExpensive, says="contains at 'tags'"):
                await verb
        assert await tables.get_item("things", "a") == before
        one = {"tags": {"contains": 59_999}}
        assert (await tables.update_item("things", "a", set={"x": 1}, condition=one)).value["x"] == 1

    async def test_a_dear_part_of_a_batch_is_refused_alone(self, tables: Tables) -> None:
        """The independent writes of a call share its work limit; those that exceed it are refused."""
        await things(tables)
        await tables.put_item("things", {"name": "a", "tags": MANY})
        dear = {"or": [{"tags": {"contains": number}} for number in range(-60, 0)]}
        cheap, refused = await tables.batch_write_item(
            "things",
            [{"put": {"item": {"name": "b"}}}, {"put": {"item": {"name": "a"}, "condition": dear}}],
        )
        assert isinstance(cheap, dict)
        assert isinstance(refused, TooExpensive)
        assert present(await tables.get_item("things", "b")).version == cheap["version"]

    async def test_a_page_with_a_dear_filter_is_short(self, tables: Tables) -> None:
        """A page ends when it reaches the work limit, and its cursor continues until every item was seen."""
        await things(tables)
        for number in range(6):
            await tables.put_item("things", {"name": f"n{number}", "tags": MANY})
        dear = {"or": [*({"tags": {"contains": -number}} for number in range(1, 7)), {"name": {"gte": "n3"}}]}
        found: list[str] = []
        pages, cursor = 0, None
        while pages == 0 or cursor is not None:
            page = await tables.scan("things", filter=dear, cursor=cursor)
            found += [item.value["name"] for item in page.items]
            pages, cursor = pages + 1, page.cursor
        assert found == ["n3", "n4", "n5"]
        assert pages > 1

    async def test_conflicts_past_the_room_of_an_answer_have_no_value(self, kv: KV) -> None:
        """The conflicts of a batch show values up to 512 KB; later ones have only key and version."""
        large = await kv.set("large", LARGE)
        checks = [{"key": "large", "version": large.version + 9}] * 20
        with refusal(VersionConflict) as refused:
            await kv.batch(checks=checks, writes=[{"key": "other", "value": 1}])
        conflicts = refused.value.conflicts
        values = [conflict.current.value for conflict in conflicts if conflict.current is not None]
        assert values == [LARGE] * 8 + [msgspec.UNSET] * 12
        assert {conflict.current.version for conflict in conflicts if conflict.current} == {large.version}
        assert {conflict.current.key for conflict in conflicts if conflict.current} == {"large"}
        assert await kv.get("other") is None

    async def test_items_past_the_room_of_an_answer_are_not_shown(self, tables: Tables) -> None:
        """Refused writes of one call show their items up to 512 KB; later ones show only versions."""
        await things(tables)
        large = await tables.put_item("things", {"name": "a", "text": "x" * 300_000})
        write: dict[str, Any] = {"put": {"item": {"name": "a"}, "expected_version": large.version + 9}}
        first, *others = await tables.batch_write_item("things", [write] * 20)
        assert isinstance(first, VersionConflict)
        assert first.item == large
        for other in others:
            assert isinstance(other, VersionConflict)
            assert other.item is not None
            assert other.item.version == large.version
            assert not shown(other.item)

    async def test_a_transaction_shows_items_up_to_the_room_of_an_answer(self, tables: Tables) -> None:
        """The conflicts of a transaction show items up to 512 KB; later ones show only versions."""
        await things(tables)
        for name in "abc":
            await tables.put_item("things", {"name": name, "text": "x" * 200_000})
        checks = [
            {"check": {"table": "things", "partition_key": name, "condition": {"name": {"eq": "z"}}}}
            for name in "abc"
        ]
        with refusal(ConditionFailed) as refused:
            await tables.transact_write(checks)
        assert [shown(conflict.current) for conflict in refused.value.conflicts] == [True, True, False]

    async def test_a_call_that_would_load_too_much_is_refused(self, tables: Tables) -> None:
        """A call on more stored bytes than a request may load is TOO_EXPENSIVE and writes nothing."""
        await things(tables)
        names = [f"n{number:02}" for number in range(22)]
        for name in names:
            await tables.put_item("things", {"name": name, "text": "x" * 400_000})
        deletes = [{"delete": {"partition_key": name}} for name in names]
        with refusal(TooExpensive, says="fewer keys at a time"):
            await tables.batch_write_item("things", deletes)
        with refusal(ValueTooLarge, field="keys"):
            await tables.batch_get_item("things", names)
        assert await tables.get_item("things", names[0]) is not None
        done = await tables.batch_write_item("things", deletes[:18])
        assert all(isinstance(one, dict) and one["deleted"] for one in done)

    async def test_changes_with_large_images_come_page_by_page(self, tables: Tables) -> None:
        """A page of changes holds as many images as fit a reply, and the next page continues after it."""
        await things(tables)
        for number in range(5):
            await tables.put_item("things", {"name": f"n{number}", "text": "x" * 300_000})
        seen: list[Any] = []
        since, pages = 0, 0
        while pages < 20:
            page = await tables.changes("things", since, limit=10_000, view="new")
            if not page.changes:
                break
            seen += [change.partition_key for change in page.changes]
            since, pages = page.next, pages + 1
        assert seen == [f"n{number}" for number in range(5)]
        assert pages == 5
