"""Values beyond the size of an entry, which all integrations keep in one way, on every ground."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

import holdfast
from holdfast.handles.blobs import BlobReader
from holdfast.handles.kv import KV
from holdfast.integrations.overflow_values import EntryChange, OverflowValues

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.model import Entry
    from holdfast.store import Store

LONG: Final = "x" * 60_000


class Killed(OverflowValues):
    """A writer whose process ends as soon as its entry is written."""

    async def drop(self, values: Sequence[Any]) -> None:
        """Do nothing any more."""


def stored(entry: Entry) -> Any:
    """All of an entry is the value."""
    return entry.value


async def put(large: OverflowValues, value: Any, ttl: int | None = None) -> None:
    """Put a value under the one key that the tests here use."""
    packed = await large.pack(value, ttl=ttl)
    await large.replace([EntryChange("k", packed, packed.stored, ttl)])


async def got(large: OverflowValues, kv: KV) -> Any:
    """The value that is there, or None."""
    read = await large.read(await kv.get("k"))
    return None if read is None else read[1]


async def blobs(store: Store) -> int:
    """The number of blobs that there are."""
    return len((await store.blobs("p").list()).blobs)


async def test_value_that_imitates_a_blob_name_round_trips(store: Store) -> None:
    """Every value comes back as it was, also one that looks like the name of a blob."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    for value in ({"#blob": "x"}, {"#value": {"#blob": LONG}}, {"#value": 1, "a": 2}, LONG, [LONG], None, {}):
        await put(large, value)
        assert await got(large, kv) == value


async def test_a_writer_that_was_killed_leaves_nothing_for_long(store: Store, clock: ManualClock) -> None:
    """What a killed process has left, before or after its entry was written, goes after an hour."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    await large.pack(LONG)  # killed before the entry
    await put(large, LONG)
    await put(Killed(kv, stored), 1)  # killed after it
    clock.advance(3_599)
    await put(large, LONG + "2")
    assert await blobs(store) == 3
    clock.advance(1)
    await put(large, LONG + "3")
    assert await blobs(store) == 1
    assert (await kv.list("unnamed/")).keys == []
    assert len((await kv.list()).keys) == 2
    assert await got(large, kv) == LONG + "3"


async def test_a_writer_that_was_stopped_for_long_is_refused(store: Store, clock: ManualClock) -> None:
    """A process that goes on after its blob was removed gets a conflict: no entry names a missing blob."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    packed = await large.pack(LONG)
    clock.advance(3_600)
    await put(large, LONG + "2")
    with pytest.raises(holdfast.VersionConflict):
        await large.replace([EntryChange("k", packed, packed.stored)])
    assert await got(large, kv) == LONG + "2"


async def test_a_value_that_is_named_while_it_is_swept_stays(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow writer names its blob right after a sweep has found it old: the sweep leaves it alone."""
    kv, listing = store.kv("p"), KV.list
    large = OverflowValues(kv, stored)
    packed = await large.pack(LONG)
    clock.advance(3_600)
    named = False

    async def meanwhile(self: KV, prefix: str = "", **fields: Any) -> Any:
        nonlocal named
        page = await listing(self, prefix, **fields)
        if prefix == "unnamed/" and not named:
            named = True
            await large.replace([EntryChange("k", packed, packed.stored)])
        return page

    monkeypatch.setattr(KV, "list", meanwhile)
    await large.pack(LONG + "2")
    assert named
    assert await got(large, kv) == LONG


async def test_writers_of_one_key_do_not_wait_for_each_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Of many puts to one key at once each is written once and none is refused and repeated."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    await asyncio.gather(*(put(large, number) for number in range(30)))
    entry = await kv.get("k")
    assert entry is not None
    assert entry.version == 30
    assert "conflict" not in caplog.text


async def test_readers_get_whole_values_among_writers(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader gets a value that was there, whole, however often writers replace it, and no blob stays."""
    kv = store.kv("p")
    large, dice = OverflowValues(kv, stored), random.Random(7)
    await put(large, [0])

    async def write(name: int) -> None:
        for turn in range(4):
            await put(large, [name, turn] + ([LONG] if dice.random() < 0.7 else []))

    async def read() -> None:
        for _ in range(8):
            assert (await got(OverflowValues(kv, stored), kv))[0] in range(4)

    await asyncio.gather(*(write(name) for name in range(1, 4)), read(), read())
    clock.advance(3_600)
    monkeypatch.setattr("holdfast.integrations.overflow_values._digit", lambda: "")
    for _ in range(2):
        await put(large, LONG)
    await put(large, 1)
    assert await blobs(store) == 0
    assert (await kv.list()).keys == ["k"]


async def test_blob_of_a_lost_race_is_removed_later(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two writers at once the last one stays; the blob of the other one goes after an hour, no other."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    packed = await large.pack(LONG + "1")
    await large.replace([EntryChange("k", packed, packed.stored)], [None])
    other = await large.pack(LONG + "2")
    await large.replace([EntryChange("j", other, other.stored)])
    packed = await large.pack(LONG + "3")
    await large.replace([EntryChange("k", packed, packed.stored)], [None])  # has not seen the first
    assert await blobs(store) == 3
    clock.advance(3_600)
    monkeypatch.setattr("holdfast.integrations.overflow_values._digit", lambda: "")
    await large.forget([EntryChange("none", await large.pack(LONG))])
    assert await blobs(store) == 2
    assert await got(large, kv) == LONG + "3"
    read = await large.read(await kv.get("j"))
    assert read is not None
    assert read[1] == LONG + "2"


async def test_a_blob_lives_as_long_as_its_entry(store: Store, clock: ManualClock) -> None:
    """A large value expires at the same second as a small one, and its blob within a minute of it."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    await put(large, LONG, ttl=5)
    clock.advance(4)
    assert await got(large, kv) == LONG
    clock.advance(1)
    assert await got(large, kv) is None
    clock.advance(60)
    assert await blobs(store) == 0


async def test_a_blob_that_was_deleted_by_hand_is_an_error(store: Store) -> None:
    """Data that is missing is never taken for a value that was not there."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    await put(large, LONG)
    for blob in (await store.blobs("p").list()).blobs:
        await store.blobs("p").delete(blob.name)
    with pytest.raises(holdfast.KeyNotFound, match="'k', is missing"):
        await got(large, kv)


async def test_a_busy_store_misses_no_blob(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is too busy to return a value says so, and not that the value is gone for good."""
    kv = store.kv("p")
    large = OverflowValues(kv, stored)
    await put(large, LONG)

    async def busy(_: BlobReader) -> bytes:
        raise holdfast.Busy("too many requests are waiting")

    with monkeypatch.context() as crowded:
        crowded.setattr(BlobReader, "read", busy)
        with pytest.raises(holdfast.Busy, match="too many"):
            await got(large, kv)
    assert await got(large, kv) == LONG


async def test_a_project_has_no_blobs(tmp_path: Path) -> None:
    """In a namespace that has no blobs beside it, a large value is refused as by every other verb."""
    async with holdfast.open(tmp_path / "state.db") as store:
        kv = store.semantic("acme", "web")
        large = OverflowValues(kv, stored)
        with pytest.raises(holdfast.ValueTooLarge):
            await put(large, LONG * 2)
        await put(large, "small")
        assert await got(large, kv) == "small"
