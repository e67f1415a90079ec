"""The store of LangGraph, on every ground."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import holdfast
import holdfast.sync
from holdfast.handles.kv import KV
from holdfast.integrations.langgraph import HoldfastGraphStore
from holdfast.integrations.langgraph_store import FoundGraphItem, matches

if TYPE_CHECKING:
    from pathlib import Path

    from langgraph.store.base import BaseStore

    from holdfast.clock import ManualClock
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

LONG: Final = "x" * 300
STRANGE: Final = [("a/b",), ("a", "b"), ("#", "%"), ("*",), ("é\n",), (LONG, "b"), (LONG,), ("b", LONG, "c")]


@pytest.fixture
def memories(store: Store) -> HoldfastGraphStore:
    """A store of LangGraph in a namespace of its own."""
    return HoldfastGraphStore(store)


async def namespaces(memories: BaseStore, *prefix: str) -> set[tuple[str, ...]]:
    """The namespaces of all items below a prefix."""
    return {item.namespace for item in await memories.asearch(prefix, limit=100)}


async def test_put_get_delete(memories: HoldfastGraphStore, clock: ManualClock) -> None:
    """An item comes back as it was put until it is deleted; replacing it keeps the time of its creation."""
    await memories.aput(("users", "ada"), "food", {"likes": ["plums"], "é": {"n": 2**70}})
    first = await memories.aget(("users", "ada"), "food")
    assert first is not None
    assert first.value == {"likes": ["plums"], "é": {"n": 2**70}}
    assert (first.namespace, first.key) == (("users", "ada"), "food")
    clock.advance(5)
    await memories.aput(("users", "ada"), "food", {"likes": []}, index=["likes"])
    second = await memories.aget(("users", "ada"), "food")
    assert second is not None
    assert second.created_at == first.created_at
    assert (second.updated_at - first.updated_at).total_seconds() == 5
    assert await memories.aget(("users",), "food") is None
    await memories.adelete(("users", "ada"), "food")
    assert await memories.aget(("users", "ada"), "food") is None
    await memories.adelete(("users", "ada"), "food")


async def test_items_of_strange_names_stay_apart(memories: HoldfastGraphStore) -> None:
    """Whatever the labels and keys hold and however long they are, items keep apart and come back by name."""
    for number, namespace in enumerate(STRANGE):
        for key in ("k", "", "k/#", LONG * 3):
            await memories.aput(namespace, key, {"n": number})
    for number, namespace in enumerate(STRANGE):
        items = [item for item in await memories.asearch(namespace, limit=100) if item.namespace == namespace]
        assert {item.key for item in items} == {"k", "", "k/#", LONG * 3}
        assert {item.value["n"] for item in items} == {number}
        assert len(items) == 4
    assert await memories.alist_namespaces() == sorted(STRANGE)
    assert await memories.alist_namespaces(prefix=(LONG,)) == [(LONG,), (LONG, "b")]
    assert await namespaces(memories, "*") == {("*",)}
    assert await namespaces(memories, "b") == {("b", LONG, "c")}
    with pytest.raises(InvalidNamespaceError):
        await memories.abatch([PutOp(("ok",), "k", {}), PutOp(("a.b",), "k", {})])
    assert await memories.aget(("ok",), "k") is None


async def test_search_filters_and_orders_items(memories: HoldfastGraphStore, clock: ManualClock) -> None:
    """A search gives the items below a namespace that meet its filter, those that were put last first."""
    people: dict[str, dict[str, Any]] = {
        "ada": {"age": 36, "on": True, "tags": ["a"], "home": {"city": "London"}},
        "bob": {"age": 20, "on": 1, "tags": ["a", "b"], "home": {"city": "Rome"}},
        "eve": {"name": "Eve", "on": False},
    }
    for key, value in people.items():
        await memories.aput(("people", key), "k", value)
        clock.advance(1)
    await memories.aput(("peoples",), "k", {"age": 36})

    async def found(**wanted: Any) -> list[str]:
        items = await memories.asearch(
            ("people",), filter={k.replace("_", "."): v for k, v in wanted.items()}
        )
        return [item.namespace[1] for item in items]

    assert await found() == ["eve", "bob", "ada"]
    assert await found(age={"$gt": 20}) == ["ada"]
    assert await found(age={"$gte": 20, "$lt": 36}) == ["bob"]
    assert await found(age={"$ne": 20}) == ["eve", "ada"]
    assert await found(name={"$lte": "Eve"}) == ["eve"]
    assert await found(name={"$lte": 7}) == []
    assert await found(on=True) == ["ada"]
    assert await found(tags=["a"]) == ["ada"]
    assert await found(home={"city": "Rome"}) == ["bob"]
    assert await found(home_city={"$eq": "Rome"}) == ["bob"]
    assert await found(age=None) == ["eve"]
    page = await memories.asearch(("people",), limit=1, offset=1)
    assert [item.namespace[1] for item in page] == ["bob"]
    with pytest.raises(ValueError, match="unsupported operator"):
        await found(age={"$near": 1})


async def test_a_query_without_an_index_is_refused(memories: HoldfastGraphStore) -> None:
    """Without an index, a search with a query says so, and nothing of its batch is done."""
    with pytest.raises(holdfast.Unsupported, match="no vector search"):
        await memories.asearch(("docs",), query="what do they like?")
    with pytest.raises(holdfast.Unsupported, match="no vector search"):
        await memories.abatch([PutOp(("docs",), "k", {}), SearchOp(("docs",), query="some")])
    assert await memories.aget(("docs",), "k") is None


async def test_namespaces_are_listed_by_conditions(memories: HoldfastGraphStore) -> None:
    """Namespaces are listed by conditions at both ends, with wildcards, cut to a depth, a page at a time."""
    every = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "x", "c"), ("ab", "c")]
    await memories.abatch([PutOp(namespace, key, {}) for namespace in every for key in "kl"])
    assert await memories.alist_namespaces() == every
    assert await memories.alist_namespaces(prefix=("a", "b"), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
    ]
    assert await memories.alist_namespaces(prefix=("a", "*", "c")) == [("a", "b", "c"), ("a", "x", "c")]
    assert await memories.alist_namespaces(suffix=("c",)) == [("a", "b", "c"), ("a", "x", "c"), ("ab", "c")]
    assert await memories.alist_namespaces(prefix=("a",), suffix=("*", "e")) == [("a", "b", "d", "e")]
    assert await memories.alist_namespaces(limit=2, offset=3) == every[3:]
    await memories.adelete(("ab", "c"), "k")
    await memories.adelete(("ab", "c"), "l")
    assert await memories.alist_namespaces(prefix=("ab",)) == []
    wrong: Any = "infix"
    with pytest.raises(ValueError, match="infix"):
        await memories.abatch([ListNamespacesOp((MatchCondition(wrong, ("a",)),))])
    with pytest.raises(ValueError, match="operation"):
        await memories.abatch([wrong])


async def test_a_batch_reads_before_it_writes(memories: HoldfastGraphStore) -> None:
    """Reads of a batch see what was there before it, in their operations' places; the last put counts."""
    await memories.aput(("n",), "k", {"v": 1})
    results = await memories.abatch(
        [
            PutOp(("n",), "k", {"v": 2}),
            GetOp(("n",), "k"),
            PutOp(("n",), "new", {}),
            SearchOp(("n",)),
            PutOp(("n",), "k", {"v": 3}),
            GetOp(("n",), "new"),
            PutOp(("n",), "new", None),
        ]
    )
    values = [getattr(one, "value", None) for one in results]
    assert values == [None, {"v": 1}, None, None, None, None, None]
    assert [item.value for item in results[3]] == [{"v": 1}]  # type: ignore[union-attr]
    assert [item.value for item in await memories.asearch(("n",))] == [{"v": 3}]


async def test_writes_of_a_batch_are_all_or_none(store: Store, memories: HoldfastGraphStore) -> None:
    """If one value can't be kept, no other of its batch is, however large that is."""
    with pytest.raises(holdfast.ValidationError):
        await memories.abatch(
            [PutOp(("n",), "a", {"v": "x" * 70_000}), PutOp(("n",), "b", {"v": float("nan")})]
        )
    assert await memories.asearch(()) == []
    assert (await store.blobs("langgraph").list()).blobs == []
    assert (await store.kv("langgraph").list()).keys == []


async def test_items_expire_after_their_minutes(store: Store, clock: ManualClock) -> None:
    """An item expires after its minutes, rounded up to seconds; reading it begins them anew, if asked to."""
    memories = HoldfastGraphStore(store, ttl={"default_ttl": 0.2, "refresh_on_read": True})
    for key, value in (("small", {"v": 1}), ("large", {"v": "x" * 70_000})):
        await memories.aput(("n",), key, value)
        await memories.aput(("n",), f"{key} short", value, ttl=0.001)
        await memories.aput(("n",), f"{key} kept", value, ttl=None)
    put = await memories.aget(("n",), "small", refresh_ttl=False)
    clock.advance(1)
    assert {item.key for item in await memories.asearch(("n",), limit=9, refresh_ttl=False)} == {
        *("small", "large", "small kept", "large kept")
    }
    clock.advance(10)
    for key in ("small", "large"):
        assert await memories.aget(("n",), key) is not None
    clock.advance(11)
    assert len(await memories.asearch(("n",), limit=9)) == 4
    clock.advance(11)
    item = await memories.aget(("n",), "small", refresh_ttl=False)
    assert item == put  # a read that prolongs an item's life leaves its times alone
    assert (await memories.aget(("n",), "large", refresh_ttl=False)) is not None
    clock.advance(1)
    assert {item.key for item in await memories.asearch(("n",))} == {"small kept", "large kept"}
    clock.advance(60)
    assert len((await store.blobs("langgraph").list()).blobs) == 1


async def test_a_large_item_that_is_read_again_and_again_lives_on(store: Store, clock: ManualClock) -> None:
    """Each read begins the lifetime of an item anew, and that of the blob which has its value."""
    memories = HoldfastGraphStore(store, ttl={"default_ttl": 2, "refresh_on_read": True})
    value = {"v": "x" * 100_000}
    await memories.aput(("n",), "large", value)
    for _ in range(4):
        clock.advance(110)
        item = await memories.aget(("n",), "large")
        assert item is not None
        assert item.value == value


@pytest.mark.parametrize(
    ("text", "put_at"),
    [
        ("2026-11-19t12:00:00.5z", datetime(2026, 11, 19, 12, 0, 0, 500_000, UTC)),
        ("2026-11-19 12:00:00.123456789Z", datetime(2026, 11, 19, 12, 0, 0, 123_457, UTC)),
        ("2026-11-19T12:00:00+0530", datetime(2026, 11, 19, 6, 30, tzinfo=UTC)),
        ("0001-01-01T00:00:00+23:59", datetime.min.replace(tzinfo=timezone(timedelta(minutes=1439)))),
        (
            "9999-12-31T23:59:59-23:59",
            datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(minutes=1439))),
        ),
    ],
)
async def test_a_time_in_any_form_of_the_standard_can_be_read(text: str, put_at: datetime) -> None:
    """Another program may spell the time of an item as RFC 3339 allows; what passes the check can be read."""
    async with holdfast.open("memory://") as store:
        memories, kv = HoldfastGraphStore(store, "p"), store.kv("p")
        for key in ("other", "k"):
            await memories.aput(("a",), key, {}, ttl=5)
        [entry] = [one for one in (await kv.list(values=True)).entries or () if one.key.endswith("/k")]
        await kv.set(entry.key, {**entry.value, "put_at": text, "put_version": 7}, ttl=300)
        for _ in range(2):  # the second reads what the first has prolonged
            item = await memories.aget(("a",), "k")
            assert item is not None
            assert item.updated_at == put_at
            found = await memories.asearch(("a",))
            assert {one.key for one in found} == {"k", "other"}


async def test_a_read_leaves_a_later_put_alone(
    store: Store, memories: HoldfastGraphStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An item that is put for ever while a reader prolongs the life of the one before is kept for ever."""

    async def overtaken(entry: object, ttl: int) -> None:
        await HoldfastGraphStore(store).aput(("n",), "k", {"v": 2})

    await memories.aput(("n",), "k", {"v": 1}, ttl=1)
    monkeypatch.setattr(memories._values, "prolong", overtaken)
    read = await memories.aget(("n",), "k")
    assert read is not None
    assert read.value == {"v": 1}
    clock.advance(60)
    [item] = await memories.asearch(("n",))
    assert item.value == {"v": 2}


async def test_large_values_behave_like_small_ones(store: Store, memories: HoldfastGraphStore) -> None:
    """A value far beyond the size of an entry is found, filtered and replaced as a small one."""
    await memories.aput(("n",), "k", {"text": "é" * 200_000, "kind": "book"})
    await memories.aput(("n",), "k", {"text": "é" * 200_001, "kind": "book"})
    [item] = await memories.asearch(("n",), filter={"kind": "book"})
    assert item.value["text"] == "é" * 200_001
    assert await memories.asearch(("n",), filter={"kind": "film"}) == []
    assert len((await store.blobs("langgraph").list()).blobs) == 1
    await memories.adelete(("n",), "k")
    assert (await store.blobs("langgraph").list()).blobs == []
    assert (await store.kv("langgraph").list()).keys == []


async def test_store_works_without_asyncio(ground: Ground) -> None:
    """With a store of holdfast.sync the methods without await work, and so do the others."""

    def use() -> None:
        with holdfast.sync.open(ground.url) as store:
            memories = HoldfastGraphStore(store, ttl={"default_ttl": 1})
            memories.put(("a", "b"), "k", {"v": 1})
            item = memories.get(("a", "b"), "k")
            assert item is not None
            assert item.value == {"v": 1}
            assert [one.key for one in memories.search(("a",), filter={"v": 1})] == ["k"]
            assert memories.list_namespaces() == [("a", "b")]
            assert asyncio.run(memories.aget(("a", "b"), "k")) is not None
            memories.delete(("a", "b"), "k")
            assert memories.search(()) == []

    await asyncio.to_thread(use)


async def test_an_asynchronous_store_says_what_it_lacks(memories: HoldfastGraphStore) -> None:
    """A call without await on an asynchronous store says how to open one that has it."""
    with pytest.raises(holdfast.Unsupported, match=r"holdfast\.sync\.open"):
        memories.get(("a",), "k")


async def test_threads_that_wait_for_the_store_leave_it_one() -> None:
    """Nodes without await run in the few threads of a loop, and all of them may use the store at once."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with holdfast.open("memory://") as store:
        memories = HoldfastGraphStore(
            store, index={"dims": 2, "embed": lambda texts: [[float(len(text)), 1.0] for text in texts]}
        )
        await memories.aput(("a",), "k", {"text": "x" * 900_000})
        async with asyncio.timeout(60):
            item = await asyncio.to_thread(memories.get, ("a",), "k")
            found = await asyncio.to_thread(lambda: memories.search((), query="x"))
    assert item is not None
    assert [one.value for one in found] == [item.value]


def test_a_graph_remembers_across_threads(tmp_path: Path) -> None:
    """A node puts into the store what nodes of other threads read, after a restart too."""

    def visit(state: dict[str, Any], *, store: BaseStore) -> dict[str, Any]:
        known = store.get(("visits",), "ada")
        count = 1 + (known.value["count"] if known else 0)
        store.put(("visits",), "ada", {"count": count})
        return {"count": count}

    builder: Any = StateGraph(dict)
    builder.add_node("visit", visit)
    builder.add_edge(START, "visit")
    counts = []
    for _ in range(2):
        with holdfast.sync.open(str(tmp_path / "state.db")) as store:
            counts.append(builder.compile(store=HoldfastGraphStore(store)).invoke({})["count"])
    assert counts == [1, 2]


scalars = st.none() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=4,
)
wanted = st.dictionaries(
    st.sampled_from("xyz"),
    values | st.fixed_dictionaries({}, optional={"$eq": scalars, "$ne": scalars}),
    max_size=2,
)


@given(st.dictionaries(st.sampled_from("xyz"), values, max_size=3), wanted)
def test_filters_are_those_of_the_store_in_memory(value: dict[str, Any], asked: dict[str, Any]) -> None:
    """A filter finds an item if and only if LangGraph's own store in memory does."""
    theirs = InMemoryStore()
    theirs.put(("n",), "k", value)
    assert matches(value, asked) == (len(theirs.search(("n",), filter=asked)) == 1)


async def test_items_carry_versions(store: Store) -> None:
    """An item is put only if it is still the one that was read; reads that prolong it change nothing."""
    memories = HoldfastGraphStore(store, ttl={"default_ttl": 5})
    await memories.aput(("facts",), "a", {"n": 1}, expected_version=0)
    item: Any = await memories.aget(("facts",), "a")
    [found] = await memories.asearch(("facts",))
    assert isinstance(found, FoundGraphItem)
    assert found.version == item.version
    await memories.aput(("facts",), "a", {"n": 2}, expected_version=item.version)
    with pytest.raises(holdfast.VersionConflict, match="version"):
        await memories.aput(("facts",), "a", {"n": 3}, expected_version=item.version)
    with pytest.raises(holdfast.VersionConflict):
        await memories.aput(("facts",), "a", {"n": 3}, expected_version=0)
    with pytest.raises(holdfast.VersionConflict, match="there is none"):
        await memories.aput(("facts",), "b", {"n": 3}, expected_version=item.version)
    latest = await memories.aget(("facts",), "a")
    assert latest is not None
    assert latest.value == {"n": 2}


@pytest.mark.parametrize("size", [1, 100_000])
async def test_an_update_whose_answer_was_lost_is_made_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """An update with a `once` can be sent again: it counts once, and the value that is there is returned."""
    batch = KV.batch

    async def lost(self: KV, **given: Any) -> Any:
        await batch(self, **given)
        raise holdfast.OutcomeUnknown("the answer is lost")

    memory = HoldfastGraphStore(store)

    async def count(once: str | None) -> Any:
        def more(value: Any) -> Any:
            return {"count": (value or {"count": 0})["count"] + 1, "text": "x" * size}

        item = await memory.aupdate(("facts",), "n", more, once=once)
        there = await memory.aget(("facts",), "n")
        assert there is not None
        assert item.value == there.value
        return item.value["count"]

    for number in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(KV, "batch", lost)
            with pytest.raises(holdfast.OutcomeUnknown):
                await count(f"visit {number}")
        assert await count(f"visit {number}") == number
    assert await count(None) == 3


async def test_updates_lose_nothing(ground: Ground) -> None:
    """Two programs that change one item at once lose no change, also when it is larger than an entry."""
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(ground.open())
        two = one if ground.kind == "sqlite" else await stack.enter_async_context(ground.open())
        stores = [HoldfastGraphStore(one), HoldfastGraphStore(two)]

        def added(value: dict[str, Any] | None) -> dict[str, Any]:
            return {"count": 1 + (value or {"count": 0})["count"], "text": "é" * (value or {}).get("size", 0)}

        async def change(memories: HoldfastGraphStore) -> None:
            for _ in range(10):
                await memories.aupdate(("facts",), "a", added)

        await asyncio.gather(*map(change, stores))
        item: Any = await stores[0].aget(("facts",), "a")
        assert item.value["count"] == 20
        large = await stores[0].aupdate(
            ("facts",), "a", lambda value: {**(value or {}), "text": "é" * 60_000}
        )
        small = await stores[1].aupdate(("facts",), "a", lambda value: {"count": len((value or {})["text"])})
        assert (large.value["count"], small.value) == (20, {"count": 60_000})
        assert small.version > large.version > item.version
        assert (await one.blobs("langgraph").list()).blobs == []


def test_updates_without_asyncio(tmp_path: Path) -> None:
    """With a store of holdfast.sync items are updated, and put by version, without await."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        memories = HoldfastGraphStore(store)
        item = memories.update(("facts",), "a", lambda value: {"was": value})
        assert item.value == {"was": None}
        memories.put(("facts",), "a", {"n": 1}, expected_version=item.version)
        with pytest.raises(holdfast.VersionConflict):
            memories.put(("facts",), "a", {"n": 2}, expected_version=item.version)
