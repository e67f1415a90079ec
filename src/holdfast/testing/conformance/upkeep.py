"""Stats, upkeep, the order of commands, and closing.

Law: counts are compared with what a caller can list. Upkeep is judged by what it must not change.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from holdfast.clock import moment
from holdfast.errors import Unavailable
from holdfast.model import Parts, Stats
from holdfast.testing.conformance.calls import on_key
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen, assert_empty
from holdfast.testing.exact import present

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store


async def counted(kv: KV) -> tuple[int, int]:
    """Return the number of keys and bytes that a listing shows."""
    entries = (await kv.list(values=True, limit=10_000)).entries or []
    size = sum(len(entry.key.encode()) + len(compact(entry.value)) for entry in entries)
    return len(entries), size


def compact(value: object) -> bytes:
    """Return the compact form of a value that has only one."""
    assert value is None or isinstance(value, str)
    return b"null" if value is None else f'"{value}"'.encode()


class UpkeepRules(Fixtures):
    """The rules of stats, upkeep, order and closing."""

    async def test_stats_of_nothing(self, store: Store) -> None:
        """A namespace that was never written to is empty, and asking for it does not create it."""
        stats = await store.stats("kv/nobody")
        assert (stats.keys, stats.bytes, stats.version) == (0, 0, 0)
        assert await store.namespaces() == []

    async def test_stats_follow_every_change(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Counts of keys and bytes follow every change to live entries at once."""

        async def check() -> None:
            stats = await store.stats("kv/trivia")
            assert (stats.keys, stats.bytes) == await counted(kv)

        await kv.set("é", "🎉")
        await check()
        await kv.set("é", "longer than before", ttl=60)
        await kv.set("b", None, ttl=5)
        await check()
        await kv.batch(writes=[{"key": "c", "value": "x"}, {"key": "é", "delete": True}])
        await check()
        await kv.set_many([{"key": "d", "value": "y" * 100, "ttl": 5}, {"key": "c", "value": ""}])
        await check()
        clock.advance(5)
        await check()
        await kv.set("b", "again")
        await check()
        await store.sweep()
        await check()
        await kv.set("s", "semantic", semantics={"purpose": "flag"})
        await kv.delete("s")
        await check()
        await kv.restore("s")
        await check()
        await kv.set_ttl("s", 1)
        clock.advance(1)
        await check()

    async def test_stats_tell_version_and_time(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Stats show the last version and its time; reading does not change them."""
        await kv.set("k", "v")
        at = clock.now()
        clock.advance(5)
        await kv.get("k")
        expected = Stats(namespace="kv/trivia", keys=1, bytes=4, version=1, changed_at=moment(at))
        found = await store.stats("kv/trivia")
        assert structs.replace(found, kept_bytes=0, parts=Parts()) == expected
        assert await store.namespaces() == [found]

    async def test_all_that_is_kept_is_counted(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Removal is counted as exactly as writing, in runs and one by one: a recount finds no error."""
        many = [{"key": f"ключ {number}", "value": number, "ttl": 1} for number in range(70)]
        await kv.set_many(many, spec_ref="§")
        for value in ("longer", "v"):
            await kv.set("k", value, semantics={"purpose": "config"}, request_id=value)
            await kv.delete("k")
        await kv.batch(writes=[{"guard": "lock"}])
        before = (await store.stats("kv/trivia")).parts
        assert min(before.entries, before.journal, before.trash, before.requests, before.other) > 128
        assert await store.recount("kv/trivia") == 0
        clock.advance(1)
        assert await store.sweep() == 70
        assert await store.recount("kv/trivia") == 0
        clock.advance(30 * DAY)
        await store.upkeep()
        assert await store.recount("kv/trivia") == 0
        stats = await store.stats("kv/trivia")
        assert (stats.kept_bytes, stats.parts) == (before.other, Parts(other=before.other))

    async def test_namespaces_are_listed_by_name(self, store: Store) -> None:
        """Every namespace that was written to is listed, of every family, even if it is empty again."""
        for kv in (
            store.kv("b"),
            store.semantic("acme", "web"),
            store.kv("a"),
            store.kv("a-b"),
            store.kv("a0"),
        ):
            await kv.set("k", "v")
        await store.kv("a").delete("k")
        found = await store.namespaces()
        assert [stats.namespace for stats in found] == [
            "kv/a",
            "kv/a-b",
            "kv/a0",
            "kv/b",
            "semantic/acme/web",
        ]
        assert [stats.keys for stats in found] == [0, 1, 1, 1, 1]
        assert found[3] == await store.stats("kv/b")

    async def test_stats_survive_opening_again(self, kv: KV, store: Store, reopen: Reopen) -> None:
        """Counts are stored with the entries they count."""
        await kv.set("a", "1")
        await kv.set("b", "2")
        await kv.delete("a")
        before = await store.namespaces()
        again = await reopen()
        if again.capabilities.durable:
            assert await again.namespaces() == before
        else:
            await assert_empty(again)

    async def test_upkeep_leaves_entries_alone(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Upkeep drops records, never entries: an entry without a deadline stays forever."""
        await kv.set("forever", "v", semantics={"purpose": "config"}, request_id="r")
        await kv.set("soon", "v", ttl=1)
        entry = await kv.get("forever")
        for _ in range(3):
            clock.advance(30 * DAY)
            await store.upkeep()
        assert await kv.get("forever") == entry
        assert await store.sweep() == 1
        assert (await store.stats("kv/trivia")).keys == 1

    async def test_upkeep_is_no_change(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Dropping records uses no version and is not a change."""
        await kv.set("k", "v", semantics={"purpose": "config"}, request_id="r")
        await kv.delete("k")
        before = await store.stats("kv/trivia")
        clock.advance(30 * DAY)
        await store.upkeep()
        after = await store.stats("kv/trivia")
        assert after.kept_bytes < before.kept_bytes, "what goes gives its room back"
        assert structs.replace(after, kept_bytes=before.kept_bytes, parts=before.parts) == before

    async def test_a_get_sees_a_set_that_was_not_awaited(self, kv: KV) -> None:
        """Commands take effect in the order of submission, even if the caller does not wait in between."""
        for number in range(20):
            entry, seen, many, page, left = await asyncio.gather(
                kv.set("k", number, ttl=60),
                kv.get("k"),
                kv.get_many(["k"]),
                kv.list(values=True),
                kv.get_ttl("k"),
            )
            assert seen == entry
            assert many == [entry]
            assert page.entries == [entry]
            assert left == 60
            deleted, gone, empty = await asyncio.gather(kv.delete("k"), kv.get("k"), kv.list())
            assert (deleted, gone, empty.keys) == (True, None, [])

    async def test_changes_and_stats_see_it_too(self, kv: KV, store: Store) -> None:
        """Reads of the journal and of counts are ordered with writes too."""
        for number in range(1, 10):
            _, page, history, stats = await asyncio.gather(
                kv.set(f"{number}", "v"), kv.changes(), kv.history(f"{number}"), store.stats("kv/trivia")
            )
            assert (len(page.changes), len(history), stats.keys) == (number, 1, number)

    async def test_writes_of_many_at_once(self, store: Store) -> None:
        """Concurrent writers to several namespaces all succeed, each version is used once, the last wins."""
        kvs = [store.kv(f"plugin{number}") for number in range(3)]

        async def write(kv: KV, task: int) -> list[int]:
            return [(await kv.set(f"{number % 4}", [task, number])).version for number in range(20)]

        for kv in kvs:
            versions = await asyncio.gather(*(write(kv, task) for task in range(5)))
            given = sorted(version for some in versions for version in some)
            assert given == list(range(1, 101))
            assert all(some == sorted(some) for some in versions)
            for change in (await kv.changes(96)).changes:
                assert present(await kv.get(change.key)).version >= change.version
            entries = (await kv.list(values=True)).entries or []
            assert max(entry.version for entry in entries) == 100

    async def test_a_closed_store_is_unavailable(self, kv: KV, store: Store) -> None:
        """A closed store accepts nothing; what was accepted before is executed."""
        accepted = asyncio.gather(*(kv.set(f"{number}", "v") for number in range(10)))
        await asyncio.sleep(0)
        await store.aclose()
        assert [entry.version for entry in await accepted] == list(range(1, 11))
        for call in on_key(kv).values():
            with pytest.raises(Unavailable):
                await call("k")
        for other in (kv.list(), kv.changes(), kv.get_many(["k"]), kv.set_many([{"key": "k", "value": 1}])):
            with pytest.raises(Unavailable):
                await other
        for asked in (store.namespaces(), store.stats("kv/trivia")):
            with pytest.raises(Unavailable):
                await asked

    async def test_a_closed_store_keeps_no_house(self, store: Store) -> None:
        """Sweeping and upkeep are unavailable too when the store is closed."""
        await store.aclose()
        with pytest.raises(Unavailable):
            await store.sweep()
        with pytest.raises(Unavailable):
            await store.upkeep()
