"""The session manager of Strands Agents."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest
from strands import Agent
from strands.models import Model
from strands.multiagent import MultiAgentBase
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import holdfast
import holdfast.sync
from holdfast.integrations.strands import HoldfastSessionManager, HoldfastSessionRepository, SessionConflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.integrations.grounds import Ground

LARGE: Final = "é" * 100_000


class Parrot(Model):
    """A model that gives one answer, so that no test needs an account."""

    def update_config(self, **_: Any) -> None:
        """Do nothing."""

    def get_config(self) -> Any:
        """Return nothing."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Answer."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": "Hello"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def agent(manager: HoldfastSessionManager) -> Agent:
    """An agent of the session."""
    return Agent(model=Parrot(), agent_id="desk", session_manager=manager, callback_handler=None)


def texts(manager: HoldfastSessionManager) -> list[str]:
    """What was said to the agent."""
    messages = manager.session_repository.list_messages(manager.session_id, "desk")
    return [one.message["content"][0]["text"] for one in messages if one.message["role"] == "user"]


def said(text: str, number: int = 0) -> SessionMessage:
    """A message."""
    return SessionMessage({"role": "user", "content": [{"text": text}]}, number)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.sync.Store]:
    """An open store."""
    with holdfast.sync.open(str(tmp_path / "s.db")) as opened:
        yield opened


def test_an_agent_goes_on_where_it_was(tmp_path: Path) -> None:
    """Messages and state are there after a restart, in their order."""
    for attempt in range(3):
        with holdfast.sync.open(str(tmp_path / "s.db")) as store:
            desk = agent(HoldfastSessionManager("s/1", store, owner="one"))
            assert len(desk.messages) == 2 * attempt
            assert desk.state.get("n") == (attempt or None)
            desk.state.set("n", attempt + 1)
            assert str(desk(f"Hello {attempt}")).strip() == "Hello"
    with holdfast.sync.open(str(tmp_path / "s.db")) as store:
        assert texts(HoldfastSessionManager("s/1", store)) == ["Hello 0", "Hello 1", "Hello 2"]


def test_messages_of_two_workers_are_all_there(store: holdfast.sync.Store) -> None:
    """Two workers that go on from one conversation lose no message, and each has a number of its own."""
    desks = [agent(HoldfastSessionManager("s", store)) for _ in range(2)]
    for number in range(3):
        for name, desk in zip("ab", desks, strict=True):
            desk(f"{name}{number}")
    manager = HoldfastSessionManager("s", store)
    assert sorted(texts(manager)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    messages = manager.session_repository.list_messages("s", "desk")
    assert [one.message_id for one in messages] == list(range(12))


def test_an_overtaken_state_is_refused_or_merged(store: holdfast.sync.Store) -> None:
    """A worker saves no state over one that it has not read, unless the two can be merged."""
    early, late = [agent(HoldfastSessionManager("s", store)) for _ in range(2)]
    early.state.set("a", 1)
    early("Hello")
    late.state.set("b", 1)
    with pytest.raises(SessionConflict, match="turn"):
        late("Hello")
    one, two, three = [agent(HoldfastSessionManager("s", store, on_conflict="merge")) for _ in range(3)]
    for desk, name in ((one, "one"), (two, "two")):
        desk.state.set(name, 1)
        desk("Hello")
    three.state.set("a", 2)
    two.state.set("a", 3)
    two("Hello")
    with pytest.raises(SessionConflict, match=r"both have changed state\.a"):
        three("Hello")
    assert agent(HoldfastSessionManager("s", store)).state.get() == {"a": 3, "one": 1, "two": 1}


def test_a_repository_keeps_what_it_is_given(store: holdfast.sync.Store) -> None:
    """Large values, redactions and pages work; what is there is not made again."""
    repository = HoldfastSessionRepository(store)
    session = Session("s" * 300, SessionType.AGENT)
    with pytest.raises(SessionException):
        repository.create_agent(session.session_id, SessionAgent("a", {}, {}))
    repository.create_session(session)
    with pytest.raises(SessionConflict):
        repository.create_session(session)
    assert repository.read_session(session.session_id) == session
    assert repository.read_agent(session.session_id, "a" * 300) is None
    with pytest.raises(SessionException):
        repository.create_message(session.session_id, "a" * 300, said("x"))
    made = SessionAgent("a" * 300, {"large": LARGE, "bytes": b"\x00"}, {})
    repository.create_agent(session.session_id, made)
    with pytest.raises(SessionConflict):
        repository.create_agent(session.session_id, made)
    read = repository.read_agent(session.session_id, "a" * 300)
    assert read == made
    for number in range(3):
        message = said(LARGE + str(number), number)
        for _ in range(2):  # the second is the first, sent again
            repository.create_message(session.session_id, made.agent_id, message)
    place = session.session_id, made.agent_id
    assert [one.message["content"][0]["text"][-1] for one in repository.list_messages(*place)] == [
        "0",
        "1",
        "2",
    ]
    assert [one.message_id for one in repository.list_messages(*place, limit=1, offset=1)] == [1]
    message.redact_message = {"role": "user", "content": [{"text": "redacted"}]}
    repository.update_message(*place, message)
    latest = repository.read_message(*place, 2)
    assert latest is not None
    assert latest.to_message() == message.redact_message
    assert repository.read_message(*place, 3) is None
    with pytest.raises(SessionException):
        repository.update_message(*place, said("x", 3))
    repository.delete_session(session.session_id)
    with pytest.raises(SessionException):
        repository.create_message(*place, said("x"))
    with pytest.raises(SessionException):
        repository.delete_session(session.session_id)
    assert (repository.read_session(session.session_id), repository.list_messages(*place)) == (None, [])
    assert store.blobs("strands").list().blobs == []
    assert store.kv("strands").list().keys == []
    with pytest.raises(holdfast.ValidationError, match="merge"):
        HoldfastSessionRepository(store, on_conflict="overwrite")  # type: ignore[arg-type]


async def test_every_ground(ground: Ground) -> None:
    """The same holds on PostgreSQL and through a service."""

    def check() -> None:
        with holdfast.sync.open(ground.url) as store:
            test_a_repository_keeps_what_it_is_given(store)
            test_messages_of_two_workers_are_all_there(store)

    await asyncio.to_thread(check)


class Group(MultiAgentBase):
    """A group of agents with some state."""

    def __init__(self, **state: Any) -> None:
        self.id = "group"
        self.state = state

    async def invoke_async(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise NotImplementedError

    def serialize_state(self) -> dict[str, Any]:
        """Return the state."""
        return dict(self.state)

    def deserialize_state(self, payload: dict[str, Any]) -> None:
        """Take the state."""
        self.state = payload


class Counting(Group):
    """A group that relies on what its state has, as those of the SDK do."""

    def deserialize_state(self, payload: dict[str, Any]) -> None:
        """Take the state."""
        self.state = {"n": payload["n"]}


def test_the_state_of_a_group_is_guarded(store: holdfast.sync.Store) -> None:
    """Of two workers that have read the state of a group, the second to save it is refused."""
    managers = [HoldfastSessionManager("s", store) for _ in range(3)]
    groups = [Group(n=0) for _ in managers]
    for manager, group in zip(managers, groups, strict=True):
        manager.initialize_multi_agent(group)
    groups[0].state["n"] = 1
    managers[0].sync_multi_agent(groups[0])
    managers[2].sync_multi_agent(groups[2])
    groups[1].state["n"] = 2
    with pytest.raises(SessionConflict):
        managers[1].sync_multi_agent(groups[1])
    again = Group()
    HoldfastSessionManager("s", store).initialize_multi_agent(again)
    assert again.state == {"n": 1}


def work(path: str, name: str) -> None:
    """Work as a process does: go on with a session that others go on with too."""
    with holdfast.sync.open(path) as store:
        for number in range(3):
            desk = agent(HoldfastSessionManager("s", store, on_conflict="merge", owner=name))
            desk.state.set(f"{name}.{number}", number)
            desk(f"{name}.{number}")


def test_ten_processes_lose_nothing(tmp_path: Path) -> None:
    """Ten processes in one new session lose no message and no state."""
    path, workers = str(tmp_path / "s.db"), []
    for name in (f"p{number}" for number in range(10)):
        pid = os.fork()
        if pid == 0:
            try:
                work(path, name)
                os._exit(0)
            finally:
                os._exit(1)
        workers.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in workers] == [0] * 10
    everything = sorted(f"p{name}.{number}" for name in range(10) for number in range(3))
    with holdfast.sync.open(path) as store:
        manager = HoldfastSessionManager("s", store)
        assert sorted(texts(manager)) == everything
        assert sorted(agent(manager).state.get()) == everything


def test_a_stopped_worker_overwrites_nothing(tmp_path: Path) -> None:
    """A worker that is stopped in its turn and comes back after its successor appends and saves nothing."""
    path, (told, tell) = str(tmp_path / "s.db"), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        with holdfast.sync.open(path) as store:
            manager = HoldfastSessionManager("s", store)
            try:
                with manager.turn(ttl=0.5):
                    desk = agent(manager)
                    os.write(tell, b"x")
                    os.kill(os.getpid(), signal.SIGSTOP)
                    desk("late")
            except holdfast.Fenced:
                code = 0
        os._exit(code)
    os.read(told, 1)
    os.waitpid(pid, os.WUNTRACED)
    with holdfast.sync.open(path) as store:
        manager = HoldfastSessionManager("s", store)
        with manager.turn(wait=30):
            agent(manager)("successor")
        os.kill(pid, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert texts(manager) == ["successor"]


def test_planted_entries_are_refused(store: holdfast.sync.Store, tmp_path: Path) -> None:
    """What is no session, agent or message is refused, and nothing that it names is made."""
    repository = HoldfastSessionRepository(store)
    repository.create_session(Session("s", SessionType.AGENT))
    repository.create_agent("s", SessionAgent("a", {}, {}))
    repository.create_message("s", "a", said("x"))
    kv = store.kv("strands")
    planted = {"py/reduce": [{"py/function": "pathlib.Path.touch"}, {"py/tuple": [str(tmp_path / "it-ran")]}]}
    for prefix, read in (
        ("message/", lambda: repository.list_messages("s", "a")),
        ("agent/", lambda: repository.read_agent("s", "a")),
        ("session/", lambda: repository.read_session("s")),
    ):
        [key] = kv.list(prefix).keys
        kv.set(key, planted)
        with pytest.raises(holdfast.ValidationError, match="is not a"):
            read()
    assert not (tmp_path / "it-ran").exists()


def test_what_can_not_be_restored_is_refused(store: holdfast.sync.Store) -> None:
    """An agent or a group of another form inside is refused with an error that says so."""
    agent(HoldfastSessionManager("s", store))("hello")
    HoldfastSessionManager("s", store).initialize_multi_agent(Counting(n=0))
    kv = store.kv("strands")
    [agent_key], [group_key] = kv.list("agent/").keys, kv.list("multi-agent/").keys
    used, answered = kv.list("message/").keys

    def fields(value: Any) -> Any:
        return {**value, "value": {**value["value"], "_internal_state": {"interrupt_state": {}}}}

    def use(value: Any) -> Any:
        said = {"role": "assistant", "content": [{"toolUse": {}}]}
        return {**value, "message": said}

    def result(value: Any) -> Any:
        said = {"role": "user", "content": [{"toolResult": {"toolUseId": []}}]}
        return {**value, "message": said}

    for changes in ({agent_key: fields}, {used: use}, {used: use, answered: result}):
        good = {key: kv.get(key) for key in changes}
        for key, change in changes.items():
            kv.update(key, change)
        with pytest.raises(holdfast.ValidationError, match="is not an agent"):
            agent(HoldfastSessionManager("s", store))
        for key, entry in good.items():
            assert entry is not None
            kv.set(key, entry.value)
    agent(HoldfastSessionManager("s", store))
    kv.update(group_key, lambda value: {**value, "value": {}})
    with pytest.raises(holdfast.ValidationError, match="is not a group"):
        HoldfastSessionManager("s", store).initialize_multi_agent(Counting(n=0))
