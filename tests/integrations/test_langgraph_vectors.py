"""Searches by meaning in the store of LangGraph, on every ground.

What holds for all of them: a vector belongs to exactly the value that it was computed from.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import holdfast
import holdfast.sync
from holdfast.integrations.langgraph import HoldfastGraphStore

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def vector(text: str) -> list[float]:
    """A vector of how often each letter is in a text."""
    return [float(text.count(letter)) for letter in LETTERS]


def embed(texts: Any) -> list[list[float]]:
    """Embed texts without await."""
    return [vector(text) for text in texts]


async def aembed(texts: Any) -> list[list[float]]:
    """Embed texts with await."""
    return embed(texts)


class Letters(Embeddings):
    """LangChain's interface, which adds a letter to queries; it notes where it was called."""

    def __init__(self) -> None:
        self.loops = list[asyncio.AbstractEventLoop | None]()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.loops.append(None)
        return embed(texts)

    def embed_query(self, text: str) -> list[float]:
        self.loops.append(None)
        return vector(text + "z")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        self.loops.append(asyncio.get_running_loop())
        return embed(texts)

    async def aembed_query(self, text: str) -> list[float]:
        self.loops.append(asyncio.get_running_loop())
        return vector(text + "z")


def index(function: Any = embed, *fields: str, dims: int = 26) -> Any:
    """The index of a store."""
    return {"dims": dims, "embed": function} | ({"fields": list(fields)} if fields else {})


@pytest.fixture
def memories(store: Store) -> HoldfastGraphStore:
    """A store that embeds the member `text`."""
    return HoldfastGraphStore(store, index=index(embed, "text"))


async def found(memories: HoldfastGraphStore, query: str, **given: Any) -> list[tuple[str, float | None]]:
    """The keys and rounded scores of a search."""
    items = await memories.asearch(("n",), query=query, **given)
    return [(item.key, None if item.score is None else round(item.score, 3)) for item in items]


async def test_a_search_ranks_items_by_likeness(memories: HoldfastGraphStore, clock: ManualClock) -> None:
    """The most alike come first, with the cosine as score; items without vectors follow, the latest first."""
    for key, text in (("a", "aaa"), ("ab", "ab"), ("c", "ccc")):
        await memories.aput(("n", key), key, {"text": text, "kind": "x" if key == "c" else "y"})
        clock.advance(1)
    await memories.aput(("n",), "plain", {"text": "aaa"}, index=False)
    clock.advance(1)
    await memories.aput(("n",), "other", {"note": "aaa"})
    await memories.aput(("m",), "a", {"text": "aaa"})
    every = [("a", 1.0), ("ab", round(math.sqrt(0.5), 3)), ("c", 0.0), ("other", None), ("plain", None)]
    assert await found(memories, "a") == every
    assert await found(memories, "a", filter={"kind": "y"}) == every[:2]
    assert await found(memories, "a", filter={"text": "aaa"}) == [every[0], every[4]]
    assert await found(memories, "a", limit=2, offset=1) == every[1:3]
    assert await found(memories, "a", limit=2, offset=4) == every[4:]
    assert await found(memories, "a", limit=0) == []
    assert await found(memories, "") == [(key, None) for key in ("other", "plain", "c", "ab", "a")]
    await memories.aput(("n", "a"), "a", {"text": "c"}, index=["text", "none"])
    await memories.aput(("n",), "plain", {"texts": ["b", "a"]}, index=["texts[*]"])
    assert (await found(memories, "a"))[0] == ("plain", 1.0)
    item = await memories.aget(("n",), "plain")
    assert item is not None
    assert item.value == {"texts": ["b", "a"]}


async def test_a_batch_embeds_each_text_once(store: Store) -> None:
    """A batch searches what was there before it, and asks for each text of its last puts once."""
    asked = list[str]()

    def noted(texts: Any) -> list[list[float]]:
        asked.extend(texts)
        return embed(texts)

    memories = HoldfastGraphStore(store, index=index(noted, "text"))
    await memories.aput(("n",), "was", {"text": "aab"})
    asked.clear()
    results = await memories.abatch(
        [
            PutOp(("n",), "k", {"text": "gone"}),
            PutOp(("n",), "k", {"text": "a"}),
            PutOp(("n",), "l", {"text": "a"}),
            PutOp(("n",), "was", None),
            SearchOp(("n",), query="b"),
            SearchOp(("n",), query="b"),
        ]
    )
    assert [[one.key for one in result] for result in results[4:]] == [["was"], ["was"]]  # type: ignore[union-attr]
    assert sorted(asked) == ["a", "b"]
    assert await found(memories, "a") == [("k", 1.0), ("l", 1.0)]


@pytest.mark.parametrize(("function", "best"), [(embed, "b"), (aembed, "b"), (Letters(), "bz")])
async def test_any_embedding_function_serves(store: Store, function: Any, best: str) -> None:
    """A function with or without await serves, and so do the embeddings of LangChain."""
    memories = HoldfastGraphStore(store, index=index(function, "text"))
    for text in ("b", "bz"):
        await memories.aput(("n",), text, {"text": text})
    assert (await found(memories, "b"))[0] == (best, 1.0)
    assert memories.embeddings is not None
    assert memories.index_config is not None


def test_embeddings_are_called_where_the_store_is_called(tmp_path: Path) -> None:
    """On a store of holdfast.sync, `embed` runs on the loop of a caller with await, else on none."""
    letters = Letters()
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        memories = HoldfastGraphStore(store, index=index(letters, "text"))
        memories.put(("n",), "a", {"text": "a"})
        memories.put(("n",), "b", {"text": "b"}, expected_version=0)
        memories.update(("n",), "b", lambda value: {"text": "bb"})
        assert [item.key for item in memories.search(("n",), query="bb")] == ["b", "a"]
        assert set(letters.loops) == {None}
        letters.loops.clear()

        async def with_await() -> None:
            await memories.aput(("n",), "c", {"text": "c"})
            await memories.aupdate(("n",), "c", lambda value: {"text": "cc"})
            assert [item.key for item in await memories.asearch(("n",), query="cc", limit=1)] == ["c"]
            assert set(letters.loops) == {asyncio.get_running_loop()}

        asyncio.run(with_await())


class Paused:
    """Embeds as `aembed` does, but waits in the middle when it is asked for a certain text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, texts: Any) -> list[list[float]]:
        if self.text in texts:
            self.begun.set()
            async with asyncio.timeout(60):
                await self.go_on.wait()
        return embed(texts)


async def consistent(memories: HoldfastGraphStore, key: str = "k") -> str:
    """Check that an item has the vector of its own text, and return that."""
    item = await memories.aget(("n",), key)
    assert item is not None
    text: str = item.value["text"]
    [best] = await memories.asearch(("n",), query=text, filter={"text": text}, limit=1)
    assert best.score == pytest.approx(1.0, abs=1e-6)
    return text


async def test_a_vector_belongs_to_the_value_that_was_put_last(ground: Ground) -> None:
    """If a program puts a key while another one embeds for it, value and vector are of the same put."""
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(ground.open())
        two = one if ground.kind == "sqlite" else await stack.enter_async_context(ground.open())
        pause = Paused("aaa")
        slow = HoldfastGraphStore(one, index=index(pause, "text"))
        fast = HoldfastGraphStore(two, index=index(embed, "text"))
        await fast.aput(("n",), "k", {"text": "x"})
        item: Any = await fast.aget(("n",), "k")
        blind = asyncio.create_task(slow.aput(("n",), "k", {"text": "aaa"}))
        await asyncio.wait_for(pause.begun.wait(), 60)
        checked = asyncio.create_task(slow.aput(("n",), "k", {"text": "aaa"}, expected_version=item.version))
        updated = asyncio.create_task(
            slow.aupdate(("n",), "l", lambda value: {"text": "aaa" if value is None else value["text"] + "c"})
        )
        await fast.aput(("n",), "k", {"text": "bbb"})
        await fast.aput(("n",), "l", {"text": "ddd"})
        assert await consistent(fast) == "bbb"
        pause.go_on.set()
        with pytest.raises(holdfast.VersionConflict):
            await checked
        await blind
        await updated
        assert await consistent(fast) == "aaa"
        assert await consistent(fast, "l") == "dddc"


async def test_other_programs_leave_no_old_vectors(store: Store, memories: HoldfastGraphStore) -> None:
    """An item that a program without embeddings has put or edited has no vector, and is still found."""
    plain, kv = HoldfastGraphStore(store), store.kv("langgraph")
    for key in ("put", "edited", "replaced", "broken", "kept"):
        await memories.aput(("n",), key, {"text": "aaa"})
    await plain.aput(("n",), "put", {"text": "bbb"})

    def edit(content: Any) -> Any:
        content["indexed"]["value"]["text"] = "bbb"
        return content

    def crumble(content: Any) -> Any:
        content["indexed"]["vectors"]["rows"] = "AAAA" * 27 + "!"
        return content

    await kv.update("memory/n/edited", edit)
    await kv.update("memory/n/replaced", lambda content: {**content, "value": {"text": "bbb"}})
    await kv.update("memory/n/broken", crumble)
    scores = dict(await found(memories, "aaa"))
    assert scores == {"put": None, "edited": None, "replaced": None, "broken": None, "kept": 1.0}
    assert {item.key: item.value["text"] for item in await plain.asearch(("n",))} == {
        **dict.fromkeys(("put", "edited", "replaced"), "bbb"),
        **dict.fromkeys(("broken", "kept"), "aaa"),
    }
    await memories.aupdate(("n",), "edited", lambda value: value or {})
    assert dict(await found(memories, "bbb"))["edited"] == 1.0


async def test_vectors_of_other_dimensions_are_not_compared(store: Store) -> None:
    """After a change of the embedding function's dimensions, items have no score until they are put again."""
    await HoldfastGraphStore(store, index=index(embed, "text")).aput(("n",), "k", {"text": "a"})
    half = HoldfastGraphStore(
        store, index=index(lambda texts: [vector(one)[:13] for one in texts], "text", dims=13)
    )
    assert await found(half, "a") == [("k", None)]
    await half.aput(("n",), "k", {"text": "a"})
    assert await found(half, "a") == [("k", 1.0)]


async def test_vectors_live_as_long_as_their_items(store: Store, clock: ManualClock) -> None:
    """A search that prolongs the life of an item keeps its vectors, and both expire at once."""
    memories = HoldfastGraphStore(store, index=index(embed, "text"), ttl={"default_ttl": 1})
    await memories.aput(("n",), "k", {"text": "a"})
    await memories.aput(("n",), "large", {"text": "ab", "more": "x" * 70_000})
    for _ in range(3):
        clock.advance(40)
        assert [key for key, _ in await found(memories, "a")] == ["k", "large"]
    before: Any = await memories.aget(("n",), "k")
    assert await found(memories, "a", limit=1) == [("k", 1.0)]
    after: Any = await memories.aget(("n",), "k")
    assert after.version == before.version
    clock.advance(61)
    assert await found(memories, "a") == []


async def test_large_items_have_vectors_too(store: Store, memories: HoldfastGraphStore) -> None:
    """Values and vectors that do not fit into an entry are one blob, which goes with the item."""
    texts = [LETTERS[number % 26] * (1 + number % 7) for number in range(600)]
    await memories.aput(("n",), "many", {"texts": texts}, index=["texts[*]"])
    await memories.aput(("n",), "long", {"text": "q", "more": "é" * 60_000})
    assert (await store.blobs("langgraph").list()).count == 2
    assert sorted(await found(memories, "q")) == [("long", 1.0), ("many", 1.0)]
    assert dict(await found(memories, "qz"))["many"] == round(math.sqrt(0.5), 3)
    await memories.aput(("n",), "many", {"text": "r"})
    assert (await store.blobs("langgraph").list()).count == 1
    await memories.adelete(("n",), "long")
    assert (await store.blobs("langgraph").list()).count == 0
    assert dict(await found(memories, "r"))["many"] == 1.0


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([], "0 vectors for 1 texts"),
        ([[1.0] * 25], "25 numbers, and dims is 26"),
        ([[math.nan] + [1.0] * 25], "not finite"),
        (["abc"], "no vector of numbers"),
        ([None], "no vector of numbers"),
    ],
)
async def test_wrong_vectors_are_refused(store: Store, returned: Any, said: str) -> None:
    """What an embedding function returns is looked at before anything is written."""
    memories = HoldfastGraphStore(store, index=index(lambda _: returned))
    with pytest.raises(holdfast.ValidationError, match=said):
        await memories.abatch([PutOp(("n",), "plain", {}, index=False), PutOp(("n",), "k", {"text": "a"})])
    assert (await store.kv("langgraph").list()).keys == []


async def test_a_failure_of_the_embedding_function_is_raised(store: Store) -> None:
    """If the embedding function fails, the caller gets its error, and nothing is written."""

    async def failing(texts: Any) -> list[list[float]]:
        raise ConnectionError("the model is away")

    memories = HoldfastGraphStore(store, index=index(failing))
    for work in (
        memories.aput(("n",), "k", {"a": 1}),
        memories.aput(("n",), "k", {"a": 1}, expected_version=0),
        memories.aupdate(("n",), "k", lambda value: {"a": 1}),
        memories.asearch(("n",), query="a"),
    ):
        with pytest.raises(ConnectionError, match="away"):
            await work
    assert (await store.kv("langgraph").list()).keys == []
    with pytest.raises(holdfast.ValidationError):
        await memories.aput(("n",), "k", {"a": object()})


async def test_a_wrong_index_is_refused(store: Store) -> None:
    """An index that says something unknown, or too little, is refused when the store is made."""
    for config, said in (
        ({"embed": embed}, "needs dims"),
        ({"dims": 0, "embed": embed}, "needs dims"),
        ({"dims": 26, "embed": embed, "fields": "text"}, "list of paths"),
        ({"dims": 26, "embed": embed, "distance_type": "l2"}, "no 'distance_type'"),
    ):
        with pytest.raises(holdfast.ValidationError, match=said):
            HoldfastGraphStore(store, index=config)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="embed"):
        HoldfastGraphStore(store, index={"dims": 26})
    text: Any = "text"
    with pytest.raises(holdfast.ValidationError, match="list of paths"):
        await HoldfastGraphStore(store, index=index()).aput(("n",), "k", {"text": "a"}, index=text)


words = st.sampled_from(["a", "ab", "abb", "c", "d"])
items = st.dictionaries(
    st.sampled_from("xyz"), st.fixed_dictionaries({}, optional={"t": words, "u": words.map(str.swapcase)})
)


@given(items, words, st.integers(0, 3), st.integers(0, 3))
def test_scores_are_those_of_the_store_in_memory(
    given_items: dict[str, dict[str, str]], query: str, limit: int, offset: int
) -> None:
    """An item gets the score that LangGraph's own store in memory gives it, and pages have that order."""
    config = index(lambda texts: embed([text.lower() + "e" for text in texts]), "t", "u")
    theirs = InMemoryStore(index=config)
    with holdfast.sync.open("memory://") as store:
        ours = HoldfastGraphStore(store, index=config)
        for key, value in given_items.items():
            theirs.put(("n",), key, value)
            ours.put(("n",), key, value)
        expected = {item.key: item.score for item in theirs.search(("n",), query=query)}
        every = ours.search(("n",), query=query)
        assert {item.key: item.score for item in every} == pytest.approx(expected, abs=1e-6)
        ranks = [-2.0 if item.score is None else item.score for item in every]
        assert ranks == sorted(ranks, reverse=True)
        page = ours.search(("n",), query=query, limit=limit, offset=offset)
        assert [item.key for item in page] == [item.key for item in every[offset : offset + limit]]
