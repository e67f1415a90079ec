"""Walking over keys, and several keys in one call.

A cursor is opaque. The tests pass it back unchanged and check what a caller sees.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta, timezone
from typing import Any, Final

import pytest

from holdfast.clock import ManualClock, moment
from holdfast.errors import HoldfastError, MissingField, ValidationError, ValueTooLarge, VersionConflict
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.model import KEEP, Entry, Page
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import refusal

NO_LIMIT: Final[tuple[Any, ...]] = (0, -1, 10_001, True, 1.0, "5", [5])
NO_TIME: Final[tuple[Any, ...]] = ("", "soon", "12:30", 1_800_000_000, "0001-01-01T00:00:00+01:00", True)
NO_FILTER: Final[tuple[tuple[str, str, tuple[Any, ...]], ...]] = (
    ("purpose", "purpose", ("", "Lock", "a" * 33, 5, ["lock"])),
    ("producer", "producer", ("", "p" * 201, "a\nb", 5)),
    ("writer", "last_writer", ("", "w" * 201, "a\x00b", 5)),
    ("spec_ref", "spec_ref", ("s" * 501, 5)),
    ("expires_before", "expires_before", NO_TIME),
)
"""Each filter argument, the field that its refusal names, and invalid values for it."""
NO_CURSOR: Final[tuple[Any, ...]] = (5, b"YQ", ["a"], "é", "a", "_w", "7aCA", "AA", "YQBi", "!!!!", "YQ YQ")


LARGE = [{"key": f"{number:03}", "value": "x" * 1024} for number in range(120)]
"""Items of a call that is executed in a group of its own, beside the groups of other namespaces."""


async def fill(kv: KV, keys: list[str], value: Any = 0) -> None:
    """Set each key to the same value."""
    for start in range(0, len(keys), 100):
        await kv.set_many([{"key": key, "value": value} for key in keys[start : start + 100]])


async def walk(kv: KV, prefix: str = "", **given: Any) -> list[Page]:
    """Return all pages of a listing. Asserts that each page continues after the one before."""
    pages = [await kv.list(prefix, **given)]
    seen = pages[0].keys[-1:]
    while pages[-1].cursor is not None:
        page = await kv.list(prefix, cursor=pages[-1].cursor, **given)
        assert page.cursor != pages[-1].cursor
        assert not page.keys or [page.keys[0]] > seen
        seen = page.keys[-1:] or seen
        pages.append(page)
    return pages


async def found(kv: KV, prefix: str = "", **given: Any) -> list[str]:
    """Return the keys of all pages of a listing."""
    return [key for page in await walk(kv, prefix, **given) for key in page.keys]


class ListingRules(Fixtures):
    """The rules of list."""

    async def test_an_empty_namespace(self, kv: KV) -> None:
        """An empty namespace gives one empty page."""
        page = await kv.list()
        assert (page.keys, page.count, page.entries) == ([], 0, None)
        assert (page.truncated, page.cursor) == (False, None)
        assert (await kv.list(values=True)).entries == []

    async def test_entries_come_on_request(self, kv: KV) -> None:
        """With `values`, a page shows entries as get does, in the order of its keys."""
        await kv.set("a", {"x": 1.0}, semantics={"purpose": "flag"}, spec_ref="s", writer="w")
        await kv.set("b", None, ttl=60)
        page = await kv.list(values=True)
        assert page.keys == ["a", "b"]
        assert page.entries == [await kv.get("a"), await kv.get("b")]
        assert (await kv.list()).entries is None

    @pytest.mark.parametrize("wanted", [{}, {"writer": "w"}], ids=["all", "filtered"])
    async def test_pages_hold_what_they_are_asked_for(self, kv: KV, wanted: dict[str, Any]) -> None:
        """Pages end at the limit, with a cursor; the last page has none, even when it is full."""
        keys = [f"{number:02}" for number in range(12)]
        await kv.set_many([{"key": key, "value": 0} for key in keys], writer="w")
        if wanted:
            await kv.set_many([{"key": f"{key}x", "value": 0} for key in keys], writer="v")
        for limit in (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 10_000):
            pages = await walk(kv, limit=limit, **wanted)
            assert [key for page in pages for key in page.keys] == keys
            assert all(page.count == limit and page.truncated for page in pages[:-1])
            assert pages[-1].truncated is False
            assert len(pages) == -(-len(keys) // limit)

    async def test_pages_of_a_prefix(self, kv: KV) -> None:
        """A cursor continues the listing of the same prefix and stays within it."""
        await fill(kv, ["a", "ab", "ab1", "ab2", "ab3", "ac", "b", "%", "ab%"])
        pages = await walk(kv, "ab", limit=2)
        assert [page.keys for page in pages] == [["ab", "ab%"], ["ab1", "ab2"], ["ab3"]]
        assert await walk(kv, "zz", limit=2) == [await kv.list("zz")]

    async def test_the_limits_of_a_limit(self, kv: KV) -> None:
        """A limit is a whole number from 1 to 10,000, in every verb that takes one."""
        for wrong in NO_LIMIT:
            with refusal(ValidationError, field="limit", says="10000", about=wrong):
                await kv.list(limit=wrong)
            with refusal(ValidationError, field="limit", says="10000", about=wrong):
                await kv.changes(limit=wrong)
            with refusal(ValidationError, field="limit", says="10000", about=wrong):
                await kv.history("k", limit=wrong)

    async def test_a_thousand_keys_by_default(self, kv: KV) -> None:
        """Without a limit a page holds 1,000 keys."""
        await fill(kv, [f"{number:04}" for number in range(1001)])
        page = await kv.list()
        assert (page.count, page.truncated) == (1000, True)
        assert (await kv.list(cursor=page.cursor)).keys == ["1000"]
        assert (await kv.list(limit=10_000)).count == 1001

    async def test_cursors_that_no_page_returned_are_refused(self, kv: KV) -> None:
        """A cursor that no page returned is refused, and never taken for another position."""
        await kv.set("k", 1)
        for wrong in NO_CURSOR:
            with refusal(ValidationError, field="cursor", about=wrong):
                await kv.list(cursor=wrong)

    async def test_a_cursor_of_another_prefix(self, kv: KV) -> None:
        """A cursor belongs to the listing that returned it."""
        await fill(kv, ["a1", "a2", "b1", "b2"])
        cursor = (await kv.list("b", limit=1)).cursor
        with refusal(ValidationError, field="cursor", says="prefix"):
            await kv.list("a", cursor=cursor)

    async def test_cursors_of_strange_keys(self, kv: KV) -> None:
        """A cursor can stand after any valid key."""
        keys = sorted(["\x01", "\n", "%", "é", "\uffff", "\U00010000", "\U0010ffff", "🎉" * 255, "x" * 255])
        await fill(kv, keys)
        assert [key for page in await walk(kv, limit=1) for key in page.keys] == keys

    @pytest.mark.parametrize("wanted", [{}, {"writer": "w"}], ids=["all", "filtered"])
    async def test_a_cursor_stays_right(self, kv: KV, clock: ManualClock, wanted: dict[str, Any]) -> None:
        """Each key that exists and matches throughout is seen exactly once, whatever changes meanwhile."""
        stay = [f"{number:02}" for number in range(0, 40, 2)]
        await kv.set_many([{"key": key, "value": 0} for key in stay], writer="w")
        brief = [{"key": f"{number:02}x", "value": 0, "ttl": 1} for number in range(0, 40, 4)]
        await kv.set_many(brief, writer="v")
        seen: list[str] = []
        cursor = None
        for turn in range(100):
            page = await kv.list(limit=3, cursor=cursor, **wanted)
            seen += page.keys
            cursor = page.cursor
            if cursor is None:
                break
            last = page.keys[-1]
            if last not in stay:
                await kv.delete(last)
            await kv.delete(f"{last}x")
            await kv.set(f"{last}a", 0, ttl=1, writer="w")
            await kv.set(f"0{turn}y", 0, ttl=1, writer="w")
            await kv.set(stay[turn % len(stay)], turn, writer="w")
            clock.advance(0.4)
        assert cursor is None
        assert [key for key in seen if key in stay] == stay
        assert seen == sorted(set(seen))

    @pytest.mark.parametrize("wanted", [{}, {"writer": "embedded"}], ids=["all", "filtered"])
    async def test_a_page_with_values_ends_at_512_kb(self, kv: KV, wanted: dict[str, Any]) -> None:
        """A page holds at most 512 KB and then has a cursor; without values it holds more keys."""
        keys = [f"{number:02}" for number in range(20)]
        await fill_large(kv, keys)
        pages = await walk(kv, values=True, **wanted)
        assert len(pages) > 2
        assert [key for page in pages for key in page.keys] == keys
        assert all(0 < page.count < 9 for page in pages)
        assert all(page.truncated == (page is not pages[-1]) for page in pages)
        assert (await kv.list(**wanted)).keys == keys

    async def test_a_page_of_keys_ends_at_512_kb(self, kv: KV) -> None:
        """Keys alone can fill a page too."""
        keys = [f"{number:03}" + "🎉" * 252 for number in range(600)]
        for start in range(0, 600, 200):
            await kv.set_many([{"key": key, "value": 0} for key in keys[start : start + 200]])
        pages = await walk(kv, limit=10_000)
        assert [key for page in pages for key in page.keys] == keys
        assert len(pages) == 2
        assert sum(len(key.encode()) for key in pages[0].keys) <= 524_288

    async def test_entries_by_their_envelope(self, kv: KV, clock: ManualClock) -> None:
        """A listing can filter by purpose, producer, writer, spec_ref and deadline; all must match."""
        await kv.set("a", 1, semantics={"purpose": "lock", "producer": "p"}, writer="w", spec_ref="s", ttl=60)
        await kv.set("b", 1, semantics={"purpose": "lock", "producer": "q"}, writer="w", spec_ref="t")
        await kv.set("c", 1, semantics={"purpose": "flag", "producer": "p"}, writer="v", ttl=61)
        await kv.set("d", 1, semantics={"consumer_hints": ["lock"]}, writer="w", ttl=62)
        await kv.set("e", 1, spec_ref="s")
        deadline = moment(clock.now() + 61_000)
        wanted: list[tuple[dict[str, Any], list[str]]] = [
            ({"purpose": "lock"}, ["a", "b"]),
            ({"producer": "p"}, ["a", "c"]),
            ({"writer": "w"}, ["a", "b", "d"]),
            ({"spec_ref": "s"}, ["a", "e"]),
            ({"expires_before": deadline}, ["a"]),
            ({"expires_before": moment(clock.now() + 61_001)}, ["a", "c"]),
            ({"purpose": "lock", "producer": "p"}, ["a"]),
            ({"purpose": "lock", "writer": "v"}, []),
            ({"writer": "w", "spec_ref": "t", "purpose": "lock", "producer": "q"}, ["b"]),
            ({"purpose": "loc"}, []),
            ({"spec_ref": ""}, []),
        ]
        for given, keys in wanted:
            assert await found(kv, **given) == keys, given
            assert await found(kv, limit=1, values=True, **given) == keys, given
        assert (await kv.list("b", purpose="lock")).keys == ["b"]
        page = await kv.list(purpose="lock", values=True)
        assert page.entries == [await kv.get("a"), await kv.get("b")]
        assert (page.truncated, page.cursor) == (False, None)

    async def test_times_in_every_form(self, kv: KV) -> None:
        """A time is a `datetime` or ISO 8601 text; without a zone it is UTC."""
        entry = await kv.set("k", 1, ttl=60)
        assert entry.expires_at is not None
        at = entry.expires_at
        elsewhere = at.astimezone(timezone(timedelta(hours=9)))
        for same_time in (at, elsewhere, at.replace(tzinfo=None)):
            for given in (same_time, same_time.isoformat()):
                assert (await kv.list(expires_before=given)).keys == []
            later = same_time + timedelta(milliseconds=1)
            for given in (later, later.isoformat()):
                assert (await kv.list(expires_before=given)).keys == ["k"]

    async def test_filters_with_invalid_values_are_refused(self, kv: KV) -> None:
        """A filter with an invalid value is refused, with the field that is wrong."""
        for name, field, wrongs in NO_FILTER:
            for wrong in wrongs:
                with refusal(ValidationError, field=field, about=(name, wrong)):
                    await kv.list(**{name: wrong})

    async def test_filters_skip_expired_and_overwritten_entries(self, kv: KV, clock: ManualClock) -> None:
        """An expired entry is in no listing, and an overwritten one is judged by its current envelope."""
        await kv.set("gone", 1, ttl=1, semantics={"purpose": "config"})
        await kv.set("changed", 1, semantics={"purpose": "config"})
        await kv.set("changed", 1, semantics={"purpose": "flag"})
        clock.advance(1)
        assert (await kv.list(purpose="config")).keys == []
        assert (await kv.list(expires_before=moment(clock.now() + 1000))).keys == []

    async def test_a_page_looks_at_so_much_and_no_more(self, kv: KV) -> None:
        """A page ends even if it finds almost no match, and the next page continues after it."""
        values = [{"key": f"{number:02}", "value": "x" * 65_534} for number in range(50)]
        for start in range(0, len(values), 7):
            await kv.set_many(values[start : start + 7])
        await kv.set("49", 0, semantics={"purpose": "lock"})
        pages = await walk(kv, purpose="lock")
        assert [page.keys for page in pages] == [[], ["49"]]
        assert [page.truncated for page in pages] == [True, False]


async def fill_large(kv: KV, keys: list[str]) -> None:
    """Set each key to a value of the largest size."""
    for key in keys:
        await kv.set(key, "x" * 65_534)


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

    async def test_arguments_that_must_be_lists_reject_anything_else(self, kv: KV) -> None:
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
