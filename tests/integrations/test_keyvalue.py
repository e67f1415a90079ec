"""The store of py-key-value: its documented rules, on every ground."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from key_value.aio.errors import InvalidTTLError, SerializationError, StoreConnectionError
from key_value.aio.protocols.key_value import (
    AsyncDestroyCollectionProtocol,
    AsyncDestroyStoreProtocol,
    AsyncEnumerateCollectionsProtocol,
    AsyncEnumerateKeysProtocol,
    AsyncKeyValue,
)

import holdfast
from holdfast.handles.kv import KV
from holdfast.integrations import overflow_values
from holdfast.integrations.keyvalue import HoldfastStore

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

STRANGE: Final = ["a/b", "%", "#", "", "snow ☃", "nul \x00", "lone \ud800", "x" * 1000, "/" * 300]


@pytest.fixture
def keyvalue(store: Store) -> HoldfastStore:
    """A store of py-key-value in a namespace of its own."""
    return HoldfastStore(store.kv("keyvalue"))


def test_store_implements_every_protocol(tmp_path: Path) -> None:
    """Wrappers and frameworks that check what a store can do find every protocol."""
    store = HoldfastStore(url=str(tmp_path / "state.db"))
    for protocol in (
        AsyncKeyValue,
        AsyncEnumerateKeysProtocol,
        AsyncEnumerateCollectionsProtocol,
        AsyncDestroyStoreProtocol,
        AsyncDestroyCollectionProtocol,
    ):
        assert isinstance(store, protocol)


def test_store_takes_a_handle_or_a_url() -> None:
    """Without either, the constructor raises an error."""
    with pytest.raises(holdfast.ValidationError, match="give either a handle or a url"):
        HoldfastStore()


async def test_put_get_and_delete(keyvalue: HoldfastStore) -> None:
    """A value comes back until it is deleted; collections keep their keys apart."""
    value = {"text": "é", "number": 2**70, "nested": {"list": [1.5, None, True]}}
    await keyvalue.put("k", value, collection="one")
    assert await keyvalue.get("k", collection="one") == value
    assert await keyvalue.get("k", collection="two") is None
    assert await keyvalue.get("k") is None
    assert await keyvalue.delete("k", collection="one") is True
    assert await keyvalue.delete("k", collection="one") is False
    assert await keyvalue.get("k", collection="one") is None


async def test_bulk_calls_take_any_number_of_keys(keyvalue: HoldfastStore) -> None:
    """Many keys are put, read and deleted in one call each, whatever their number and size."""
    keys = [f"key {number}" for number in range(1_200)]
    values = [{"n": number, "filler": "x" * (40_000 if number % 60 == 0 else 10)} for number in range(1_200)]
    await keyvalue.put_many(keys, values, collection="many")
    assert await keyvalue.get_many([*keys, "missing"], collection="many") == [*values, None]
    assert sorted(await keyvalue.keys("many")) == sorted(keys)
    assert await keyvalue.delete_many([*keys, "missing"], collection="many") == 1_200
    assert await keyvalue.get_many(keys[:2], collection="many") == [None, None]
    with pytest.raises(ValueError, match="different number"):
        await keyvalue.put_many(["a"], [], collection="many")


async def test_entries_expire_after_their_ttl(keyvalue: HoldfastStore, clock: ManualClock) -> None:
    """An entry is there for its ttl, fractions rounded up, and then gone from reads and listings."""
    await keyvalue.put("half", {"v": 1}, ttl=0.5)
    await keyvalue.put("long", {"v": 2}, ttl=100)
    await keyvalue.put("ever", {"v": 3})
    await keyvalue.put_many(["many"], [{"v": 4}], ttl=0.5)
    value, left = await keyvalue.ttl("half")
    assert (value, left is not None and 0 < left <= 1) == ({"v": 1}, True)
    [(_, long), (_, ever), nothing] = await keyvalue.ttl_many(["long", "ever", "missing"])
    assert long is not None
    assert 95 < long <= 100
    assert (ever, nothing) == (None, (None, None))
    clock.advance(1)
    assert await keyvalue.get_many(["half", "long", "ever", "many"]) == [None, {"v": 2}, {"v": 3}, None]
    assert await keyvalue.keys() == ["ever", "long"]
    for illegal in (0, -1, True):
        with pytest.raises(InvalidTTLError):
            await keyvalue.put("k", {}, ttl=illegal)


async def test_any_text_is_a_key_and_a_collection(keyvalue: HoldfastStore) -> None:
    """Any text is a key and a collection; listings give each back as it was, and none is mixed up."""
    for collection in STRANGE:
        await keyvalue.put_many(
            STRANGE,
            [{"name": [number, len(collection)]} for number in range(len(STRANGE))],
            collection=collection or "empty",
        )
    for collection in STRANGE:
        named = collection or "empty"
        assert sorted(await keyvalue.keys(named)) == sorted(STRANGE)
        found = await keyvalue.get_many(STRANGE, collection=named)
        assert found == [{"name": [number, len(collection)]} for number in range(len(STRANGE))]
    assert sorted(await keyvalue.collections()) == sorted(name or "empty" for name in STRANGE)
    assert len(await keyvalue.collections(limit=2)) == 2
    assert len(await keyvalue.keys(STRANGE[0], limit=3)) == 3


async def test_destroy_removes_only_its_own_collection(store: Store, keyvalue: HoldfastStore) -> None:
    """Destroying removes a collection or everything of this store, and nothing else of the namespace."""
    await store.kv("keyvalue").set("other", 1)
    for collection in ("a", "ab", "b"):
        await keyvalue.put_many(["1", "2"], [{}, {}], collection=collection)
    assert await keyvalue.destroy_collection("a") is True
    assert await keyvalue.destroy_collection("a") is False
    assert sorted(await keyvalue.collections()) == ["ab", "b"]
    assert await keyvalue.destroy() is True
    assert await keyvalue.collections() == []
    assert await store.kv("keyvalue").exists("other")


async def test_put_if_absent_succeeds_once(keyvalue: HoldfastStore, clock: ManualClock) -> None:
    """Of callers that race for a key exactly one puts its value; an expired entry counts as absent."""
    results = await asyncio.gather(
        *(keyvalue.put_if_absent("k", {"by": number}, collection="c", ttl=5) for number in range(8))
    )
    assert sorted(results) == [False] * 7 + [True]
    assert await keyvalue.get("k", collection="c") == {"by": results.index(True)}
    clock.advance(5)
    assert await keyvalue.put_if_absent("k", {"by": "late"}, collection="c") is True


@pytest.mark.parametrize(
    "value", [{"when": datetime(2026, 1, 1, tzinfo=UTC)}, {"nan": float("nan")}, {"large": "x" * 90_000}]
)
async def test_values_that_cannot_be_stored_are_refused(
    store: Store, keyvalue: HoldfastStore, value: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that is no JSON or too large is a SerializationError, and nothing is written."""
    monkeypatch.setattr(overflow_values, "LARGEST", 80_000)
    with pytest.raises(SerializationError):
        await keyvalue.put("k", value)
    with pytest.raises(SerializationError):
        await keyvalue.put_many(["j", "k"], [{"large": "x" * 70_000}, value])
    assert await keyvalue.get("k") is None
    assert (await store.kv("keyvalue").list()).keys == []
    assert (await store.blobs("keyvalue").list()).blobs == []


async def test_large_values_behave_like_small_ones(
    store: Store, keyvalue: HoldfastStore, clock: ManualClock
) -> None:
    """A value of any size is put, replaced, expired and destroyed as a small one, and leaves nothing."""
    long: dict[str, Any] = {"text": "é" * 200_000}
    await keyvalue.put("k", long, collection="c")
    await keyvalue.put("k", long | {"n": 2}, collection="c")
    assert await keyvalue.get("k", collection="c") == long | {"n": 2}
    assert not await keyvalue.put_if_absent("k", long, collection="c")
    assert await keyvalue.put_if_absent("j", long, collection="c", ttl=599.5)
    await keyvalue.put_many(["l", "m", "m"], [long, {"small": 1}, long | {"n": 3}], collection="c")
    assert len((await store.blobs("keyvalue").list()).blobs) == 4
    assert await keyvalue.get_many(["j", "m"], collection="c") == [long, long | {"n": 3}]
    clock.advance(600)
    assert await keyvalue.get("j", collection="c") is None
    assert await keyvalue.delete_many(["l", "none"], collection="c") == 1
    await keyvalue.put("k", {"small": 1}, collection="c")
    clock.advance(60)
    assert len((await store.blobs("keyvalue").list()).blobs) == 1
    assert await keyvalue.destroy_collection("c")
    assert (await store.blobs("keyvalue").list()).blobs == []
    assert (await store.kv("keyvalue").list()).keys == []


async def test_seed_is_stored_before_the_first_read(store: Store) -> None:
    """A seed is there before the first read."""
    keyvalue = HoldfastStore(store.kv("seeded"), seed={"c": {"k": {"v": 1}}})
    assert await keyvalue.get("k", collection="c") == {"v": 1}


async def test_store_from_a_url_opens_on_first_use(ground: Ground) -> None:
    """A store made from a URL opens at its first use, and what it keeps is there after a restart."""
    first = HoldfastStore(url=ground.url, plugin="own")
    await first.put("k", {"v": 1})
    await first.close()
    async with HoldfastStore(url=ground.url, plugin="own") as second:
        assert await second.get("k") == {"v": 1}
    assert await second.get("k") == {"v": 1}
    await second.close()


async def test_a_closed_storage_is_a_connection_error(ground: Ground) -> None:
    """Wrappers that retry or fall back recognise that the storage is away."""
    async with ground.open() as store:
        keyvalue = HoldfastStore(store.kv("k"))
        await keyvalue.put("k", {})
    with pytest.raises(StoreConnectionError):
        await keyvalue.get("k")


@pytest.mark.parametrize("size", [1, 100_000])
async def test_an_update_whose_answer_was_lost_is_made_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """An update with a `once` can be sent again: it counts once, and the value that is there is returned."""
    batch = KV.batch

    async def lost(self: KV, **given: Any) -> Any:
        await batch(self, **given)
        raise holdfast.OutcomeUnknown("the answer is lost")

    values = HoldfastStore(store.kv("desk"))

    async def count(once: str | None) -> Any:
        def more(value: Any) -> Any:
            return {"count": (value or {"count": 0})["count"] + 1, "text": "x" * size}

        return (await values.update("visits", more, once=once))["count"]

    for number in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(KV, "batch", lost)
            with pytest.raises(holdfast.OutcomeUnknown):
                await count(f"visit {number}")
        assert await count(f"visit {number}") == number
    assert await count(None) == 3


async def test_updates_lose_nothing(store: Store, clock: ManualClock) -> None:
    """Callers that change one value at once lose no change, and the value keeps its deadline."""
    ours = HoldfastStore(store.kv("desk"))
    await ours.put("visits", {"count": 0}, ttl=100)
    clock.advance(40)

    def added(value: dict[str, Any] | None) -> dict[str, Any]:
        return {"count": (value or {"count": 0})["count"] + 1}

    await asyncio.gather(*(ours.update("visits", added) for _ in range(20)))
    assert await ours.get("visits") == {"count": 20}
    assert await store.kv("desk").get_ttl("entry/default_collection/visits") == 60
    assert await ours.update("large", lambda value: {"text": "é" * 60_000, "was": value}, ttl=100) == {
        "text": "é" * 60_000,
        "was": None,
    }
    assert await ours.update("large", lambda value: {"length": len((value or {})["text"])}) == {
        "length": 60_000
    }
    assert (await store.blobs("desk").list()).blobs == []
    with pytest.raises(SerializationError):
        await ours.update("large", lambda value: {"text": {1, 2}})
