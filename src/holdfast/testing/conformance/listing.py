"""Walking over keys: pages, their bounds and their cursors.

Law: a cursor is opaque. The tests hand it back as it came and look at what a caller sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ValidationError
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.kv import KV
    from holdfast.model import Page

NO_LIMIT: Final[tuple[Any, ...]] = (0, -1, 10_001, True, 1.0, "5", [5])
NO_CURSOR: Final[tuple[Any, ...]] = (5, b"YQ", ["a"], "é", "a", "_w", "7aCA", "AA", "YQBi", "!!!!", "YQ YQ")


async def fill(kv: KV, keys: list[str], value: Any = 0) -> None:
    """Put the same value at each key."""
    for start in range(0, len(keys), 100):
        await kv.set_many([{"key": key, "value": value} for key in keys[start : start + 100]])


async def walk(kv: KV, prefix: str = "", **given: Any) -> list[Page]:
    """All pages of a listing; one that does not go on after the last would never end."""
    pages = [await kv.list(prefix, **given)]
    while pages[-1].cursor is not None:
        page = await kv.list(prefix, cursor=pages[-1].cursor, **given)
        assert page.keys == [] or page.keys[0] > pages[-1].keys[-1]
        pages.append(page)
    return pages


class Listing(Fixtures):
    """The rules of list."""

    async def test_an_empty_namespace(self, kv: KV) -> None:
        """Nothing there is an empty page that is the last."""
        page = await kv.list()
        assert (page.keys, page.count, page.entries) == ([], 0, None)
        assert (page.truncated, page.cursor) == (False, None)
        assert (await kv.list(values=True)).entries == []

    async def test_entries_come_on_request(self, kv: KV) -> None:
        """With values a page shows entries as get does, in the order of its keys."""
        await kv.set("a", {"x": 1.0}, semantics={"purpose": "flag"}, spec_ref="s", writer="w")
        await kv.set("b", None, ttl=60)
        page = await kv.list(values=True)
        assert page.keys == ["a", "b"]
        assert page.entries == [await kv.get("a"), await kv.get("b")]
        assert (await kv.list()).entries is None

    async def test_pages_hold_what_they_are_asked_for(self, kv: KV) -> None:
        """Pages end at the limit, with a cursor; the last says that it is, also when it is full."""
        keys = [f"{number:02}" for number in range(12)]
        await fill(kv, keys)
        for limit in (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 10_000):
            pages = await walk(kv, limit=limit)
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

    async def test_what_is_no_cursor(self, kv: KV) -> None:
        """A cursor that no page gave is refused as such, and never taken for another place."""
        await kv.set("k", 1)
        for wrong in NO_CURSOR:
            with refusal(ValidationError, field="cursor", about=wrong):
                await kv.list(cursor=wrong)

    async def test_a_cursor_of_another_prefix(self, kv: KV) -> None:
        """A cursor belongs to the listing that gave it."""
        await fill(kv, ["a1", "a2", "b1", "b2"])
        cursor = (await kv.list("b", limit=1)).cursor
        with refusal(ValidationError, field="cursor", says="prefix"):
            await kv.list("a", cursor=cursor)

    async def test_cursors_of_strange_keys(self, kv: KV) -> None:
        """A cursor stands after any key that can be."""
        keys = sorted(["\x01", "\n", "%", "é", "\uffff", "\U00010000", "\U0010ffff", "🎉" * 255, "x" * 255])
        await fill(kv, keys)
        assert [key for page in await walk(kv, limit=1) for key in page.keys] == keys

    async def test_a_cursor_stays_right(self, kv: KV, clock: ManualClock) -> None:
        """Each key that was there throughout is seen exactly once, whatever comes and goes meanwhile."""
        stay = [f"{number:02}" for number in range(0, 40, 2)]
        await fill(kv, stay)
        await kv.set_many([{"key": f"{number:02}x", "value": 0, "ttl": 1} for number in range(0, 40, 4)])
        seen: list[str] = []
        cursor = None
        for turn in range(100):
            page = await kv.list(limit=3, cursor=cursor)
            seen += page.keys
            cursor = page.cursor
            if cursor is None:
                break
            last = page.keys[-1]
            if last not in stay:
                await kv.delete(last)
            await kv.set(f"{last}a", 0, ttl=1)
            await kv.set(f"0{turn}y", 0, ttl=1)
            await kv.set(stay[turn % len(stay)], turn)
            clock.advance(0.4)
        assert cursor is None
        assert [key for key in seen if key in stay] == stay
        assert seen == sorted(set(seen))

    async def test_a_page_with_values_ends_at_512_kb(self, kv: KV) -> None:
        """A page holds at most 512 KB, and says so by a cursor; each page makes headway."""
        keys = [f"{number:02}" for number in range(20)]
        await fill_large(kv, keys)
        pages = await walk(kv, values=True)
        assert len(pages) > 2
        assert [key for page in pages for key in page.keys] == keys
        assert all(0 < page.count < 9 for page in pages)
        assert all(page.truncated == (page is not pages[-1]) for page in pages)
        assert (await kv.list()).keys == keys

    async def test_a_page_of_keys_ends_at_512_kb(self, kv: KV) -> None:
        """Keys alone can fill a page too."""
        keys = [f"{number:03}" + "🎉" * 252 for number in range(600)]
        for start in range(0, 600, 200):
            await kv.set_many([{"key": key, "value": 0} for key in keys[start : start + 200]])
        pages = await walk(kv, limit=10_000)
        assert [key for page in pages for key in page.keys] == keys
        assert len(pages) == 2
        assert sum(len(key.encode()) for key in pages[0].keys) <= 524_288


async def fill_large(kv: KV, keys: list[str]) -> None:
    """Put a value of the largest size at each key."""
    for key in keys:
        await kv.set(key, "x" * 65_534)
