"""The checkpointer of LangGraph: the project's conformance suite, and graphs, on every ground."""

from __future__ import annotations

import operator
import uuid
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.conformance.validate import validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import holdfast
import holdfast.sync
from holdfast.integrations.langgraph import HoldfastSaver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from holdfast.store import Store


class State(TypedDict):
    """What the graphs here work on."""

    steps: Annotated[list[str], operator.add]


def graph(saver: BaseCheckpointSaver[Any], failing: list[bool] | None = None, size: int = 1) -> Any:
    """A graph of three steps; the second fails as long as `failing` says so."""

    def second(state: State) -> State:
        if failing and failing.pop():
            raise RuntimeError("killed")
        return {"steps": ["b" * size]}

    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"steps": ["a"]})
    builder.add_node("second", second)
    builder.add_node("third", lambda state: {"steps": ["c"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", "third")
    builder.add_edge("third", END)
    return builder.compile(checkpointer=saver)


def thread(name: str) -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": name}}


async def test_langgraph_conformance_suite_passes(store: Store) -> None:
    """All capabilities of the project's own conformance suite hold, the extended ones included."""

    async def savers() -> AsyncGenerator[HoldfastSaver]:
        yield HoldfastSaver(store, f"p{uuid.uuid4().hex[:8]}")

    report = await validate(RegisteredCheckpointer(name="holdfast", factory=savers))
    failures = {
        name: result.failures
        for name, result in report.results.items()
        if not (result.detected and result.passed)
    }
    assert failures == {}
    assert sum(result.tests_passed for result in report.results.values()) >= 80


async def test_a_graph_goes_on_where_it_failed(store: Store) -> None:
    """A graph that was killed in its second step goes on there, in another process, without its first."""
    with pytest.raises(RuntimeError, match="killed"):
        await graph(HoldfastSaver(store), [True]).ainvoke({"steps": []}, thread("t/1"))
    done = await graph(HoldfastSaver(store)).ainvoke(None, thread("t/1"))
    assert done == {"steps": ["a", "b", "c"]}
    history = [snapshot async for snapshot in graph(HoldfastSaver(store)).aget_state_history(thread("t/1"))]
    assert [len(snapshot.values["steps"]) for snapshot in history] == [3, 2, 1, 0, 0]


async def test_large_states_are_blobs(store: Store) -> None:
    """A state far beyond the size of an entry comes back whole; with the thread its blobs go."""
    saver = HoldfastSaver(store)
    await graph(saver, size=300_000).ainvoke({"steps": []}, thread("large"))
    state = await graph(saver).aget_state(thread("large"))
    assert state.values["steps"] == ["a", "b" * 300_000, "c"]
    assert (await store.blobs("langgraph").list()).count > 0
    await saver.aprune(["large"])
    assert (await graph(saver).aget_state(thread("large"))).values == state.values
    await saver.adelete_thread("large")
    assert (await store.blobs("langgraph").list()).count == 0
    assert (await store.kv("langgraph").list()).keys == []


async def test_writes_of_a_task_are_stored_once(store: Store) -> None:
    """A task that reports its writes again changes none of them; an error replaces the error before."""
    saver = HoldfastSaver(store)
    config = await saver.aput(
        {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {"step": 1}, {}
    )
    await saver.aput_writes(config, [("a", 1), ("b", 2), (ERROR, "first")], "task")
    await saver.aput_writes(config, [("a", "x" * 100_000), ("b", 4), (ERROR, "second")], "task")
    found = await saver.aget_tuple(config)
    assert found is not None
    assert found.pending_writes == [("task", ERROR, "second"), ("task", "a", 1), ("task", "b", 2)]
    assert (await store.blobs("langgraph").list()).count == 0


async def test_an_interrupt_waits_for_an_answer(store: Store) -> None:
    """A graph that asks a person stops, and goes on with the answer after a restart."""

    def asking(state: State) -> State:
        return {"steps": [interrupt("which?")]}

    def made() -> Any:
        builder = StateGraph(State)
        builder.add_node("ask", asking)
        builder.add_edge(START, "ask")
        return builder.compile(checkpointer=HoldfastSaver(store))

    asked = await made().ainvoke({"steps": ["a"]}, thread("t"))
    assert asked["__interrupt__"][0].value == "which?"
    assert await made().ainvoke(Command(resume="that"), thread("t")) == {"steps": ["a", "that"]}


async def test_an_asynchronous_store_says_what_it_lacks(store: Store) -> None:
    """A call without await on an asynchronous store says how to open one that has it."""
    with pytest.raises(holdfast.Unsupported, match=r"holdfast\.sync\.open"):
        HoldfastSaver(store).get_tuple(thread("t"))
    with pytest.raises(holdfast.ValidationError, match="strategy"):
        await HoldfastSaver(store).aprune(["t"], strategy="some")


async def test_plain_node_of_an_asynchronous_graph_may_use_the_saver(store: Store) -> None:
    """A node without await, which LangGraph runs in a thread, may run a graph that uses the same saver."""
    inner = graph(HoldfastSaver(store))

    def nested(state: State) -> State:
        return {"steps": inner.invoke({"steps": []}, thread("inner"))["steps"]}

    builder = StateGraph(State)
    builder.add_node("nested", nested)
    builder.add_edge(START, "nested")
    outer = builder.compile(checkpointer=HoldfastSaver(store))
    assert await outer.ainvoke({"steps": ["0"]}, thread("outer")) == {"steps": ["0", "a", "b", "c"]}


async def test_copied_checkpoints_continue(tmp_path: Path) -> None:
    """A thread whose checkpoints were copied from LangGraph's own checkpointer goes on where it was."""
    theirs, failing = InMemorySaver(), [True]
    with pytest.raises(RuntimeError, match="killed"):
        graph(theirs, failing).invoke({"steps": []}, thread("t"))
    async with holdfast.open(tmp_path / "state.db") as store:
        ours = HoldfastSaver(store)
        for one in reversed(list(theirs.list(thread("t")))):
            before: Any = one.parent_config or {
                "configurable": one.config["configurable"] | {"checkpoint_id": None}
            }
            await ours.aput(before, one.checkpoint, one.metadata, one.checkpoint["channel_versions"])
        assert await graph(ours).ainvoke(None, thread("t")) == {"steps": ["a", "b", "c"]}


def test_graph_runs_without_asyncio(tmp_path: Path) -> None:
    """With a store of holdfast.sync a graph runs without asyncio, and its state can be managed so."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        saver = HoldfastSaver(store)
        with pytest.raises(RuntimeError, match="killed"):
            graph(saver, [True]).invoke({"steps": []}, thread("t"))
        assert graph(saver).invoke(None, thread("t")) == {"steps": ["a", "b", "c"]}
        assert len(list(saver.list(thread("t"), limit=2))) == 2
        saver.copy_thread("t", "u")
        saver.prune(["t"])
        assert len(list(saver.list(thread("t")))) == 1
        assert graph(saver).get_state(thread("u")).values["steps"] == ["a", "b", "c"]
        saver.delete_for_runs(["none"])
        saver.delete_thread("t")
        assert [one.config["configurable"]["thread_id"] for one in saver.list(None)] == ["u"] * 5


async def test_saver_on_a_sync_store_serves_asynchronous_graphs(tmp_path: Path) -> None:
    """A saver on a store of holdfast.sync also serves a graph that runs with await."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        done = await graph(HoldfastSaver(store)).ainvoke({"steps": []}, thread("t"))
        assert done == {"steps": ["a", "b", "c"]}
