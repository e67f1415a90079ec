"""The task stores of the A2A SDK, on every ground."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

import pytest
from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.cluster.version import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import (
    Artifact,
    ListTasksRequest,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import InvalidParamsError

import holdfast
from holdfast.integrations import records
from holdfast.integrations.a2a import HoldfastTaskStore, HoldfastVersionedTaskStore, TaskConflict
from tests.integrations.crowd import crowd

if TYPE_CHECKING:
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

WORKING: Final = TaskState.TASK_STATE_WORKING
CANCELED: Final = TaskState.TASK_STATE_CANCELED
COMPLETED: Final = TaskState.TASK_STATE_COMPLETED


def call() -> ServerCallContext:
    """The context of one call."""
    return ServerCallContext()


def task(name: str = "t", state: TaskState = WORKING, **fields: Any) -> Task:
    """A task."""
    return Task(id=name, context_id="c", status=TaskStatus(state=state), **fields)


def message(text: str) -> Message:
    """A message whose id is its text."""
    return Message(message_id=text, role=Role.ROLE_AGENT, parts=[Part(text=text)])


def artifact(name: str, *texts: str) -> Artifact:
    """An artifact with a part for each text."""
    return Artifact(artifact_id=name, parts=[Part(text=text) for text in texts])


async def test_a_listing_holds_a_page_of_tasks_in_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tasks an owner has, a listing of one of them does not gather all of them."""
    monkeypatch.setattr(records, "CHANGES", 5)
    tasks = HoldfastTaskStore(store.kv("agents"))
    for number in range(60):
        await tasks.save(task(f"t{number}", history=[message("x" * 20_000)]), call())
    tracemalloc.start()
    try:
        found = await tasks.list(ListTasksRequest(page_size=1), call())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(found.tasks), found.total_size) == (1, 60)
    assert peak < 2_000_000  # gathered, they took three


async def read(store: HoldfastTaskStore, name: str = "t") -> Task:
    """Get a task in a call of its own."""
    found = await store.get(name, call())
    assert found is not None
    return found


async def test_a_task_comes_back_as_it_was(store: Store) -> None:
    """A task comes back with everything in it, whatever its id is and however large it is."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    large = task(
        "id " * 100 + "/\x00#",
        history=[message("one"), message("two")],
        artifacts=[artifact("a", "x" * 200_000), Artifact(artifact_id="b", parts=[Part(raw=b"\x00\xff")])],
    )
    large.metadata.update({"number": 1.5, "nested": {"list": [1, None, True]}})
    large.status.timestamp.FromNanoseconds(1_700_000_000_123_456_789)
    await tasks.save(large, call())
    assert await read(tasks, large.id) == large
    assert await tasks.get("other", call()) is None
    await tasks.delete(large.id, call())
    await tasks.delete(large.id, call())
    assert (await store.kv("agents").list()).keys == []
    assert (await store.blobs("agents").list()).blobs == []


async def test_two_writers_lose_nothing(store: Store) -> None:
    """What two calls add to a task that both have read is there afterwards, and again after later saves."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    start = task(history=[message("start")], artifacts=[artifact("log", "begin")])
    await tasks.save(start, call())
    calls = [call(), call()]
    ones = [await tasks.get("t", each) for each in calls]
    for round_ in range(2):
        for number, (each, one) in enumerate(zip(calls, ones, strict=True)):
            assert one is not None
            one.history.append(message(f"{number}.{round_}"))
            one.artifacts[0].parts.append(Part(text=f"{number}.{round_}"))
            one.artifacts.append(artifact(f"{number}.{round_}", "x"))
            one.metadata.update({f"by {number}": round_})
            await tasks.save(one, each)
    end = await read(tasks)
    assert sorted(one.message_id for one in end.history) == ["0.0", "0.1", "1.0", "1.1", "start"]
    assert sorted(one.text for one in end.artifacts[0].parts) == ["0.0", "0.1", "1.0", "1.1", "begin"]
    assert sorted(one.artifact_id for one in end.artifacts) == ["0.0", "0.1", "1.0", "1.1", "log"]
    assert dict(end.metadata) == {"by 0": 1, "by 1": 1}


async def test_a_call_that_read_a_task_may_remove_from_it(store: Store) -> None:
    """What a call has read and leaves out is removed; what it has not read stays."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    await tasks.save(task(history=[message("old"), message("kept")], metadata={"gone": 1, "b": 1}), call())
    reader = call()
    trimmed = await tasks.get("t", reader)
    assert trimmed is not None
    await tasks.save(task(history=[message("other")], metadata={"b": 2}), call())
    del trimmed.history[0]
    del trimmed.metadata.fields["gone"]
    await tasks.save(trimmed, reader)
    end = await read(tasks)
    assert [one.message_id for one in end.history] == ["kept", "other"]
    assert dict(end.metadata) == {"b": 2}


async def test_an_ended_task_stays_as_it_ended(store: Store) -> None:
    """A worker that has not heard of a cancel is refused, and what it has seen does not come back."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    await tasks.save(task(), call())
    worker, other = call(), call()
    mine, theirs = await tasks.get("t", worker), await tasks.get("t", other)
    assert mine is not None
    assert theirs is not None
    theirs.status.state = CANCELED
    await tasks.save(theirs, other)
    for state in (WORKING, COMPLETED):
        mine.status.state = state
        for each in (worker, call()):
            with pytest.raises(TaskConflict, match="CANCELED") as refused:
                await tasks.save(mine, each)
            assert isinstance(refused.value, ConcurrentTaskModificationError)
            assert isinstance(refused.value, holdfast.VersionConflict)
            assert refused.value.task_id == "t"
    assert (await read(tasks)).status.state == CANCELED


async def test_a_deleted_task_stays_deleted(store: Store) -> None:
    """A worker that has not heard of a deletion does not bring the task back; a new call may use its id."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    mine = call()
    await tasks.save(task(), mine)
    await tasks.delete("t", call())
    with pytest.raises(TaskConflict, match="deleted"):
        await tasks.save(task(history=[message("late")]), mine)
    assert await tasks.get("t", call()) is None
    again = call()
    await tasks.save(task(), again)
    await tasks.delete("t", again)
    await tasks.save(task(history=[message("new")]), again)
    assert [one.message_id for one in (await read(tasks)).history] == ["new"]


async def test_the_message_of_a_replaced_status_is_in_the_history(store: Store) -> None:
    """If two calls set the status, the later one stays, and the message of the other is not lost."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    await tasks.save(task(), call())
    calls = [call(), call(), call()]
    ones = [await tasks.get("t", each) for each in calls]
    for text, each, one in zip(("first", "second", ""), calls, ones, strict=True):
        assert one is not None
        if text:
            one.status.message.CopyFrom(message(text))
        else:
            one.history.append(message("third"))
        await tasks.save(one, each)
    end = await read(tasks)
    assert end.status.message.message_id == "second"
    assert [one.message_id for one in end.history] == ["first", "third"]


async def test_pages_are_in_order(store: Store) -> None:
    """Tasks are listed by time, the latest first, page after page; filters choose among them."""
    tasks = HoldfastTaskStore(store.kv("agents"))
    for number in range(5):
        one = task(f"t{number}", COMPLETED if number % 2 else WORKING)
        if number:
            one.status.timestamp.FromSeconds(1_000 + number // 2)
        await tasks.save(one, call())
    seen, token = [], ""
    while True:
        page = await tasks.list(ListTasksRequest(page_size=2, page_token=token), call())
        assert page.total_size == 5
        seen += [one.id for one in page.tasks]
        if not (token := page.next_page_token):
            break
    assert seen == ["t4", "t3", "t2", "t1", "t0"]
    completed = await tasks.list(ListTasksRequest(status=COMPLETED), call())
    assert [one.id for one in completed.tasks] == ["t3", "t1"]
    recent = ListTasksRequest(context_id="c")
    recent.status_timestamp_after.FromSeconds(1_002)
    assert [one.id for one in (await tasks.list(recent, call())).tasks] == ["t4"]
    assert not (await tasks.list(ListTasksRequest(context_id="other"), call())).tasks
    with pytest.raises(InvalidParamsError):
        await tasks.list(ListTasksRequest(page_token="bm9uZQ=="), call())


async def test_versions_refuse_a_stale_writer(store: Store) -> None:
    """A save names the version that it was made from; a cancel needs none, unless the task has ended."""
    tasks = HoldfastVersionedTaskStore(store.kv("agents"))
    missing = TaskVersion.MISSING
    with pytest.raises(TaskConflict, match="no such task"):
        await tasks.save(task(state=CANCELED), prev_version=missing, context=call())
    first = await tasks.save(task(), prev_version=missing, context=call())
    with pytest.raises(ConcurrentTaskModificationError):
        await tasks.save(task(), prev_version=missing, context=call())
    second = await tasks.save(task(history=[message("a")]), prev_version=first, context=call())
    assert second.is_after(first)
    with pytest.raises(TaskConflict):
        await tasks.save(task(), prev_version=first, context=call())
    third = await tasks.save(task(state=CANCELED), prev_version=first, context=call())
    for state in (CANCELED, WORKING):
        with pytest.raises(TaskConflict, match="CANCELED"):
            await tasks.save(task(state=state), prev_version=third, context=call())
    stored = await tasks.get("t", call())
    assert stored is not None
    assert (stored.version, stored.task.status.state) == (third, CANCELED)
    assert len((await tasks.list(ListTasksRequest(), call())).tasks) == 1
    await tasks.delete("t", call())
    assert await tasks.get("t", call()) is None


async def test_a_lost_turn_refuses_writes(store: Store) -> None:
    """A worker whose turn another one has taken can neither save the task nor delete it."""
    kv = store.kv("agents")
    tasks = HoldfastTaskStore(kv, owner="worker-1")
    turn = tasks.turn("t", wait=0)
    await turn.__aenter__()
    await tasks.save(task(), call())
    await kv.delete("lock/task/t")  # as if its time had run out while the worker was stopped
    with pytest.raises(holdfast.Fenced):
        await tasks.save(task(history=[message("late")]), call())
    with pytest.raises(holdfast.Fenced):
        await tasks.delete("t", call())
    with pytest.raises(holdfast.LockLost):
        await turn.__aexit__(None, None, None)
    assert not (await read(tasks)).history
    entry = await kv.get("task//t")
    assert entry is not None
    assert entry.last_writer == "worker-1"


async def test_a_planted_task_is_refused(store: Store) -> None:
    """An entry that holds no task gives an error that names it."""
    kv = store.kv("agents")
    tasks = HoldfastTaskStore(kv)
    planted: list[Any] = [1, {}, {"value": {}}, {"fields": {}, "value": 1}]
    for value in [*planted, {"fields": {}, "value": {"id": {}}}]:
        await kv.set("task//t", value)
        with pytest.raises(holdfast.ValidationError, match="task//t"):
            await tasks.get("t", call())


async def talk(store: Store, name: str) -> None:
    """Work on the shared task as a process does: read it, add to it, save it."""
    tasks = HoldfastTaskStore(store.kv("agents"), owner=name)
    for number in range(5):
        each = call()
        one = await tasks.get("t", each) or task()
        await asyncio.sleep(0)
        one.history.append(message(f"{name}.{number}"))
        await tasks.save(one, each)


@pytest.mark.unmeasured
async def test_processes_lose_nothing(ground: Ground) -> None:
    """Processes that work on one task at once lose no message."""
    names = ["a", "b"]
    await crowd(ground, names, talk)
    async with ground.open() as store:
        end = await read(HoldfastTaskStore(store.kv("agents")))
    assert sorted(one.message_id for one in end.history) == sorted(
        f"{name}.{number}" for name in names for number in range(5)
    )
