"""The checkpointer of LangGraph: the project's conformance suite, and graphs, on every ground."""

from __future__ import annotations

import asyncio
import operator
import pickle
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
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
from holdfast import seams
from holdfast.handles.blobs import Blobs
from holdfast.handles.kv import KV
from holdfast.integrations.langgraph import HoldfastSaver, ThreadAdvanced

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from holdfast.store import Store
    from tests.integrations.grounds import Ground


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
    """All capabilities of the project's own conformance suite hold, the extended ones included.

    `./dev foreign langgraph-conformance` runs this with a newer suite than the one that is installed.
    """

    async def savers() -> AsyncGenerator[HoldfastSaver]:
        yield HoldfastSaver(store, f"p{uuid.uuid4().hex[:8]}")

    report = await validate(RegisteredCheckpointer(name="holdfast", factory=savers))
    failures = {
        name: result.failures
        for name, result in report.results.items()
        if not (result.detected and result.passed)
    }
    assert failures == {}
    passed = sum(result.tests_passed for result in report.results.values())
    print(f"{passed} clauses of {len(report.results)} capabilities")
    assert passed >= 81


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


DURABILITIES = ("sync", "async", "exit")


def waiting_graph(saver: BaseCheckpointSaver[Any], at: asyncio.Event, go: asyncio.Event) -> Any:
    """A graph of two steps whose second one says that it has begun and waits."""

    async def second(state: State) -> State:
        at.set()
        async with asyncio.timeout(60):
            await go.wait()
        return {"steps": ["late"]}

    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"steps": ["a"]})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


async def steps_of(saver: HoldfastSaver, name: str) -> list[str]:
    """Return the last step in the latest checkpoint of a thread, in a list, if there is one.

    A graph's own state would show the writes that a checkpoint does not have yet, too.
    """
    latest = await saver.aget_tuple(thread(name))
    return [] if latest is None else list(latest.checkpoint["channel_values"].get("steps", [])[-1:])


async def overtaken(saver: HoldfastSaver, durability: str) -> ThreadAdvanced:
    """Let a run wait in its second step while another one goes through, and return how the first ended."""
    at, go = asyncio.Event(), asyncio.Event()
    stopped = asyncio.create_task(
        waiting_graph(saver, at, go).ainvoke({"steps": ["0"]}, thread("t"), durability=durability)
    )
    async with asyncio.timeout(60):
        await at.wait()
        while durability == "async" and await steps_of(saver, "t") != ["a"]:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
    await graph(saver).ainvoke({"steps": ["other"]}, thread("t"), durability=durability)
    go.set()
    with pytest.raises(ThreadAdvanced) as refused:
        await stopped
    return refused.value


async def ancestry(saver: HoldfastSaver) -> tuple[set[str], set[str]]:
    """Return the checkpoints of the thread, and those of them that two others follow."""
    listed = [one async for one in saver.alist(thread("t"))]
    parents = [one.parent_config["configurable"]["checkpoint_id"] for one in listed if one.parent_config]
    return {one.checkpoint["id"] for one in listed}, {one for one in parents if parents.count(one) > 1}


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("begun", [True, False])
async def test_a_run_that_was_overtaken_is_refused(store: Store, durability: str, *, begun: bool) -> None:
    """A run that another one has overtaken writes nothing more, on a new thread and on one that goes on."""
    saver = HoldfastSaver(store)
    if begun:
        await graph(saver).ainvoke({"steps": ["begun"]}, thread("t"))
    error = await overtaken(saver, durability)
    state = await graph(saver).aget_state(thread("t"))
    assert state.values["steps"][-4:] == ["other", "a", "b", "c"]
    assert "late" not in state.values["steps"]
    tip = state.config["configurable"]["checkpoint_id"]
    assert (error.thread, error.tip, error.code) == ("t", tip, "VERSION_CONFLICT")
    assert error.parent != tip
    assert "'t' was advanced by another run" in str(error)
    assert (await ancestry(saver))[1] == set()


@pytest.mark.parametrize("known", [True, False])
async def test_of_two_runs_at_the_same_moment_one_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """A checkpoint that another run writes after this one has looked at the thread is not passed over."""
    saver, other = HoldfastSaver(store), HoldfastSaver(store)
    await graph(saver).ainvoke({"steps": ["begun"]}, thread("t"))
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    if not known:  # the saver reads the head, instead of relying on what it has seen of it
        saver._checkpoints._known.clear()
    writes, won = KV.batch, list[str]()

    async def late(kv: KV, **given: Any) -> Any:
        if not won:
            won.append("")
            config = await other.aput(latest.config, empty_checkpoint(), {"source": "loop", "step": 9}, {})
            won[0] = config["configurable"]["checkpoint_id"]
        return await writes(kv, **given)

    monkeypatch.setattr(KV, "batch", late)
    with pytest.raises(ThreadAdvanced) as refused:
        await saver.aput(latest.config, empty_checkpoint(), {"source": "loop", "step": 9}, {})
    assert refused.value.tip == won[0]
    assert (await ancestry(saver))[1] == set()
    tip = await saver.aget_tuple(thread("t"))
    assert tip is not None
    assert tip.checkpoint["id"] == won[0]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_forks_on_purpose_go_on(store: Store, durability: str) -> None:
    """A run or an update at a checkpoint that its config names makes a branch, which then is the latest."""
    saver = HoldfastSaver(store)
    made = graph(saver)
    await made.ainvoke({"steps": ["0"]}, thread("t"), durability=durability)
    ended = await made.aget_state(thread("t"))
    await made.ainvoke({"steps": ["1"]}, thread("t"), durability=durability)
    # The config was the latest when it was read, and is an old one now.
    branch = await made.ainvoke({"steps": ["2"]}, ended.config, durability=durability)
    assert branch["steps"] == ["0", "a", "b", "c", "2", "a", "b", "c"]
    assert (await made.aget_state(thread("t"))).values == branch
    updated = await made.aupdate_state(ended.config, {"steps": ["edited"]}, as_node="first")
    assert (await made.ainvoke(None, updated, durability=durability))["steps"][-3:] == ["edited", "b", "c"]
    first = [one async for one in saver.alist(thread("t"))][-1]
    replayed = await made.ainvoke({"steps": ["3"]}, first.config, durability=durability)
    assert replayed["steps"][-4:] == ["3", "a", "b", "c"]
    assert len((await ancestry(saver))[1]) >= 1
    assert (await made.ainvoke({"steps": ["4"]}, thread("t")))["steps"][-5:] == ["c", "4", "a", "b", "c"]


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_subgraphs_and_interrupts_go_on(store: Store, durability: str) -> None:
    """A graph inside a node keeps its own state, stops for a person and goes on, twice in one thread."""

    def asking(state: State) -> State:
        return {"steps": [interrupt("which?")]}

    inner = StateGraph(State)
    inner.add_node("first", lambda state: {"steps": ["inner"]})
    inner.add_node("ask", asking)
    inner.add_edge(START, "first")
    inner.add_edge("first", "ask")
    outer = StateGraph(State)
    outer.add_node("nested", inner.compile(checkpointer=True))
    outer.add_edge(START, "nested")
    made: Any = outer.compile(checkpointer=HoldfastSaver(store))
    for number in ("1", "2"):
        asked = await made.ainvoke({"steps": [number]}, thread("t"), durability=durability)
        assert asked["__interrupt__"][0].value == "which?"
        done = await made.ainvoke(Command(resume=f"answer {number}"), thread("t"), durability=durability)
        assert done["steps"][-2:] == ["inner", f"answer {number}"]


async def test_update_that_was_overtaken_is_refused(store: Store) -> None:
    """Of two updates of a new thread's state that were both read before, the second is refused."""
    ours, theirs = HoldfastSaver(store), HoldfastSaver(store)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    assert await ours.aget_tuple(config) is None
    await graph(theirs).aupdate_state(thread("t"), {"steps": ["x"]}, as_node="first")
    with pytest.raises(ThreadAdvanced):
        await ours.aput(config, empty_checkpoint(), {"source": "update", "step": 0}, {})


async def test_a_checkpoint_that_is_sent_again_is_accepted(store: Store) -> None:
    """A checkpoint whose answer was lost can be sent again, also after others went on from it."""
    saver = HoldfastSaver(store)
    await graph(saver).ainvoke({"steps": []}, thread("t"))
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    sent = empty_checkpoint()
    config = await saver.aput(latest.config, sent, {"source": "loop", "step": 9}, {})
    assert await saver.aput(latest.config, sent, {"source": "loop", "step": 9}, {}) == config
    following = await saver.aget_tuple(thread("t"))
    assert following is not None
    after = await saver.aput(following.config, empty_checkpoint(), {"source": "loop", "step": 10}, {})
    await saver.aput(latest.config, sent, {"source": "loop", "step": 9}, {})
    now = await saver.aget_tuple(thread("t"))
    assert now is not None
    assert now.config["configurable"]["checkpoint_id"] == after["configurable"]["checkpoint_id"]


async def test_a_large_checkpoint_whose_answer_is_lost_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that is a blob can be read after the answer to its write was lost, and leaves one blob."""
    saver, batch = HoldfastSaver(store), KV.batch

    async def lost(self: KV, **given: Any) -> Any:
        monkeypatch.undo()
        await batch(self, **given)
        raise holdfast.OutcomeUnknown("the answer is lost")

    large = empty_checkpoint() | {"channel_values": {"v": "x" * 100_000}}
    monkeypatch.setattr(KV, "batch", lost)
    await saver.aput(thread("t"), large, {"source": "loop", "step": 0}, {})
    found = await HoldfastSaver(store).aget_tuple(thread("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == large["channel_values"]
    assert len((await store.blobs("langgraph").list()).blobs) == 1


@pytest.mark.parametrize("step", ["delete", "list"])
async def test_a_thread_that_is_begun_while_it_is_deleted_is_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What a run stores that begins while its thread is deleted stays, large values and their blobs too."""
    deleting, writing = HoldfastSaver(store), HoldfastSaver(store)
    large: Any = {"channel_values": {"v": "x" * 100_000}}
    await deleting.aput(thread("t"), empty_checkpoint() | large, {"source": "loop", "step": 0}, {})
    taken = getattr(Blobs, step)

    async def meanwhile(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        config = await writing.aput(thread("t"), empty_checkpoint() | large, {"step": 0}, {})
        await writing.aput_writes(config, [("v", "y" * 100_000)], "task")
        return await taken(*given, **named)

    monkeypatch.setattr(Blobs, step, meanwhile)
    await deleting.adelete_thread("t")
    found = await HoldfastSaver(store).aget_tuple(thread("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == large["channel_values"]
    assert found.pending_writes == [("task", "v", "y" * 100_000)]
    assert len((await store.blobs("langgraph").list()).blobs) == 2


async def test_a_checkpoint_that_is_sent_again_while_its_thread_is_deleted_leaves_no_blob(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion finds another blob in the entry than the one that it has read of first, and removes it."""
    deleting, writing = HoldfastSaver(store), HoldfastSaver(store)
    large = empty_checkpoint() | {"channel_values": {"v": "x" * 100_000}}
    await deleting.aput(thread("t"), large, {"source": "loop", "step": 0}, {})
    batch = KV.batch

    async def meanwhile(self: KV, **given: Any) -> Any:
        monkeypatch.undo()
        await writing.aput(thread("t"), large, {"source": "loop", "step": 0}, {})
        return await batch(self, **given)

    monkeypatch.setattr(KV, "batch", meanwhile)
    await deleting.adelete_thread("t")
    assert (await store.kv("langgraph").list()).keys == []  # a head that is left would refuse later runs
    assert (await store.blobs("langgraph").list()).blobs == []


async def test_a_config_that_was_stored_belongs_to_no_run(store: Store) -> None:
    """A program that keeps a config and goes on from it later, or elsewhere, forks on purpose."""
    saver = HoldfastSaver(store)
    await saver.aput(thread("t"), empty_checkpoint(), {"source": "loop", "step": 0}, {})
    read = await saver.aget_tuple(thread("t"))
    assert read is not None
    kept = pickle.loads(pickle.dumps(read.config))
    assert kept == read.config
    await saver.aput(read.config, empty_checkpoint(), {"source": "loop", "step": 1}, {})
    with pytest.raises(ThreadAdvanced):
        await saver.aput(read.config, empty_checkpoint(), {"source": "loop", "step": 1}, {})
    await saver.aput(kept, empty_checkpoint(), {"source": "loop", "step": 1}, {})


async def test_blobs_of_killed_writers_go_with_the_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting a thread removes what a killed writer has left of it an hour ago, and nothing of another."""
    saver, blobs = HoldfastSaver(store), store.blobs("langgraph")
    await saver.aput(thread("u"), empty_checkpoint(), {}, {})
    for name in ("checkpoint/t//left", "checkpoint/u//left"):
        await blobs.put(name, b"x")
    await store.kv("langgraph").set(
        "write/t//1/task", {"writes": [{"value": {"blob": "checkpoint/u//left"}}]}
    )
    await saver.adelete_thread("t")
    assert len((await blobs.list()).blobs) == 2
    monkeypatch.setattr(seams, "wall", lambda: time.time() + 3_700)
    await saver.adelete_thread("t")
    assert [blob.name for blob in (await blobs.list()).blobs] == ["checkpoint/u//left"]


async def test_run_of_a_deleted_thread_is_refused(store: Store) -> None:
    """A run does not bring back a thread that was deleted meanwhile."""
    saver, at, go = HoldfastSaver(store), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(
        waiting_graph(saver, at, go).ainvoke({"steps": []}, thread("t"), durability="sync")
    )
    async with asyncio.timeout(60):
        await at.wait()
    await saver.adelete_thread("t")
    go.set()
    with pytest.raises(ThreadAdvanced, match="deleted") as refused:
        await running
    assert refused.value.tip is None
    assert await saver.aget_tuple(thread("t")) is None


async def test_threads_without_a_head_go_on(store: Store) -> None:
    """A thread of an older version and a copied one go on at their newest checkpoint, and are guarded."""
    saver, kv = HoldfastSaver(store), store.kv("langgraph")
    await graph(saver).ainvoke({"steps": []}, thread("t"))
    for key in (await kv.list("head/")).keys:
        await kv.delete(key)
    await graph(saver).ainvoke({"steps": ["1"]}, thread("t"))
    await saver.acopy_thread("t", "copy")
    copied = await graph(saver).ainvoke({"steps": ["2"]}, thread("copy"))
    assert copied["steps"] == ["a", "b", "c", "1", "a", "b", "c", "2", "a", "b", "c"]
    for key in (await kv.list("head/")).keys:
        await kv.delete(key)
    await overtaken(saver, "sync")


async def test_pruning_keeps_the_latest(store: Store) -> None:
    """Pruning keeps the checkpoint that the thread is at, and deleting a run's checkpoints goes back."""
    saver = HoldfastSaver(store)
    made = graph(saver)
    await made.ainvoke({"steps": ["0"]}, thread("t"))
    # The clock of another worker was ahead: the latest checkpoint has a smaller id than one before it.
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    ahead = empty_checkpoint() | {"id": "f" * 8 + latest.checkpoint["id"][8:]}
    await saver.aput(latest.config, ahead, {"source": "loop", "step": 9}, {})
    at = await saver.aget_tuple(thread("t"))
    assert at is not None
    tip = await saver.aput(at.config, empty_checkpoint(), {"source": "loop", "step": 10, "run_id": "r"}, {})
    await saver.aprune(["t"])
    kept = [one async for one in saver.alist(thread("t"))]
    assert [one.config for one in kept] == [tip]
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    await saver.aput(latest.config, empty_checkpoint(), {"source": "loop", "step": 11, "run_id": "s"}, {})
    await saver.adelete_for_runs(["s"])
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    assert latest.config["configurable"]["checkpoint_id"] == tip["configurable"]["checkpoint_id"]
    await saver.aput(latest.config, empty_checkpoint(), {"source": "loop", "step": 12}, {})  # it goes on


async def test_an_older_checkpoint_that_is_added_is_not_the_latest(store: Store) -> None:
    """Checkpoints that a program copies into a thread, in any order, leave the newest one the latest."""
    saver = HoldfastSaver(store)
    made = [empty_checkpoint() for _ in range(3)]
    for checkpoint in (made[0], made[2], made[1]):
        parent = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": made[0]["id"]}
        await saver.aput({"configurable": parent}, checkpoint, {"source": "input", "step": 1}, {})
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    assert latest.checkpoint["id"] == made[2]["id"]


async def test_workers_take_turns(ground: Ground) -> None:
    """Runs that each wait for their turn are all accepted; one that waits too long is told so."""
    async with ground.open() as store:
        saver = HoldfastSaver(store)

        async def turn(number: int) -> None:
            async with saver.turn("T 1", wait=60):
                await graph(saver).ainvoke({"steps": [str(number)]}, thread("T 1"))

        await asyncio.gather(*map(turn, range(5)))
        steps = (await graph(saver).aget_state(thread("T 1"))).values["steps"]
        assert sorted(step for step in steps if step.isdigit()) == ["0", "1", "2", "3", "4"]
        async with saver.turn("T 1"):
            with pytest.raises(holdfast.Busy):
                async with saver.turn("T 1", wait=0):
                    raise AssertionError("two workers had the turn at once")


async def test_a_worker_that_has_lost_its_turn_is_refused(store: Store) -> None:
    """Once another worker has taken the turn, the first one can write neither checkpoints nor writes."""
    saver, kv = HoldfastSaver(store), store.kv("langgraph")
    turn = saver.turn("t")
    await turn.__aenter__()
    await graph(saver).ainvoke({"steps": []}, thread("t"))
    latest = await saver.aget_tuple(thread("t"))
    assert latest is not None
    await kv.delete("lock/thread/t")  # as if its time had run out while the worker was stopped
    with pytest.raises(holdfast.Fenced):
        await saver.aput_writes(latest.config, [("a", 1)], "task")
    taken = kv.lock("thread/t")
    assert await taken.acquire(timeout=60)
    with pytest.raises(holdfast.Fenced):
        await saver.aput(latest.config, empty_checkpoint(), {"source": "loop", "step": 9}, {})
    with pytest.raises(holdfast.Fenced):
        await saver.aput_writes(latest.config, [("a", 1)], "task")
    with pytest.raises(holdfast.Fenced):
        await saver.adelete_thread("t")
    with pytest.raises(holdfast.LockLost):
        await turn.__aexit__(None, None, None)
    assert await saver.aget_tuple(thread("t")) == latest
    await taken.release()


def test_turns_without_asyncio(tmp_path: Path) -> None:
    """With a store of holdfast.sync a turn is a plain context manager, and its writes are fenced."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        saver = HoldfastSaver(store)
        with saver.turn("t") as owned:
            graph(saver).invoke({"steps": []}, thread("t"))
            latest = saver.get_tuple(thread("t"))
            assert latest is not None
            assert owned.fence["lock"] == "thread/t"
            with pytest.raises(holdfast.Busy), saver.turn("t", wait=0):
                raise AssertionError("two workers had the turn at once")
        turn = saver.turn("t")
        turn.__enter__()
        store.kv("langgraph").delete("lock/thread/t")
        with store.kv("langgraph").lock("thread/t"), pytest.raises(holdfast.Fenced):
            saver.put(latest.config, empty_checkpoint(), {"source": "loop", "step": 9}, {})
        with pytest.raises(holdfast.LockLost):
            turn.__exit__(None, None, None)


async def test_nobody_holds_a_turn_whose_waiter_was_cancelled(tmp_path: Path) -> None:
    """On a store of holdfast.sync too, a task that is cancelled while it waits for a turn does not get it."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        saver, kv = HoldfastSaver(store), store.kv("langgraph")

        async def wait() -> None:
            async with saver.turn("t", wait=60):
                raise AssertionError("it was taken")

        async with saver.turn("t", wait=60):
            waiting = asyncio.create_task(wait())
            async with asyncio.timeout(60):
                while not (await asyncio.to_thread(kv.list, "lock/thread/t/")).keys:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (await asyncio.to_thread(kv.list, "lock/")).keys == []


async def test_a_task_that_is_cancelled_as_its_turn_ends_does_not_keep_it(tmp_path: Path) -> None:
    """On a store of holdfast.sync too, a turn is over if its task is cancelled while it is given back."""
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        saver, ends, goes_on = HoldfastSaver(store), asyncio.Event(), threading.Event()

        async def turn() -> None:
            async with saver.turn("t"):
                # The thread of the store is busy, so that the release has not begun by the cancellation.
                store._thread._loop.call_soon_threadsafe(goes_on.wait, 60)
                ends.set()

        task = asyncio.create_task(turn())
        await ends.wait()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with saver.turn("t", wait=0):
            pass


async def test_the_holder_of_a_turn_goes_on_however_many_wait(tmp_path: Path) -> None:
    """Tasks that wait for a turn on a store of holdfast.sync take no threads, which its holder may need."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with holdfast.sync.open(str(tmp_path / "state.db")) as store:
        saver = HoldfastSaver(store)

        async def turn() -> None:
            async with saver.turn("t", wait=60):
                assert await saver.aget_tuple(thread("t")) is None

        async with asyncio.timeout(60):
            await asyncio.gather(*(turn() for _ in range(3)))


async def test_a_turn_on_an_asynchronous_store_needs_await(store: Store) -> None:
    """A plain `with` on an asynchronous store says what to write instead."""
    with pytest.raises(TypeError, match="async with"), HoldfastSaver(store).turn("t"):
        raise AssertionError("the turn was taken without await")


async def test_history_of_delta_channels(store: Store) -> None:
    """The writes to a channel since the last checkpoint with its value come back in their order."""
    saver = HoldfastSaver(store)
    first = empty_checkpoint() | {"channel_values": {"a": ["seed"]}}
    config = await saver.aput(
        {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, first, {"source": "input", "step": -1}, {}
    )
    for step in range(3):
        await saver.aput_writes(
            config, [("a", [f"{step}.0"]), ("b", step), ("a", [f"{step}.1"])], f"task {step}"
        )
        config = await saver.aput(config, empty_checkpoint(), {"source": "loop", "step": step}, {})
    history = await saver.aget_delta_channel_history(config=config, channels=["a", "b", "c"])
    theirs = await BaseCheckpointSaver.aget_delta_channel_history(
        saver, config=config, channels=["a", "b", "c"]
    )
    assert history == theirs
    assert history["a"]["seed"] == ["seed"]
    assert [write[2] for write in history["b"]["writes"]] == [0, 1, 2]
    assert await saver.aget_delta_channel_history(config=config, channels=[]) == {}


async def test_refused_writes_leave_no_blobs() -> None:
    """Whatever a full namespace or a lost turn refuses, large values of it do not stay behind."""
    async with holdfast.open("memory://") as store:
        saver, blobs = HoldfastSaver(store), store.blobs("langgraph")
        config = await saver.aput(thread("t") | {"metadata": {}}, empty_checkpoint(), {"step": 1}, {})
        large = empty_checkpoint()
        large["channel_values"]["a"] = "x" * 100_000
        await store.set_policy("kv/langgraph", holdfast.Policy(quota_bytes=1))
        for refused in (
            saver.aput(config, large, {"step": 2}, {}),
            saver.aput_writes(config, [("a", "x" * 100_000), ("b", "y" * 100_000)], "task"),
        ):
            with pytest.raises(holdfast.QuotaExceeded):
                await refused
            assert (await blobs.list()).blobs == []


async def test_writes_whose_answer_is_lost_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does not fail because one answer to the writes of a task was lost; they are there once."""
    kv_set, lost = KV.set, [1, 2]

    async def set_and_lose(self: KV, *given: Any, **named: Any) -> Any:
        entry = await kv_set(self, *given, **named)
        if lost:
            lost.pop()
            raise holdfast.OutcomeUnknown("the answer is lost")
        return entry

    async with holdfast.open("memory://") as store:
        saver = HoldfastSaver(store)
        config = await saver.aput(thread("t") | {"metadata": {}}, empty_checkpoint(), {"step": 1}, {})
        monkeypatch.setattr(KV, "set", set_and_lose)
        await saver.aput_writes(config, [("a", "x" * 100_000), ("b", 1)], "task")
        assert lost == []
        saved = await saver.aget_tuple(thread("t"))
        assert saved is not None
        assert saved.pending_writes == [("task", "a", "x" * 100_000), ("task", "b", 1)]
        assert len((await store.blobs("langgraph").list()).blobs) == 1
