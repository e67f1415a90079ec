"""The session service of Google's Agent Development Kit, on every ground."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from google.adk.agents import BaseAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

import holdfast
from holdfast.handles.kv import KV
from holdfast.integrations.adk import HoldfastSessionService
from tests.integrations.crowd import crowd

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.adk.agents.invocation_context import InvocationContext

    from holdfast.store import Store
    from tests.integrations.grounds import Ground

ADA: Final[Any] = {"app_name": "desk", "user_id": "ada"}
S: Final[Any] = {**ADA, "session_id": "s"}


def event(text: str, state: dict[str, Any] | None = None, **fields: Any) -> Event:
    """An event whose id is its text."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=state or {})
    return Event(id=text, invocation_id="i", author="user", content=content, actions=actions, **fields)


async def read(service: HoldfastSessionService, **config: Any) -> Session:
    """Get the session."""
    session = await service.get_session(**S, config=GetSessionConfig(**config) if config else None)
    assert session is not None
    return session


def ids(session: Session) -> list[str]:
    """The ids of a session's events."""
    return [one.id for one in session.events]


async def test_a_session_comes_back_as_it_was(store: Store) -> None:
    """State of all scopes and events come back, large ones too; temporary state is not kept."""
    service = HoldfastSessionService(store.kv("agents"))
    state = {"a/b": 1, "user:name": "Ada", "app:mode": [1, None], "temp:x": 2}
    session = await service.create_session(**S, state=state)
    assert session.state == {"a/b": 1, "user:name": "Ada", "app:mode": [1, None]}
    large = "é" * 100_000
    await service.append_event(session, event("one", {"big": large, "temp:y": 1, "user:name": "Lovelace"}))
    await service.append_event(session, event("two", {"big": large + "!", "none": None}))
    await service.append_event(session, event(large))
    assert session.state["temp:y"] == 1
    again = await read(service)
    assert again.events == session.events
    assert again.state == {
        **{"a/b": 1, "big": large + "!", "none": None},
        **{"user:name": "Lovelace", "app:mode": [1, None]},
    }
    assert await service.get_user_state(**ADA) == {"name": "Lovelace"}
    other = await service.create_session(**ADA)
    assert other.state == {"user:name": "Lovelace", "app:mode": [1, None]}
    await service.delete_session(**S)
    await service.delete_session(**S)
    assert await service.get_session(**S) is None
    assert (await store.blobs("agents").list()).blobs == []
    assert await service.get_user_state(**ADA) == {"name": "Lovelace"}


async def test_events_are_chosen(store: Store) -> None:
    """A reader may ask for the latest events, for those after a time, or for none."""
    service = HoldfastSessionService(store.kv("agents"))
    session = await service.create_session(**S)
    for number in range(4):
        await service.append_event(session, event(str(number), timestamp=100.0 + number))
    assert ids(await read(service, num_recent_events=2)) == ["2", "3"]
    assert ids(await read(service, num_recent_events=0)) == []
    assert ids(await read(service, after_timestamp=102.0)) == ["2", "3"]
    assert (await read(service)).last_update_time == 103.0


async def test_sessions_are_listed_the_latest_last(store: Store) -> None:
    """Sessions of a user or of all are listed by their last event, with state and without events."""
    service = HoldfastSessionService(store.kv("agents"))
    first = await service.create_session(**S, state={"a": 1, "user:b": 2})
    await service.create_session(app_name="desk", user_id="bob", session_id="b")
    await service.create_session(app_name="other", user_id="ada", session_id="o")
    await service.append_event(first, event("late", timestamp=datetime(2100, 1, 1, tzinfo=UTC).timestamp()))
    listed = (await service.list_sessions(app_name="desk")).sessions
    assert [(one.user_id, one.id, one.events) for one in listed] == [("bob", "b", []), ("ada", "s", [])]
    [mine] = (await service.list_sessions(**ADA)).sessions
    assert mine.state == {"a": 1, "user:b": 2}


async def test_a_name_is_given_once(store: Store) -> None:
    """A second session of the same name is refused, also when two are created at once."""
    service = HoldfastSessionService(store.kv("agents"))
    await service.create_session(**{**S, "session_id": " s "})
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**S, state={"user:x": 1})
    assert await service.get_user_state(**ADA) == {}


async def test_a_stale_session_is_refused(store: Store) -> None:
    """Who has not seen the latest event can not append, and nothing of the attempt is there."""
    service = HoldfastSessionService(store.kv("agents"))
    one = await service.create_session(**S)
    two = await read(service)
    await service.append_event(one, event("one", {"n": 1}))
    with pytest.raises(StaleSessionError, match="turn"):
        await service.append_event(two, event("two", {"n": 2, "user:n": 2}))
    blank = Session(id="s", app_name="desk", user_id="ada")
    with pytest.raises(StaleSessionError):
        await service.append_event(blank, event("three"))
    end = await read(service)
    assert (ids(end), end.state) == (["one"], {"n": 1})
    await service.append_event(one, event("four"))
    await service.delete_session(**S)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(one, event("five"))
    await service.create_session(**S)
    with pytest.raises(StaleSessionError):
        await service.append_event(one, event("six"))


async def test_a_session_is_deleted_while_it_is_used(store: Store) -> None:
    """A session is deleted with all that it has, whoever appends to it or replaces it meanwhile."""
    kv = store.kv("agents")
    service, other = HoldfastSessionService(kv), HoldfastSessionService(store.kv("agents"))
    session = await service.create_session(**S, state={"n": 1})
    read_head, meanwhile = service._head, ["append", "replace"]

    async def head(*place: str) -> Any:
        found = await read_head(*place)
        match meanwhile.pop(0) if meanwhile else None:
            case "append":
                await other.append_event(session, event("late"))
            case "replace":
                await other.delete_session(**S)
                await other.create_session(**S, state={"n": 2})
        return found

    service._head = head  # type: ignore[method-assign]
    await service.delete_session(**S)
    assert await service.get_session(**S) is None
    assert (await kv.list()).keys == []


async def test_other_names_have_other_turns(store: Store) -> None:
    """Names that differ only in where one ends and the next begins do not share a turn."""
    service = HoldfastSessionService(store.kv("agents"))
    one = service.turn(app_name="a\nb", user_id="c", session_id="d", ttl=60, wait=0)
    other = service.turn(app_name="a", user_id="b\nc", session_id="d", ttl=60, wait=0)
    async with one, other:
        assert one.fence["lock"] != other.fence["lock"]


async def test_a_resent_event_is_there_once(store: Store) -> None:
    """An event whose answer was lost may be sent again, by the same program or from the older session."""
    service = HoldfastSessionService(store.kv("agents"))
    session = await service.create_session(**S)
    old = await read(service)
    large = "x" * 70_000
    for one in (session, session, old):
        await service.append_event(one, event("one", {"n": len(one.events), "big": large}))
        assert ids(one) == ["one"]
    await service.append_event(old, event("two"))
    end = await read(service)
    assert (ids(end), end.state) == (["one", "two"], {"n": 0, "big": large})


async def test_shared_state_is_updated_without_loss(store: Store) -> None:
    """Sessions that set different names lose nothing; an update of one name repeats if it was too late."""
    service = HoldfastSessionService(store.kv("agents"))
    for number in range(3):
        session = await service.create_session(**ADA, session_id=str(number))
        await service.append_event(session, event("e", {f"user:{number}": number, f"app:{number}": number}))
    session = await read_all(service)
    assert session.state == {f"{scope}:{n}": n for scope in ("user", "app") for n in range(3)}
    assert await service.update_state("app:total", lambda n: (n or 0) + 1, app_name="desk") == 1
    with pytest.raises(holdfast.ValidationError, match="user: or app:"):
        await service.update_state("total", lambda n: n, app_name="desk")


async def read_all(service: HoldfastSessionService) -> Session:
    """Get a session of the user."""
    return (await service.list_sessions(**ADA)).sessions[0]


@pytest.mark.parametrize("size", [1, 100_000])
async def test_an_update_whose_answer_was_lost_is_made_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """An update with a `once` can be sent again: it counts once, and the value that is there is returned."""
    batch = KV.batch

    async def lost(self: KV, **given: Any) -> Any:
        await batch(self, **given)
        raise holdfast.OutcomeUnknown("the answer is lost")

    service = HoldfastSessionService(store.kv("agents"))

    async def count(once: str | None) -> Any:
        def more(value: Any) -> Any:
            return {"count": (value or {"count": 0})["count"] + 1, "text": "x" * size}

        there = await service.update_state("user:n", more, app_name="a", user_id="ada", once=once)
        return there["count"]

    for number in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(KV, "batch", lost)
            with pytest.raises(holdfast.OutcomeUnknown):
                await count(f"visit {number}")
        assert await count(f"visit {number}") == number
    assert await count(None) == 3


async def test_a_lost_turn_refuses_events(store: Store) -> None:
    """A worker whose turn another one has taken can not append any more, however it has spelled the name."""
    kv = store.kv("agents")
    service = HoldfastSessionService(kv, owner="worker-1")
    turn = service.turn(**{**S, "session_id": " s "}, wait=0)
    await turn.__aenter__()
    session = await service.create_session(**S)
    [lock] = [key for key in (await kv.list("lock/")).keys if "waiting" not in key]
    await kv.delete(lock)  # as if its time had run out while the worker was stopped
    with pytest.raises(holdfast.Fenced):
        await service.append_event(session, event("late"))
    with pytest.raises(holdfast.LockLost):
        await turn.__aexit__(None, None, None)
    assert ids(await read(service)) == []
    entry = await kv.get("session/desk/ada/s")
    assert entry is not None
    assert entry.last_writer == "worker-1"


async def test_planted_values_are_refused(store: Store) -> None:
    """Entries that hold no session, event or state give an error that names them."""
    kv = store.kv("agents")
    service = HoldfastSessionService(kv)
    session = await service.create_session(**S)
    await service.append_event(session, event("one", {"a": 1}))
    for prefix in ("state/", "event/", "session/"):
        [key] = (await kv.list(prefix)).keys
        planted: list[Any] = [1, {"run": 1}, {"fields": {}, "value": {"content": 5}}]
        for value in planted if prefix != "state/" else planted[:2]:
            good = await kv.get(key)
            assert good is not None
            await kv.set(key, value)
            with pytest.raises(holdfast.ValidationError, match=prefix):
                await service.get_session(**S)
            await kv.set(key, good.value)


class Parrot(BaseAgent):
    """An agent that counts in three scopes of state."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        count = ctx.session.state.get("user:count", 0) + 1
        actions = EventActions(state_delta={"user:count": count})
        content = types.Content(role="model", parts=[types.Part(text=f"{count}")])
        yield Event(invocation_id=ctx.invocation_id, author=self.name, actions=actions, content=content)


async def test_a_planted_number_of_events_is_harmless(store: Store) -> None:
    """A session whose entry claims to have a billion events returns those that are there."""
    kv = store.kv("agents")
    service = HoldfastSessionService(kv)
    await service.append_event(await service.create_session(**S), event("one"))
    [key] = (await kv.list("session/")).keys
    await kv.update(key, lambda head: {**head, "events": 1_000_000_000})
    assert ids(await read(service)) == ["one"]


async def test_a_runner_keeps_its_sessions_here(store: Store) -> None:
    """A runner of ADK goes on with a session that another runner has begun."""
    service = HoldfastSessionService(store.kv("agents"))
    await service.create_session(**S)
    said = []
    for text in ("Hello", "Hello again"):
        runner = Runner(app_name="desk", agent=Parrot(name="parrot"), session_service=service)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for one in runner.run_async(user_id="ada", session_id="s", new_message=message):
            assert one.content is not None
            assert one.content.parts is not None
            said.append(one.content.parts[0].text)
    assert said == ["1", "2"]
    assert len((await read(service)).events) == 4


async def talk(store: Store, name: str) -> None:
    """Work as a process does: append in turns, and count in the state of the user."""
    service = HoldfastSessionService(store.kv("agents"), owner=name)
    for number in range(4):
        async with service.turn(**S, wait=30):
            session = await read(service)
            await service.append_event(session, event(f"{name}.{number}", {f"user:{name}{number}": number}))
        await service.update_state("user:count", lambda count: (count or 0) + 1, **ADA)


@pytest.mark.unmeasured
async def test_processes_lose_nothing(ground: Ground) -> None:
    """Processes that take turns lose no event and no state."""
    async with ground.open() as store:
        await HoldfastSessionService(store.kv("agents")).create_session(**S)
    await crowd(ground, ["a", "b"], talk)
    async with ground.open() as store:
        session = await read(HoldfastSessionService(store.kv("agents")))
    assert sorted(ids(session)) == sorted(f"{name}.{number}" for name in "ab" for number in range(4))
    assert session.state["user:count"] == 8
    assert len(session.state) == 9
