"""Who may write a thread of LangGraph: fifteen clauses of our own, on every ground.

The project's suites have none about two workers. A program that lets several of them run the same thread
relies on each of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver, ThreadAdvanced
from tests.integrations.test_langgraph import graph, thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store import Store

Verb: TypeAlias = Callable[[HoldfastSaver, Any], Awaitable[Any]]
LOCK = "lock/thread/t"
VERBS: dict[str, Verb] = {
    "put": lambda saver, config: put(saver, config, 9),
    "put_writes": lambda saver, config: saver.aput_writes(config, [("a", 1)], "task"),
    "delete_thread": lambda saver, config: saver.adelete_thread("t"),
    "prune": lambda saver, config: saver.aprune(["t"]),
    "delete_for_runs": lambda saver, config: saver.adelete_for_runs(["run"]),
    "copy_thread": lambda saver, config: saver.acopy_thread("source", "t"),
}
"""What changes the thread `t`."""


def put(saver: HoldfastSaver, config: Any, step: int, **metadata: Any) -> Awaitable[Any]:
    """Put a checkpoint after the one of a config."""
    described: Any = {"source": "loop", "step": step, **metadata}
    return saver.aput(config, empty_checkpoint(), described, {})


async def filled(saver: HoldfastSaver) -> Any:
    """Make a thread with several checkpoints, and one to copy from. Returns the config of its latest."""
    await graph(saver).ainvoke({"steps": []}, thread("source"))
    await graph(saver).ainvoke({"steps": []}, thread("t"))
    await put(saver, await latest(saver), 8, run_id="run")
    return await latest(saver)


async def latest(saver: HoldfastSaver) -> Any:
    """Return the config of the latest checkpoint."""
    found = await saver.aget_tuple(thread("t"))
    assert found is not None
    return found.config


async def contents(saver: HoldfastSaver) -> list[Any]:
    """Return all checkpoints of the thread with their writes."""
    return [one async for one in saver.alist(thread("t"))]


@asynccontextmanager
async def lost_turn(saver: HoldfastSaver, store: Store) -> AsyncIterator[Any]:
    """Run a block in a turn that another worker has taken meanwhile. Yields the config of the latest."""
    kv = store.kv("langgraph")
    turn = saver.turn("t")
    await turn.__aenter__()
    config = await filled(saver)
    await kv.delete(LOCK)  # as if its time had run out while the worker was stopped
    async with kv.lock("thread/t", timeout=60):
        yield config
        with pytest.raises(holdfast.LockLost):
            await turn.__aexit__(None, None, None)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_former_owner_changes_nothing(store: Store, verb: Verb) -> None:
    """Clauses 1 to 6: whatever would change the thread is refused to a worker that has lost its turn."""
    saver = HoldfastSaver(store)
    async with lost_turn(saver, store) as config:
        before = await contents(saver)
        with pytest.raises(holdfast.Fenced):
            await verb(saver, config)
        assert await contents(saver) == before


async def test_the_owner_may_do_everything(store: Store) -> None:
    """Clause 7: within its turn a worker may write, prune, delete and copy."""
    saver = HoldfastSaver(store)
    async with saver.turn("t"):
        await filled(saver)
        for name in ("put_writes", "put", "delete_for_runs", "prune", "delete_thread", "copy_thread"):
            await VERBS[name](saver, None if name == "copy_thread" else await latest(saver))
    copied = [one.checkpoint["id"] async for one in saver.alist(thread("source"))]
    assert [one.checkpoint["id"] for one in await contents(saver)] == copied


async def test_a_turn_is_of_one_thread(store: Store) -> None:
    """Clause 8: a worker that has lost the turn of one thread may go on with the others."""
    saver = HoldfastSaver(store)
    async with lost_turn(saver, store):
        await graph(saver).ainvoke({"steps": []}, thread("u"))
    assert await saver.aget_tuple(thread("u")) is not None


async def test_a_turn_goes_along_with_tasks(store: Store) -> None:
    """Clause 9: what a task of the owner writes is fenced, too."""
    saver = HoldfastSaver(store)
    async with lost_turn(saver, store) as config:
        with pytest.raises(holdfast.Fenced):
            await asyncio.create_task(graph(saver).ainvoke({"steps": []}, thread("t")))
        assert await latest(saver) == config


async def test_a_turn_ends_with_its_block(store: Store) -> None:
    """Clause 10: after its turn a worker is like one that never had it."""
    saver = HoldfastSaver(store)
    async with lost_turn(saver, store) as config:
        pass
    await put(saver, config, 9)
    assert await latest(saver) != config


async def test_a_worker_without_a_turn_may_not_overtake(store: Store) -> None:
    """Clause 11: a worker that does not ask for the turn is refused once the owner has written."""
    saver, other = HoldfastSaver(store), HoldfastSaver(store)
    read = await filled(other)
    async with saver.turn("t"):
        tip = await put(saver, await latest(saver), 9)
    with pytest.raises(ThreadAdvanced):
        await put(other, read, 9)
    assert (await latest(saver))["configurable"]["checkpoint_id"] == tip["configurable"]["checkpoint_id"]


async def test_a_former_owner_may_ask_again(store: Store) -> None:
    """Clause 12: a worker that has lost its turn reads anew in its next one, and is accepted."""
    saver = HoldfastSaver(store)
    async with lost_turn(saver, store):
        pass
    async with saver.turn("t", wait=60):
        tip = await put(saver, await latest(saver), 9)
    assert (await latest(saver))["configurable"]["checkpoint_id"] == tip["configurable"]["checkpoint_id"]


async def test_a_checkpoint_sent_again_in_a_turn_is_there_once(store: Store) -> None:
    """Clause 13: an owner that has got no answer may send its checkpoint again."""
    saver = HoldfastSaver(store)
    async with saver.turn("t"):
        config, checkpoint = await filled(saver), empty_checkpoint()
        before = await contents(saver)
        for _ in range(2):
            await saver.aput(config, checkpoint, {"source": "loop", "step": 9}, {})
    assert len(await contents(saver)) == len(before) + 1


async def test_a_turn_that_has_run_out_is_lost(store: Store) -> None:
    """Clause 14: a worker whose time has run out is refused, even if nobody else has asked since."""
    saver = HoldfastSaver(store)
    turn = saver.turn("t")
    await turn.__aenter__()
    config = await filled(saver)
    await store.kv("langgraph").delete(LOCK)
    with pytest.raises(holdfast.Fenced):
        await put(saver, config, 9)
    with pytest.raises(holdfast.LockLost):
        await turn.__aexit__(None, None, None)


async def test_an_owner_may_fork_on_purpose(store: Store) -> None:
    """Clause 15: a run that names an earlier checkpoint makes a branch of it, within a turn too."""
    saver = HoldfastSaver(store)
    async with saver.turn("t"):
        await filled(saver)
        earlier = (await contents(saver))[-1]
        fork: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        fork["configurable"]["checkpoint_id"] = earlier.checkpoint["id"]
        tip = await put(saver, fork, 9)
    assert (await latest(saver))["configurable"]["checkpoint_id"] == tip["configurable"]["checkpoint_id"]
