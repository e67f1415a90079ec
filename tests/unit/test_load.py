"""Loading entries of another store: versions, counters, envelopes."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.testing.exact import refusal


async def test_versions_are_kept_into_an_empty_namespace() -> None:
    """Entries that come in the order of their versions keep them, and the counter goes on from the last."""
    clock = ManualClock()
    async with (
        holdfast.open("memory://", clock=clock) as source,
        holdfast.open("sqlite://", clock=clock) as target,
    ):
        kv = source.kv("p")
        await kv.set("a", 1)
        await kv.set("b", 2, ttl=60, semantics={"purpose": "cursor"}, writer="me:x", spec_ref="doc")
        await kv.set("a", 3)
        entries = sorted((await kv.list(values=True)).entries or [], key=lambda entry: entry.version)
        assert await target.load("kv/p", entries, keep_versions=True) == 2
        assert [await target.kv("p").get(entry.key) for entry in entries] == entries
        assert (await target.kv("p").set("c", 1)).version == 4
        assert (await target.stats("kv/p")).keys == 3
        assert await target.recount("kv/p") == 0


async def test_new_versions_are_given_where_they_would_go_back() -> None:
    """A version is never given twice: into a namespace that is further on, entries get new ones."""
    async with holdfast.open("memory://", clock=ManualClock()) as store:
        kv = store.kv("p")
        for number in range(5):
            last = await kv.set("a", number)
        entry = msgspec.structs.replace(last, key="old", version=2)
        assert await store.load("kv/p", [entry], keep_versions=True) == 1
        found = await kv.get("old")
        assert found is not None
        assert found.version == 6
        assert [change.version for change in (await kv.changes(5)).changes] == [6]


async def test_load_leaves_out_expired_entries() -> None:
    """An entry whose deadline has passed is not loaded."""
    clock = ManualClock()
    async with holdfast.open("memory://", clock=clock) as store:
        entry = await store.kv("p").set("a", 1, ttl=1)
        clock.advance(1)
        assert await store.load("kv/q", [entry], keep_versions=False) == 0
        assert await store.kv("q").get("a") is None


@pytest.mark.parametrize("field", ["created_at", "updated_at", "expires_at"])
@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-23:59"])
async def test_times_outside_of_the_calendar_are_refused(field: str, text: str) -> None:
    """A zone may move a time out of the years of dates: nobody could read the entry, nor list others."""
    async with holdfast.open("memory://", clock=ManualClock()) as store:
        entry = msgspec.structs.replace(
            await store.kv("p").set("a", 1), **{field: datetime.fromisoformat(text)}
        )
        with refusal(holdfast.ValidationError, field=field):
            await store.load("kv/q", [entry], keep_versions=True)
        legal = msgspec.structs.replace(entry, **{field: datetime.fromisoformat(text[:-6] + "+00:00")})
        await store.load("kv/q", [legal], keep_versions=True)
        assert (await store.kv("q").list(values=True)).count == (
            field != "expires_at" or text.startswith("9")
        )


async def test_load_checks_keys_and_values() -> None:
    """Loading goes through the same rules as every other door."""
    async with holdfast.open("memory://", clock=ManualClock()) as store:
        entry = await store.kv("p").set("a", 1)
        for wrong in ({"key": ""}, {"value": float("nan")}, {"last_writer": ""}, {"version": -1}):
            with pytest.raises(holdfast.ValidationError):
                await store.load("kv/q", [msgspec.structs.replace(entry, **wrong)], keep_versions=True)
        with pytest.raises(holdfast.ValidationError):
            await store.load("nowhere", [entry], keep_versions=True)
        with pytest.raises(holdfast.ValidationError):
            await store.load("kv/q", [{"key": "a"}], keep_versions=True)  # type: ignore[list-item]
        assert (await store.kv("q").list()).keys == []


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
@pytest.mark.parametrize("keep_versions", [True, False])
async def test_a_version_without_room_behind_it_is_refused(url: str, keep_versions: bool) -> None:
    """A version that would use up the namespace's counter is refused, and the next write succeeds."""
    async with holdfast.open(url, clock=ManualClock()) as store:
        kv = store.kv("p")
        entry = await kv.set("a", 1)
        for version in (2**63 - 1, 2**63 - 2, 2**62 + 1):
            with pytest.raises(holdfast.ValidationError, match=f"from 0 to {2**62}, not {version}") as caught:
                await store.load(
                    "kv/p", [msgspec.structs.replace(entry, version=version)], keep_versions=keep_versions
                )
            assert caught.value.field == "version"
        assert (await kv.set("a", 2)).version == 2


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
async def test_after_the_greatest_version_writes_go_on(url: str) -> None:
    """The greatest version that can be loaded leaves room for as many writes again."""
    async with holdfast.open(url, clock=ManualClock()) as store:
        entry = await store.kv("p").set("a", 1)
        for _ in range(2):
            greatest = msgspec.structs.replace(entry, version=2**62)
            assert await store.load("kv/q", [greatest], keep_versions=True) == 1
        assert (await store.kv("q").set("a", 2)).version == 2**62 + 2


async def test_a_large_value_needs_a_policy_to_be_loaded() -> None:
    """A value that one store's policy allowed is loaded into another whose policy allows it too."""
    large = "x" * 524_286
    async with holdfast.open("memory://") as source, holdfast.open("memory://") as target:
        await source.set_policy("kv/p", {"max_value_bytes": 524_288})
        entry = await source.kv("p").set("large", large)
        with pytest.raises(holdfast.ValueTooLarge, match="64KB limit"):
            await target.load("kv/p", [entry], keep_versions=True)
        assert (await target.kv("p").list()).keys == []
        await target.set_policy("kv/p", {"max_value_bytes": 524_288})
        assert await target.load("kv/p", [entry], keep_versions=True) == 1
        loaded = await target.kv("p").get("large")
        assert loaded is not None
        assert loaded.value == large
