"""Whoever may set the keys of an integration's namespace may plant values of any form there.

Each part of what an integration has stored is replaced by a value of another type, a deep or a huge one, or
is removed. Every call then does its work, or raises an error of Holdfast or of the framework. It never hangs,
and never fails somewhere inside.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from a2a.server.cluster.version import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import ListTasksRequest, Message, Part, Role, Task, TaskState, TaskStatus
from agno.db.base import SessionType
from agno.db.schemas import UserMemory
from agno.run.agent import RunOutput
from agno.session import AgentSession
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from key_value.aio.errors.base import BaseKeyValueError
from langgraph.checkpoint.base import empty_checkpoint
from pydantic import ValidationError as InvalidRecord
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.models.test import TestModel
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage
from strands.types.session import SessionType as StrandsType

import holdfast
import holdfast.sync
from holdfast.integrations.a2a import HoldfastTaskStore, HoldfastVersionedTaskStore
from holdfast.integrations.adk import HoldfastSessionService
from holdfast.integrations.agno import AsyncHoldfastDb
from holdfast.integrations.keyvalue import HoldfastStore
from holdfast.integrations.langgraph import HoldfastGraphStore, HoldfastSaver
from holdfast.integrations.limits import HoldfastStorage
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.pydantic_ai import HoldfastConversationStore
from holdfast.integrations.starlette.session import StoredSession
from holdfast.integrations.stores import SyncBridge
from holdfast.integrations.strands import HoldfastSessionRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from holdfast.handles.kv import KV
    from holdfast.store import Store

LONG: Final = "é/" * 200
"""A name that is too long for a key."""
SOME: Final = 60
"""Values that are planted for each integration, drawn from those that there are."""


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


PLANTED: Final[list[Any]] = [
    *(
        None,
        True,
        0,
        -1,
        7,
        1.5,
        1e308,
        -1e308,
        2**63,
        10**4000,
        "",
        "x",
        "..",
        "é\x00",
        "9" * 400,
        "1e999999",
    ),
    *(
        "nan",
        [],
        [1],
        ["x"],
        [None],
        [[]],
        [[1, 2]],
        [["a", "b"]],
        {},
        {"a": 1},
        nested(60),
        "2026-11-18T00:00",
    ),
    *({"#blob": 7}, {"#blob": "missing"}, {"#blob": "0" * 32}, {"#blob": "a" * 32}, {"#value": nested(50)}),
    *({"name": 7, "value": 7}, {"name": "a/b/c", "value": {}}, {"fields": {}, "value": None}, {"fields": []}),
]


class Victim(NamedTuple):
    """What a program does with what an integration has stored."""

    calls: dict[str, Callable[[], Any]]
    own: tuple[type[Exception], ...] = ()
    """Errors of the framework."""
    foreign: tuple[str, ...] = ()
    """Keys that no integration makes."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there are values in a value."""
    yield at
    members = (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    )
    for name, member in members:
        yield from places(member, (*at, name))


def with_other(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    """A value with another one in a place, or with none there if that is `KeyError`."""
    if not place:
        return other
    changed = copy.copy(value)
    if len(place) == 1 and other is KeyError:
        del changed[place[0]]
    else:
        changed[place[0]] = with_other(value[place[0]], place[1:], other)
    return changed


async def stored(kv: KV) -> dict[str, Any]:
    """All values of a namespace, but for the records of blobs."""
    page = await kv.list(values=True)
    assert page.cursor is None
    return {
        one.key: one.value for one in page.entries or () if not one.key.startswith(("named/", "unnamed/"))
    }


async def mended(kv: KV, good: dict[str, Any]) -> None:
    """Put a namespace back as it was."""
    now = await stored(kv)
    for key in now.keys() - good.keys():
        await kv.delete(key)
    for key, value in good.items():
        if key not in now or now[key] != value:
            await kv.set(key, value)


async def attack(store: Store | holdfast.sync.Store, victim: Victim) -> list[str]:
    """Plant values, make all calls on each, and return what was raised that nobody expects."""
    bridge = SyncBridge(store, "this test")
    kv = bridge.store.kv("p")
    await bridge.wait(bridge.store.blobs("p").put("a" * 32, b"[" * 100_000))
    good = await bridge.wait(stored(kv))
    everything = [
        (key, with_other(value, place, other))
        for key, value in good.items()
        for place in places(value)
        for other in (*PLANTED, *((KeyError,) if place else ()))
    ]
    everything += [(key, other) for key in victim.foreign for other in PLANTED]
    expected: tuple[type[Exception], ...] = (holdfast.HoldfastError, *victim.own)
    found = []
    for key, value in random.Random(7).sample(everything, min(SOME, len(everything))):
        for name, call in victim.calls.items():
            await bridge.wait(kv.set(key, value))
            try:
                async with asyncio.timeout(60):
                    made = call()
                    if inspect.isawaitable(made):
                        await made
                    elif hasattr(made, "__aiter__"):
                        _ = [one async for one in made]
            except expected:
                pass
            except BaseException as error:
                if not isinstance(error.__cause__, holdfast.HoldfastError):
                    found.append(f"{name} of {key} = {str(value)[:200]}: {error!r}"[:600])
            await bridge.wait(mended(kv, good))
    return found


async def adk(store: Store) -> Victim:
    """Sessions, events and state of ADK."""
    service = HoldfastSessionService(store.kv("p"))
    ada: Any = {"app_name": "desk", "user_id": "ada"}
    one = {**ada, "session_id": "s"}

    def event(name: str) -> Event:
        actions = EventActions(state_delta={"a": 2, "user:b": 1, "app:c": 1})
        return Event(id=name, invocation_id="i", author="user", actions=actions)

    async def append() -> None:
        if (session := await service.get_session(**one)) is not None:
            await service.append_event(session, event("two"))

    begun = await service.create_session(**one, state={"a": 1, "user:b": {"c": [1]}, "app:d": 2})
    await service.append_event(begun, event("one"))
    await service.create_session(**ada, session_id=LONG, state={"y" * 300: 2})
    return Victim(
        {
            "get": lambda: service.get_session(**one),
            "get a long name": lambda: service.get_session(**ada, session_id=LONG),
            "list": lambda: service.list_sessions(app_name="desk"),
            "append": append,
            "append to what was read": lambda: service.append_event(
                begun.model_copy(deep=True), event("three")
            ),
            "update": lambda: service.update_state("user:b", lambda _: 1, **ada),
            "delete": lambda: service.delete_session(**one),
        },
        (StaleSessionError,),
        ("session/desk/ada", "session/desk/ada/#00", "state/x", "user/desk/ada/%FF"),
    )


async def a2a(store: Store) -> Victim:
    """Tasks of the A2A SDK."""
    tasks, versioned = HoldfastTaskStore(store.kv("p")), HoldfastVersionedTaskStore(store.kv("p"))

    def task(name: str = "t") -> Task:
        said = Message(message_id="m", role=Role.ROLE_AGENT, parts=[Part(text="x")])
        status = TaskStatus(state=TaskState.TASK_STATE_WORKING)
        status.timestamp.FromSeconds(5)
        return Task(id=name, context_id="c", status=status, history=[said])

    def call() -> ServerCallContext:
        return ServerCallContext()

    await tasks.save(task(), call())
    await tasks.save(task(LONG), call())
    asked = ListTasksRequest(context_id="c", page_size=1)
    return Victim(
        {
            "get": lambda: tasks.get("t", call()),
            "get a long name": lambda: tasks.get(LONG, call()),
            "list": lambda: tasks.list(ListTasksRequest(), call()),
            "list some": lambda: tasks.list(asked, call()),
            "save": lambda: tasks.save(task(), call()),
            "save a version": lambda: versioned.save(
                task(), prev_version=TaskVersion.MISSING, context=call()
            ),
            "delete": lambda: tasks.delete("t", call()),
        },
        foreign=("task/x", "task//#00"),
    )


async def agno(store: Store) -> Victim:
    """Sessions, runs and memories of agno."""
    db, merging = AsyncHoldfastDb(store, plugin="p"), AsyncHoldfastDb(store, plugin="p", on_conflict="merge")
    await db.upsert_session(
        AgentSession("s", agent_id="a", user_id="u", session_data={"session_state": {"n": 1}})
    )
    await db.upsert_run(RunOutput(run_id="r", agent_id="a"), "s")
    await db.upsert_user_memory(UserMemory("likes plums", "m", topics=["fruit"], user_id="u"))
    begun = await merging.get_session("s", SessionType.AGENT)

    def merge() -> Any:
        begun.session_data = {"session_state": {"n": 1, "k": 1}}
        return merging.upsert_session(begun)

    return Victim(
        {
            "get": lambda: db.get_session("s", SessionType.AGENT),
            "list": lambda: db.get_sessions(None, user_id="u", session_name="x", start_timestamp=1),
            "merge": merge,
            "rename": lambda: db.rename_session("s", SessionType.AGENT, "n"),
            "change": lambda: db.update_session_state("s", lambda state: {**state, "z": 1}),
            "get a run": lambda: db.get_run("r"),
            "list runs": lambda: db.get_runs(sort_by="created_at"),
            "save a run": lambda: db.upsert_run(RunOutput(run_id="r", agent_id="a"), "s"),
            "add a run": lambda: db.upsert_run(RunOutput(run_id="r2", agent_id="a"), "s"),
            "list memories": lambda: db.get_user_memories(
                user_id="u", topics=["fruit"], search_content="plum"
            ),
            "count memories": db.get_user_memory_stats,
            "save a memory": lambda: db.upsert_user_memory(UserMemory("x", "m", user_id="u")),
            "delete a run": lambda: db.delete_run("r"),
            "delete": lambda: db.delete_session("s", "u"),
        }
    )


async def checkpoints(store: Store) -> Victim:
    """Checkpoints and pending writes of LangGraph."""
    saver = HoldfastSaver(store, "p")
    thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    first = await saver.aput(thread, empty_checkpoint(), {"step": 1}, {})
    last = await saver.aput(first, empty_checkpoint(), {"step": 2}, {})
    await saver.aput_writes(last, [("a", 1), ("b", 2)], "task")
    await saver.aput({"configurable": {"thread_id": LONG, "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
    return Victim(
        {
            "get": lambda: HoldfastSaver(store, "p").aget_tuple(thread),
            "list": lambda: saver.alist(None, filter={"step": 1}),
            "put": lambda: HoldfastSaver(store, "p").aput(last, empty_checkpoint(), {"step": 3}, {}),
            "put writes": lambda: saver.aput_writes(last, [("c", 1)], "task"),
            "history": lambda: saver.aget_delta_channel_history(config=last, channels=["x"]),
            "copy": lambda: saver.acopy_thread("t", "t2"),
            "delete runs": lambda: saver.adelete_for_runs(["r"]),
            "prune": lambda: saver.aprune(["t"]),
            "delete": lambda: saver.adelete_thread("t"),
        },
        foreign=("head/t", "head/t/#00", "checkpoint/t//a/b", "checkpoint/t//#00", "write/t//x"),
    )


async def items(store: Store) -> Victim:
    """Items of LangGraph's store, with vectors."""
    graph_store = HoldfastGraphStore(
        store,
        "p",
        index={"dims": 2, "embed": lambda texts: [[float(len(text)), 1.0] for text in texts]},
        ttl={"default_ttl": 10, "refresh_on_read": True},
    )
    await graph_store.aput(("a",), "k", {"t": "x", "n": {"m": 1}})
    await graph_store.aput(("a",), "plain", {"z": 1}, index=False)
    await graph_store.aput(("é" * 300,), "k", {"t": "x"})
    await graph_store.aget(("a",), "k")
    return Victim(
        {
            "get": lambda: graph_store.aget(("a",), "k"),
            "search": lambda: graph_store.asearch((), query="x"),
            "filter": lambda: graph_store.asearch((), filter={"n.m": {"$gt": 0}}),
            "namespaces": graph_store.alist_namespaces,
            "update": lambda: graph_store.aupdate(("a",), "k", lambda _: {"x": 1}),
            "put": lambda: graph_store.aput(("a",), "k", {"x": 1}, expected_version=1),
            "delete": lambda: graph_store.adelete(("a",), "plain"),
        },
        foreign=("memory/a", "memory/a/b/c", "memory/#00/x"),
    )


async def conversations(store: Store) -> Victim:
    """Sessions of the OpenAI Agents SDK."""

    def session(name: str = "s") -> HoldfastSession:
        return HoldfastSession(name, store.kv("p"))

    async def replace(name: str = "s") -> None:
        snapshot = await session(name).snapshot()
        await session(name).replace_items([{"role": "user", "content": "x"}], since=snapshot.head)

    for name in ("s", LONG):
        for _ in range(2):
            await session(name).add_items([{"role": "user", "content": "a"}])
            await replace(name)
    await session().add_items([{"role": "user", "content": "a"}])
    return Victim(
        {
            "get": lambda: session().get_items(),
            "get the last": lambda: session().get_items(1),
            "get a long name": lambda: session(LONG).get_items(),
            "add": lambda: session().add_items([{"role": "user", "content": "b"}]),
            "pop": lambda: session().pop_item(),
            "replace": replace,
            "clear": lambda: session().clear_session(),
        },
        foreign=("log/s/x", "log/s/000000000009x", "log/s/000000000009"),
    )


async def keyvalue(store: Store) -> Victim:
    """Values of py-key-value."""
    values = HoldfastStore(store.kv("p"))
    await values.put("k", {"a": 1})
    await values.put("large", {"a": "x" * 60_000})
    await values.put(LONG, {"b": 2}, ttl=60)
    return Victim(
        {
            "get": lambda: values.get("k"),
            "get many": lambda: values.get_many(["k", "large", LONG]),
            "keys": values.keys,
            "collections": values.collections,
            "update": lambda: values.update("k", lambda value: {**(value or {}), "z": 1}),
            "put": lambda: values.put(LONG, {"c": 1}),
            "delete": lambda: values.delete(LONG),
            "destroy": values.destroy,
        },
        (BaseKeyValueError,),
        ("entry/x", "entry/default_collection/#00"),
    )


async def pydantic_ai(store: Store) -> Victim:
    """Conversations of pydantic-ai."""
    conversations = HoldfastConversationStore(store.kv("p"))
    await conversations.save(await Agent(TestModel()).run("hello"))
    [record] = await conversations.read_records()
    await conversations.fork(record.conversation_id)
    return Victim(
        {
            "record": lambda: conversations.read_record(record.conversation_id),
            "records": conversations.read_records,
            "history": lambda: conversations.read_history(record.head_id),
            "load": lambda: conversations.load(record.conversation_id),
            "fork": lambda: conversations.fork(record.conversation_id),
            "delete": lambda: conversations.delete_record(
                record.conversation_id, expected_revision=record.revision
            ),
        },
        # A message that is missing is a `KeyError` of pydantic-ai's interface.
        (InvalidRecord, UserError, KeyError),
        ("conversation/x/y",),
    )


async def limits_and_sessions(store: Store) -> Victim:
    """Counts of the package limits, and sessions of Starlette."""
    kv = store.kv("p")
    storage = HoldfastStorage(kv=kv)
    await storage.incr("k", 60)
    await storage.acquire_entry("k", 10, 60)
    await storage.acquire_sliding_window_entry("k", 10, 10_000_000)
    visitor = StoredSession(kv, 60)
    visitor["a"] = {"b": 1}
    await visitor.save()
    return Victim(
        {
            "get": lambda: storage.get("k"),
            "take": lambda: storage.acquire_entry("k", 10, 60),
            "window": lambda: storage.get_moving_window("k", 10, 60),
            "take of a sliding window": lambda: storage.acquire_sliding_window_entry("k", 10, 10_000_000),
            "sliding window": lambda: storage.get_sliding_window("k", 10_000_000),
            "session": lambda: StoredSession.load(kv, 60, visitor.cookie),
        }
    )


@pytest.mark.parametrize(
    "prepare",
    [adk, a2a, agno, checkpoints, items, conversations, keyvalue, pydantic_ai, limits_and_sessions],
)
async def test_a_planted_value_is_refused_or_harmless(prepare: Callable[[Store], Awaitable[Victim]]) -> None:
    """Each call on a planted value does its work, or raises an error that says what is wrong."""
    async with holdfast.open("memory://") as store:
        assert await attack(store, await prepare(store)) == []


async def test_a_planted_value_of_strands_is_refused_or_harmless() -> None:
    """So it is in the session manager of Strands, which is called without `await`."""
    with holdfast.sync.open("memory://") as store:
        sessions = HoldfastSessionRepository(store, plugin="p", on_conflict="merge")
        state = {"__name__": "SlidingWindowConversationManager", "removed_message_count": 0}
        for name in ("s", LONG):
            sessions.create_session(Session(name, StrandsType.AGENT))
        sessions.create_agent("s", SessionAgent("a", {"x": 1}, state))
        said = SessionMessage({"role": "user", "content": [{"text": "x"}]}, 0)
        sessions.create_message("s", "a", said)
        other = SessionAgent("a", {"x": 1, "y": 2}, state)
        victim = Victim(
            {
                "session": lambda: sessions.read_session("s"),
                "a long name": lambda: sessions.read_session(LONG),
                "agent": lambda: sessions.read_agent("s", "a"),
                "messages": lambda: sessions.list_messages("s", "a"),
                "update": lambda: sessions.update_agent("s", other),
                "replace": lambda: sessions.update_message("s", "a", said),
                "append": lambda: sessions.create_message("s", "a", said),
                "delete": lambda: sessions.delete_session("s"),
            },
            (SessionException,),
        )
        assert await attack(store, victim) == []


async def test_planted_histories_that_come_back_to_themselves_end() -> None:
    """A checkpoint that is its own parent, and a message that precedes itself, are refused, not followed."""
    async with holdfast.open("memory://") as store:
        kv, saver = store.kv("langgraph"), HoldfastSaver(store)
        thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        config = await saver.aput(thread, empty_checkpoint(), {"step": 1}, {})
        [key] = (await kv.list("checkpoint/")).keys
        await kv.update(key, lambda value: {**value, "parent": config["configurable"]["checkpoint_id"]})
        with pytest.raises(holdfast.ValidationError, match="precede"):
            await saver.aget_delta_channel_history(config=config, channels=["x"])

        kv = store.kv("p")
        conversations = HoldfastConversationStore(kv)
        await conversations.save(await Agent(TestModel()).run("hello"))
        [record] = await conversations.read_records()
        assert record.head_id is not None
        await kv.update(f"message/{record.head_id}", lambda value: {**value, "earlier": [record.head_id]})
        with pytest.raises(holdfast.ValidationError, match="precede"):
            await conversations.read_history(record.head_id)


async def test_a_planted_key_below_a_log_does_not_stop_a_session() -> None:
    """A key that is no item of a session's log hides none of them and holds up nobody."""
    async with holdfast.open("memory://") as store:
        kv = store.kv("p")
        session = HoldfastSession("s", kv)
        items: Any = [{"role": "user", "content": text} for text in "ab"]
        await session.add_items(items)
        await kv.set("log/s/999999999999x", 7)
        assert await HoldfastSession("s", kv).get_items(1) == items[1:]
        async with asyncio.timeout(60):
            assert [await HoldfastSession("s", kv).pop_item() for _ in range(3)] == [*reversed(items), None]
