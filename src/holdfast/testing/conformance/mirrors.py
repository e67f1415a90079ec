"""Copies of a prefix that stay in step: mirror.

Law: tests wait with `reached` or for a callback, never for a fixed time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import Unavailable, ValidationError
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.model import Entry
    from holdfast.store import Store

PATIENCE = 20.0


class MirrorRules(Fixtures):
    """The rules of mirror."""

    async def test_a_mirror_follows_its_prefix(self, kv: KV) -> None:
        """A mirror holds what was there when it was opened, then every change below its prefix."""
        await kv.set("c:kept", 1)
        await kv.set("c:gone", 2)
        await kv.set("other", 3)
        async with asyncio.timeout(PATIENCE), kv.mirror("c:") as mirror:
            assert dict(mirror) == {"c:kept": 1, "c:gone": 2}
            await kv.set("c:new", {"a": [1]})
            await kv.delete("c:gone")
            await kv.set("other", 4)
            last = await kv.incr("c:kept")
            await mirror.reached(last.version)
            assert dict(mirror) == {"c:kept": 2, "c:new": {"a": [1]}}
            assert mirror.entry("c:kept") == last
            assert (len(mirror), "c:gone" in mirror, mirror.get("c:gone", "none")) == (2, False, "none")
            assert mirror.stale_for < PATIENCE

    async def test_items_are_of_one_instant(self, kv: KV) -> None:
        """Items and values that were asked for stay as they were, whatever changes while they are read."""
        await kv.set("c:a", 1)
        await kv.set("c:b", 2)
        async with asyncio.timeout(PATIENCE), kv.mirror("c:") as mirror:
            items, values = mirror.items(), mirror.values()
            await kv.delete("c:a")
            last = await kv.set("c:b", 3)
            await mirror.reached(last.version)
            assert (dict(items), sorted(values)) == ({"c:a": 1, "c:b": 2}, [1, 2])
            assert (dict(mirror.items()), dict(mirror)) == ({"c:b": 3}, {"c:b": 3})

    async def test_a_mirror_of_everything(self, kv: KV) -> None:
        """Without a prefix a mirror has all keys of the namespace, however many there are."""
        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            assert dict(mirror) == {}
            await kv.set_many([{"key": f"k{number:04}", "value": number} for number in range(1_000)])
            last = await kv.set("more", 1)
            await mirror.reached(last.version)
            assert len(mirror) == 1_001
        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            assert (len(mirror), mirror["k0999"]) == (1_001, 999)

    async def test_changes_are_reported(self, kv: KV) -> None:
        """The callback gets each key with its new entry, None once it is gone; a key outside is not told."""
        told: list[tuple[str, Entry | None]] = []
        first = await kv.set("c:a", 1)
        async with (
            asyncio.timeout(PATIENCE),
            kv.mirror("c:", on_change=lambda key, entry: told.append((key, entry))) as mirror,
        ):
            assert told == []
            second = await kv.set("c:a", 2)
            await mirror.reached(second.version)
            await kv.set("other", 1)
            await kv.delete("c:a", expected_version=second.version)
            last = await kv.set("other", 2)
            await mirror.reached(last.version)
        assert first.version < second.version
        assert told == [("c:a", second), ("c:a", None)]

    async def test_a_mirror_shows_nothing_expired(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """An entry leaves the mirror at its deadline, before the expiry is recorded, and may come back."""
        await kv.set("k", 1, ttl=60)
        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            clock.advance(59.999)
            assert dict(mirror) == {"k": 1}
            clock.advance(0.001)
            assert (dict(mirror), len(mirror), mirror.entry("k")) == ({}, 0, None)
            await store.sweep()
            again = await kv.set("k", 2)
            await mirror.reached(again.version)
            assert dict(mirror) == {"k": 2}

    async def test_a_mirror_of_a_project(self, store: Store) -> None:
        """In a tenant's project a mirror has full keys, and finds an entry by its relative key as well."""
        kv = store.semantic("acme", "web")
        entry = await kv.set("config/colour", "red")
        async with asyncio.timeout(PATIENCE), kv.mirror("config/") as mirror:
            assert dict(mirror) == {entry.key: "red"}
            assert (mirror["config/colour"], mirror.entry("config/none")) == ("red", None)

    async def test_a_mirror_that_does_not_follow(self, kv: KV, store: Store) -> None:
        """A mirror can be read only while it follows: in its block, until the store closes."""
        mirror = kv.mirror("c:")
        with refusal(Unavailable, says="'c:'"):
            mirror.get("c:a")
        async with asyncio.timeout(PATIENCE), mirror:
            assert mirror.get("c:a") is None
        with refusal(Unavailable, says="not following"):
            assert mirror.stale_for
        async with asyncio.timeout(PATIENCE), mirror:
            waiting = asyncio.ensure_future(mirror.reached(2**60))
            await asyncio.sleep(0)
            await store.aclose()
            with refusal(Unavailable, says="not following"):
                await waiting
            with refusal(Unavailable, says="not following"):
                list(mirror)

    async def test_many_writers_and_one_mirror(self, kv: KV) -> None:
        """Under concurrent writes a mirror ends up with exactly what the store holds."""

        async def write(name: str) -> None:
            for number in range(12):
                await kv.set(f"{name}/{number % 4}", number)
                if number % 3 == 0:
                    await kv.delete(f"{name}/{number % 4}")

        async with asyncio.timeout(PATIENCE), kv.mirror() as mirror:
            await asyncio.gather(*(write(f"w{number}") for number in range(6)))
            last = await kv.set("last", 0)
            await mirror.reached(last.version)
            held = {entry.key: entry for entry in (await kv.list(values=True)).entries or ()}
            assert {key: mirror.entry(key) for key in mirror} == held

    async def test_a_prefix_that_is_no_prefix(self, kv: KV) -> None:
        """A mirror checks its prefix at once."""
        with refusal(ValidationError, field="prefix"):
            kv.mirror("\x00")
