"""How often an integration asks the store for a write of a framework: each call may be a round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Task
from agno.db.schemas import UserMemory
from agno.run.agent import RunOutput
from agno.session import AgentSession
from google.adk.events.event import Event
from langgraph.checkpoint.base import empty_checkpoint
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import holdfast
import holdfast.sync
from holdfast.handles.kv import KV
from holdfast.integrations.a2a import HoldfastTaskStore
from holdfast.integrations.adk import HoldfastSessionService
from holdfast.integrations.agno import AsyncHoldfastDb
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.strands import HoldfastSessionRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable

CALLS = ("get", "get_many", "set", "list", "batch", "delete", "delete_many")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of handles, in their order."""
    calls: list[str] = []

    def count(name: str, call: Any) -> None:
        def counted(self: KV, *given: Any, **named: Any) -> Any:
            calls.append(name)
            return call(self, *given, **named)

        monkeypatch.setattr(KV, name, counted)

    for name in CALLS:
        count(name, getattr(KV, name))
    return calls


async def test_a_write_of_a_framework_is_few_round_trips(asked: list[str]) -> None:
    """What frameworks write most often reads no more than it needs."""

    async def calls(write: Awaitable[Any]) -> list[str]:
        asked.clear()
        await write
        return list(asked)

    async with holdfast.open("memory://") as store:
        saver = HoldfastSaver(store)
        thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        config = await saver.aput(thread, empty_checkpoint(), {"step": 1}, {})
        assert await calls(saver.aput(config, empty_checkpoint(), {"step": 2}, {})) == ["batch"]
        assert await calls(saver.aput_writes(config, [("a", 1)], "task")) == ["get", "set"]

        talk = HoldfastSession("s", store.kv("openai"))
        assert await calls(talk.add_items([{"role": "user", "content": "x"}])) == ["batch"]

        service = HoldfastSessionService(store.kv("adk"))
        session = await service.create_session(app_name="desk", user_id="ada", session_id="s")
        said = Event(invocation_id="i", author="user")
        assert await calls(service.append_event(session, said)) == ["batch"]

        tasks, context = HoldfastTaskStore(store.kv("a2a")), ServerCallContext()
        assert await calls(tasks.save(Task(id="t", context_id="c"), context)) == ["get", "batch"]

        db = AsyncHoldfastDb(store)
        await db.upsert_session(AgentSession("s", session_data={}))
        assert await calls(db.upsert_user_memory(UserMemory("x", "m"))) == ["get", "batch"]
        await db.upsert_run(RunOutput(run_id="r", agent_id="a"), "s")
        again = await calls(db.upsert_run(RunOutput(run_id="r", agent_id="a"), "s"))
        assert again == ["get", "get", "get", "batch"]


def test_a_message_of_strands_is_two_round_trips(asked: list[str]) -> None:
    """A worker that knows the agent asks for the session alone, and so finds one that was made anew."""
    said = SessionMessage({"role": "user", "content": [{"text": "x"}]}, 0)
    with holdfast.sync.open("memory://") as store:
        worker, other = HoldfastSessionRepository(store), HoldfastSessionRepository(store)
        for anew in range(2):
            if anew:
                other.delete_session("s")
            other.create_session(Session("s", SessionType.AGENT))
            other.create_agent("s", SessionAgent("a", {}, {}))
            worker.create_message("s", "a", said)
            worker.read_agent("s", "a")
            asked.clear()
            worker.create_message("s", "a", SessionMessage({"role": "user", "content": [{"text": "y"}]}, 1))
            assert asked == ["get", "batch"]
            assert len(other.list_messages("s", "a")) == 2
