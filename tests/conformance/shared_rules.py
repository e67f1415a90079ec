"""What holds where several services share the requests of a client: rules of the kit, as they are there.

Calls that do not wait for each other reach different services, so the order in which they take effect is not
promised. A rate limit applies to each service, and services learn of it one after the other.

Each rule has the name of the one in the kit that it replaces, and asserts all of it that is promised.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import RateLimited, Unavailable, VersionConflict
from holdfast.model import Entry
from holdfast.testing.conformance.fixtures import Fixtures, on_key
from holdfast.testing.conformance.tables import events
from holdfast.testing.exact import present

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.handles.tables import Tables
    from holdfast.store import Store
    from holdfast.testing.conformance import Reopen


class SharedRules(Fixtures):
    """The rules that are others if services share requests."""

    async def test_calls_take_effect_in_the_order_in_which_they_are_begun(self, tables: Tables) -> None:
        """Tables are created, dropped and indexed, and each call sees those that were awaited before it."""
        for life in range(2):
            await events(tables)
            puts = [tables.put_item("events", {"user": "a", "at": at, "life": life}) for at in range(30)]
            await asyncio.gather(*puts)
            await tables.create_index("events", "by", key=("life", "number"))
            adds = [tables.update_item("events", "a", at, add={"life": 1}) for at in range(0, 40, 2)]
            await asyncio.gather(*adds)
            await asyncio.gather(*(tables.delete_item("events", "a", at) for at in range(1, 30, 2)))
            found = (await tables.query("events", "a", limit=50)).items
            expected = [{"user": "a", "at": at, "life": life + 1 if at < 30 else 1} for at in range(0, 40, 2)]
            assert [item.value for item in found] == expected
            assert (await tables.check_index("events", "by"))["consistent"] is True
            await tables.drop_table("events")

    async def test_a_rate(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """A service that knows the rate admits as many requests as it says, and refuses more.

        The one that set the rate knows it at once, the others with their next upkeep.
        """
        await store.set_policy("kv/trivia", {"rate_limit": 2})
        calls = [kv.set(f"{number}", 1) for number in range(60)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in done if isinstance(one, BaseException)]
        assert all(isinstance(one, RateLimited) and one.retry_after == 0.5 for one in refused), refused
        assert 1 <= len(refused) <= len(calls) - 2
        await store.kv("other").set("k", 1)
        clock.advance(10)
        await kv.get("0")

    async def test_a_get_sees_a_set_that_was_not_awaited(self, kv: KV) -> None:
        """Every read sees the writes that were acknowledged before it, whichever services were called."""
        for number in range(20):
            entry = await kv.set("k", number, ttl=60)
            seen, many, page, left = await asyncio.gather(
                kv.get("k"), kv.get_many(["k"]), kv.list(values=True), kv.get_ttl("k")
            )
            assert seen == entry
            assert many == [entry]
            assert page.entries == [entry]
            assert left == 60
            assert await kv.delete("k")
            gone, empty = await asyncio.gather(kv.get("k"), kv.list())
            assert (gone, empty.keys) == (None, [])

    async def test_changes_and_stats_see_it_too(self, kv: KV, store: Store) -> None:
        """So do reads of the journal and of counts."""
        for number in range(1, 10):
            await kv.set(f"{number}", "v")
            page, history, stats = await asyncio.gather(
                kv.changes(), kv.history(f"{number}"), store.stats("kv/trivia")
            )
            assert (len(page.changes), len(history), stats.keys) == (number, 1, number)

    async def test_a_closed_store_is_unavailable(self, kv: KV, store: Store) -> None:
        """A closed store accepts nothing; what was accepted before is executed."""
        accepted = asyncio.gather(*(kv.set(f"{number}", "v") for number in range(10)))
        await asyncio.sleep(0)
        await store.aclose()
        assert sorted(entry.version for entry in await accepted) == list(range(1, 11))
        for call in on_key(kv).values():
            with pytest.raises(Unavailable):
                await call("k")

    async def test_increments_of_many_at_once_are_not_lost(self, kv: KV) -> None:
        """Every write is atomic: concurrent increments add up, and each returns its own sum."""
        entries = await asyncio.gather(*(kv.incr("n") for _ in range(100)))
        assert sorted(entry.value for entry in entries) == list(range(1, 101))
        assert present(await kv.get("n")).value == 100

    async def test_a_conflict_in_company(self, kv: KV, reopen: Reopen) -> None:
        """A conflict shows the whole entry as it was before or after a concurrent write."""
        await kv.set("other", 1)
        entry = await kv.set("k", {"a": [1, 2]})
        kv = present(await reopen()).kv("trivia")
        calls: list[Any] = [kv.set("k", 0, expected_version=9)]
        calls += [kv.set(key, 1) for key in ("k", "other", "k")]
        conflict, *written = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(conflict, VersionConflict)
        assert conflict.current in [entry, *written]
        assert sorted(one.version for one in written if isinstance(one, Entry)) == [3, 4, 5]
