"""Several keys in one call, each on its own: get_many, set_many, delete_many.

Law: each result stands at the position of its request. A refused member does not affect the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, MissingField, ValidationError, ValueTooLarge, VersionConflict
from holdfast.model import KEEP, Entry
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.listing import fill_large
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.handles.tables import Tables
    from holdfast.store import Store

LARGE = [{"key": f"{number:03}", "value": "x" * 1024} for number in range(120)]
"""Items of a call that is executed in a group of its own, beside the groups of other namespaces."""


def kinds(results: list[Any]) -> list[Any]:
    """Convert results for comparison: an error becomes its class and field."""
    return [(type(one), one.field) if isinstance(one, HoldfastError) else one for one in results]


class ManyKeysRules(Fixtures):
    """The rules of the verbs that take several keys."""

    async def test_get_many(self, kv: KV) -> None:
        """Entries, absences and errors are returned by position, also for a repeated key."""
        a, b = await kv.set("a", 1), await kv.set("b", 2)
        wanted: list[Any] = ["b", "missing", "", "a", "b", 5, "x" * 256]
        bad = (ValidationError, "key")
        assert kinds(await kv.get_many(wanted)) == [b, None, bad, a, b, bad, bad]
        assert await kv.get_many([]) == []

    async def test_as_many_as_there_may_be(self, kv: KV) -> None:
        """A call takes a thousand keys and answers each."""
        keys = [f"{number:03}" for number in range(1000)]
        await kv.batch(writes=[{"key": key, "value": 1} for key in keys])
        found = await kv.get_many(keys)
        assert [one.key for one in found if isinstance(one, Entry)] == keys

    async def test_set_many(self, kv: KV) -> None:
        """Each item is set as set would; an invalid one gets its error, and the rest is written."""
        first = await kv.set("a", 0, ttl=60)
        items: list[Any] = [
            {"key": "a", "value": 1, "ttl": KEEP},
            {"key": "b", "value": 1, "ttl": 10, "semantics": {"purpose": "flag"}},
            {"key": "", "value": 1},
            {"key": "c", "value": float("inf")},
            {"key": "d", "value": "x" * 70_000},
            {"key": "e"},
            {"value": 1},
            5,
            {"key": "f", "value": 1, "ttl": 0},
            {"key": "a", "value": 2, "expected_version": first.version},
            {"key": "g", "value": None, "expected_version": 0},
            {"key": "a", "value": 3},
        ]
        results = await kv.set_many(items, writer="agent", spec_ref="doc")
        assert [type(result) for result in results] == [
            *(Entry, Entry, ValidationError, ValidationError, ValueTooLarge, MissingField, MissingField),
            *(ValidationError, ValidationError, VersionConflict, Entry, Entry),
        ]
        assert [result.field for result in results if isinstance(result, HoldfastError)] == [
            *("key", "value", "value", "value", "key", "items", "ttl", None),
        ]
        written = [result for result in results if isinstance(result, Entry)]
        assert [(entry.key, entry.version, entry.value) for entry in written] == [
            ("a", 2, 1),
            ("b", 3, 1),
            ("g", 4, None),
            ("a", 5, 3),
        ]
        conflict = results[9]
        assert isinstance(conflict, VersionConflict)
        assert conflict.current == written[0]
        assert written[0].expires_at == first.expires_at
        assert {(entry.last_writer, entry.spec_ref) for entry in written} == {("agent", "doc")}
        assert await kv.get_many(["a", "b", "c", "d", "e", "f"]) == [written[3], written[1], *[None] * 4]

    async def test_large_calls_among_small_ones(self, store: Store, kv: KV) -> None:
        """Sets, large calls of set_many and large batches that are made at once all succeed, each once."""
        keys, last = [f"{number:03}" for number in range(120)], 0
        for turn in range(1, 6):
            first, many, second, batch, third = await asyncio.gather(
                kv.set("000", 1),
                kv.set_many(LARGE),
                kv.set("000", 2),
                kv.batch(writes=[*LARGE, {"key": "count", "incr": 1}]),
                kv.set("000", 3),
            )
            assert {type(one) for one in many} == {Entry}
            versions = [one.version for one in (first, *many, second, third) if isinstance(one, Entry)]
            end = last + 2 * len(LARGE) + 4
            versions += [version for version in batch.versions if version is not None]
            assert sorted(versions) == list(range(last + 1, end + 1))
            assert await kv.delete_many(keys) == [True] * len(keys)
            last = end + len(keys)
            count = await kv.get("count")
            assert count is not None
            assert count.value == turn
        assert (await store.stats(kv.namespace)).keys == 1

    async def test_large_calls_of_an_audited_namespace(self, store: Store) -> None:
        """The audit has one unbroken chain of records, whatever large and small calls are made at once."""
        kv = store.semantic("acme", "web")
        await asyncio.gather(kv.set("z", 1), kv.set_many(LARGE), kv.set("z", 2), kv.set_many(LARGE))
        verdict = await store.audit(kv.namespace).verify()
        assert (verdict.whole, verdict.records) == (True, 2 * len(LARGE) + 2)

    async def test_large_calls_to_tables(self, tables: Tables) -> None:
        """A large batch_write_item that is made at once with single puts is written whole."""
        await tables.create_table("t", partition_key=("id", "number"))
        writes = [{"put": {"item": {"id": number, "text": "x" * 1024}}} for number in range(300)]
        for turn in range(3):
            before, many, after = await asyncio.gather(
                tables.put_item("t", {"id": -1, "turn": turn}),
                tables.batch_write_item("t", writes),
                tables.put_item("t", {"id": -2, "turn": turn}),
            )
            versions = [one["version"] for one in many if not isinstance(one, HoldfastError)]
            written = sorted([before.version, *versions, after.version])
            assert written == list(range(written[0], written[0] + len(writes) + 2))

    async def test_delete_prefix(self, kv: KV) -> None:
        """Keys with a common prefix are removed a page at a time, with a dry run first; others stay."""
        await kv.set_many([{"key": f"a:{number}", "value": number} for number in range(5)])
        await kv.set("b", 1)
        seen = await kv.delete_prefix("a:", dry_run=True)
        assert (seen.keys, seen.cursor) == ([f"a:{number}" for number in range(5)], None)
        first = await kv.delete_prefix("a:", limit=2, writer="w")
        assert first.keys == ["a:0", "a:1"]
        assert first.truncated
        rest = await kv.delete_prefix("a:", cursor=first.cursor)
        assert (rest.keys, rest.cursor) == (["a:2", "a:3", "a:4"], None)
        assert (await kv.delete_prefix("a:")).keys == []
        assert (await kv.list()).keys == ["b"]
        assert (await kv.history("a:0"))[0].last_writer == "w"
        with refusal(ValidationError, field="prefix", says="every key"):
            await kv.delete_prefix("")
        with refusal(ValidationError, field="request_id", says="no request_id"):
            await kv.delete_prefix("a", request_id="r")

    async def test_delete_many(self, kv: KV) -> None:
        """Each key is deleted as delete would; a repeated key is there only once."""
        await kv.set("a", 1)
        await kv.set("b", 1)
        keys: list[Any] = ["a", "missing", "\x00", "b", "a", None]
        bad = (ValidationError, "key")
        assert kinds(await kv.delete_many(keys)) == [True, False, bad, True, False, bad]
        assert (await kv.list()).keys == []
        assert [change.op for change in (await kv.changes(2)).changes] == ["deleted", "deleted"]

    async def test_nothing_to_do(self, kv: KV) -> None:
        """Empty lists, and lists without a valid member, are answered and change nothing."""
        assert await kv.set_many([]) == []
        assert await kv.delete_many([]) == []
        assert kinds(await kv.delete_many([""])) == [(ValidationError, "key")]
        assert kinds(await kv.set_many([{"key": "", "value": 1}])) == [(ValidationError, "key")]
        assert (await kv.changes()).next == 0

    async def test_what_is_no_list(self, kv: KV) -> None:
        """The argument must be a list; text or an object is refused."""
        wrongs: tuple[Any, ...] = ("keys", b"keys", {"k": 1}, 5, None)
        for wrong in wrongs:
            with refusal(ValidationError, field="keys", says="list", about=wrong):
                await kv.get_many(wrong)
            with refusal(ValidationError, field="keys", says="list", about=wrong):
                await kv.delete_many(wrong)
            with refusal(ValidationError, field="items", says="list", about=wrong):
                await kv.set_many(wrong)

    async def test_at_most_a_thousand(self, kv: KV) -> None:
        """One call takes at most 1,000 members; a longer list is refused as a whole."""
        keys = [f"{number:04}" for number in range(1001)]
        items = [{"key": key, "value": 0} for key in keys]
        assert len(await kv.set_many(items[:1000])) == 1000
        assert len(await kv.get_many(keys[:1000])) == 1000
        with refusal(ValidationError, field="items", says="1001"):
            await kv.set_many(items)
        with refusal(ValidationError, field="keys", says="1001"):
            await kv.get_many(keys)
        with refusal(ValidationError, field="keys", says="1001"):
            await kv.delete_many(keys)
        assert await kv.delete_many(keys[:1000]) == [True] * 1000

    async def test_half_a_megabyte_at_most(self, kv: KV) -> None:
        """A call that does not fit one reply or one request is refused, with its size and the limit."""
        keys = [f"{number}" for number in range(9)]
        await fill_large(kv, keys)
        assert len(await kv.get_many(keys[:7])) == 7
        with refusal(ValueTooLarge, says="524288"):
            await kv.get_many(keys)
        with refusal(ValueTooLarge, says="524288"):
            await kv.set_many([{"key": key, "value": "y" * 65_534} for key in keys])
        assert (await kv.changes()).next == 9
