"""The databases of agno, on every ground."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest
from agno.agent import Agent
from agno.db.base import AsyncBaseDb, BaseDb, SessionType
from agno.db.schemas import UserMemory
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.run.team import TeamRunOutput
from agno.session import AgentSession, TeamSession, WorkflowSession
from agno.session.summary import SessionSummary

import holdfast
import holdfast.sync
from holdfast.handles.kv import KV
from holdfast.integrations.agno import AsyncHoldfastDb, HoldfastDb, NotSaved
from holdfast.integrations.records import Records
from tests.integrations.crowd import crowd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from agno.run import RunContext

    from holdfast.store import Store
    from tests.integrations.grounds import Ground

LARGE: Final = "é" * 100_000


class Parrot(Model):
    """A model that gives one answer, so that no test needs an account."""

    def __init__(self) -> None:
        super().__init__(id="parrot")

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        """Answer."""
        return ModelResponse(role="assistant", content="Hello")

    async def ainvoke(self, *_: Any, **__: Any) -> ModelResponse:
        """Answer."""
        return self.invoke()

    def invoke_stream(self, *_: Any, **__: Any) -> Iterator[ModelResponse]:
        """Answer."""
        yield self.invoke()

    async def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
        """Answer."""
        yield self.invoke()

    _parse_provider_response = _parse_provider_response_delta = invoke


def agent(db: Any, mark: str = "", pause: Callable[[], Any] | None = None) -> Agent:
    """An agent that counts its runs and adds a mark to its session's state."""

    async def add(run_context: RunContext) -> None:
        state = run_context.session_state
        assert state is not None
        state["marks"] = [*state.get("marks", []), mark]
        if pause is not None:
            await pause()

    return Agent(model=Parrot(), db=db, pre_hooks=[add], telemetry=False, id="desk")


def new(session_id: str = "s", **state: Any) -> AgentSession:
    """A session that was not saved yet."""
    return AgentSession(session_id=session_id, user_id="ada", session_data={"session_state": state})


async def state_of(db: AsyncHoldfastDb, session_id: str = "s") -> Any:
    """What the state of a session is in the store."""
    session = await db.get_session(session_id)
    return session.session_data["session_state"]


async def test_a_session_comes_back_as_it_was(store: Store) -> None:
    """Fields and runs of all kinds of sessions come back, large ones too, and go with the session."""
    db = AsyncHoldfastDb(store)
    summary = SessionSummary(summary="s", topics=["t"])
    common: dict[str, Any] = {"user_id": "ada", "session_data": {"a": LARGE}, "metadata": {"m": [1, None]}}
    for session in (
        AgentSession("a" * 300, agent_id="x", agent_data={"n": 1}, summary=summary, **common),
        TeamSession("t/1", team_id="x", team_data={"n": 1}, summary=summary, **common),
        WorkflowSession("w", workflow_id="x", workflow_name="n", workflow_data={"n": 1}, **common),
    ):
        saved = await db.upsert_session(session)
        for one in (saved, await db.get_session(session.session_id, user_id="ada")):
            assert type(one) is type(session)
            assert one.session_data == session.session_data
            assert one.metadata == session.metadata
        assert await db.get_session(session.session_id, user_id="bob") is None
    for number in range(3):
        run = RunOutput(run_id=f"r{number}", agent_id="x", content=LARGE + str(number), session_id="w")
        await db.upsert_run(run, "a" * 300, "ada")
    await db.upsert_run(TeamRunOutput(run_id="t0", team_id="x", status=RunStatus.cancelled), "t/1")
    session = await db.get_session("a" * 300)
    assert [run.content[-1] for run in session.runs] == ["0", "1", "2"]
    assert [run.run_id for run in (await db.get_session("a" * 300, runs_limit=2)).runs] == ["r1", "r2"]
    assert (await db.get_session("t/1", runs_limit=2)).runs == []
    assert (await db.get_run("r1")).content == LARGE + "1"
    assert [run.run_id for run in await db.get_runs(agent_id="x")] == ["r0", "r1", "r2"]
    rows, count = await db.get_runs(limit=1, page=2, sort_by="run_id", deserialize=False)
    assert (rows[0]["run_id"], count) == ("r2", 4)
    assert await db.delete_session("a" * 300, user_id="bob") is False
    assert await db.delete_run("r0") is True
    await db.delete_sessions(["a" * 300, "t/1", "w"])
    assert (await db.get_sessions(), await db.get_runs(), await db.get_run("r1")) == ([], [], None)
    assert (await store.blobs("agno").list()).blobs == []
    assert (await store.kv("agno").list()).keys == []


async def test_sessions_are_chosen(store: Store) -> None:
    """Sessions are listed by user, component, type, name and time, in pages."""
    db = AsyncHoldfastDb(store)
    for number in range(4):
        data = {"session_name": f"Talk {number}"}
        await db.upsert_session(
            AgentSession(
                f"s{number}", agent_id="x", user_id="ab"[number % 2], session_data=data, created_at=number + 1
            )
        )
    await db.upsert_session(TeamSession("t", team_id="x", user_id="a", created_at=9))

    async def ids(**wanted: Any) -> list[str]:
        return [session.session_id for session in await db.get_sessions(**wanted)]

    assert await ids() == ["s0", "s1", "s2", "s3", "t"]
    assert await ids(user_id="a", session_type=SessionType.AGENT) == ["s0", "s2"]
    assert await ids(component_id="x", sort_by="created_at", limit=2) == ["t", "s3"]
    assert await ids(component_id="x", session_type=SessionType.TEAM) == ["t"]
    assert await ids(session_name="talk 3") == ["s3"]
    assert await ids(start_timestamp=2, end_timestamp=3, sort_by="created_at", sort_order="asc") == [
        "s1",
        "s2",
    ]
    rows, count = await db.get_sessions(limit=2, page=2, deserialize=False, include_runs=False)
    assert ([row["session_id"] for row in rows], rows[0]["runs"], count) == (["s2", "s3"], None, 5)
    renamed = await db.rename_session("s0", None, "New")
    assert renamed.session_data == {"session_name": "New"}
    assert await db.rename_session("s0", None, "Hacked", user_id="b") is None
    assert await db.upsert_session(AgentSession("s0", user_id="b")) is None
    with pytest.raises(ValueError, match="limit"):
        await db.get_sessions(page=2)


async def test_an_overtaken_session_is_refused(store: Store) -> None:
    """Who has not seen the latest session can not save, also if it is new, or was deleted meanwhile."""
    db = AsyncHoldfastDb(store, owner="one")
    await db.upsert_session(new(n=1))
    early, late = await db.get_session("s"), await db.get_session("s")
    early.session_data["session_state"]["a"] = 1
    await db.upsert_session(early)
    late.session_data["session_state"]["b"] = 1
    for session in (late, late, new(n=9)):
        with pytest.raises(NotSaved, match="turn") as refused:
            await db.upsert_session(session)
        assert isinstance(refused.value.__cause__, holdfast.VersionConflict)
    assert await state_of(db) == {"n": 1, "a": 1}
    early.session_data["session_state"]["a"] = 2
    await db.upsert_session(early)
    await db.update_session_state("s", lambda state: {**state, "n": state["n"] + 1})
    assert await state_of(db) == {"n": 2, "a": 2}
    [key] = (await store.kv("agno").list("session/")).keys
    entry = await store.kv("agno").get(key)
    assert entry is not None
    assert entry.last_writer == "one"
    await db.delete_session("s")
    with pytest.raises(NotSaved, match="deleted"):
        await db.upsert_session(early)
    with pytest.raises(NotSaved, match="no session"):
        await db.upsert_run(RunOutput(run_id="r"), "s")
    with pytest.raises(holdfast.KeyNotFound):
        await db.update_session_state("s", lambda state: state)


async def test_sessions_are_merged(store: Store) -> None:
    """What two workers have changed in different places is united; metrics are added up."""
    db = AsyncHoldfastDb(store, on_conflict="merge")
    first = new(kept=1, gone=1, marks=["0"])
    first.session_data |= {"session_metrics": {"total_tokens": 10, "details": {"m": [{"id": "x", "n": 1}]}}}  # type: ignore[operator]
    await db.upsert_session(first)
    one, two = await db.get_session("s"), await db.get_session("s")
    for session, name, tokens in ((one, "one", 3), (two, "two", 4)):
        data = session.session_data
        data["session_state"] |= {name: 1, "flag": True}
        data["session_state"]["marks"].append(name)
        data["session_metrics"] = {"total_tokens": 10 + tokens, "details": {"m": [{"id": "x", "n": tokens}]}}
        session.summary = SessionSummary(summary=name)
    del one.session_data["session_state"]["gone"]
    await db.upsert_session(one)
    await db.upsert_session(two)
    there = await db.get_session("s")
    assert there.session_data == {
        "session_state": {"kept": 1, "marks": ["0", "one", "two"], "flag": True, "one": 1, "two": 1},
        "session_metrics": {"total_tokens": 17, "details": {"m": [{"id": "x", "n": 6}]}},
    }
    assert there.summary.summary == "two"
    # Each goes on with what it has seen, and still loses nothing of the other's.
    for session in (one, two, one):
        session.session_data["session_state"]["marks"].append("more")
        await db.upsert_session(session)
        await db.upsert_session(session)
    assert (await state_of(db))["marks"] == ["0", "one", "two", "more", "more", "more"]


@pytest.mark.parametrize(
    ("base", "one", "two"),
    [
        ({"n": 1}, {"n": 2}, {"n": 3}),
        ({"n": 1}, {"n": 2}, {"n": 2}),
        ({"n": 1}, {}, {"n": 2}),
        ({"l": [1, 2]}, {"l": [2]}, {"l": [1, 2, 3]}),
        ({}, {"t": "a"}, {"t": "b"}),
        ({}, {"l": [1, 2]}, {"l": [1, 3]}),
        ({"d": {"n": 1}}, {"d": 1}, {"d": {"n": 2}}),
        ({"b": 1}, {"b": True}, {"b": 2}),
    ],
)
async def test_what_can_not_be_merged_is_refused(base: Any, one: Any, two: Any) -> None:
    """Nothing is guessed: where both workers have changed one value, the second one is refused."""
    async with holdfast.open("memory://") as store:
        db = AsyncHoldfastDb(store, on_conflict="merge")
        await db.upsert_session(new(**base))
        sessions = [await db.get_session("s") for _ in range(2)]
        for session, state in zip(sessions, (one, two), strict=True):
            session.session_data["session_state"] = state
        await db.upsert_session(sessions[0])
        with pytest.raises(NotSaved, match="both have changed session_data"):
            await db.upsert_session(sessions[1])
        assert await state_of(db) == one


async def test_a_resent_save_is_there_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save whose answers are lost is carried out once, though another worker has saved in between."""
    db = AsyncHoldfastDb(store, on_conflict="merge")
    await db.upsert_session(new(marks=[]))
    mine, other = await db.get_session("s"), await db.get_session("s")
    mine.session_data["session_state"]["marks"].append("mine")
    other.session_data["session_state"]["marks"].append("other")
    kv = db._storage.kv
    batch, lost = kv.batch, iter([True])

    async def losing(**call: Any) -> Any:
        result = await batch(**call)
        if next(lost, False):
            await db.upsert_session(other)
            raise holdfast.OutcomeUnknown("the answer was lost")
        return result

    monkeypatch.setattr(kv, "batch", losing)
    await db.upsert_session(mine)
    assert sorted((await state_of(db))["marks"]) == ["mine", "other"]
    run = RunOutput(run_id="r", agent_id="x")
    lost = iter([True, False])
    other = await db.get_session("s")
    await db.upsert_run(run, "s")
    await db.upsert_run(run, "s")
    assert len(await db.get_runs("s")) == 1
    memory = await db.upsert_user_memory(UserMemory(memory="plums", memory_id="m", user_id="ada"))
    for text in ("pears", "x" * 100_000):
        memory.memory, lost = text, iter([True])
        memory = await db.upsert_user_memory(memory)
        assert (await db.get_user_memory("m")).memory == text


async def test_a_resent_save_brings_no_deleted_session_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is deleted while a save of it is sent again stays deleted, and the save is refused."""
    db, other = AsyncHoldfastDb(store, on_conflict="merge"), AsyncHoldfastDb(store)
    await db.upsert_session(new(marks=[]))
    mine = await db.get_session("s")
    mine.session_data["session_state"]["marks"].append("mine")
    batch, calls = KV.batch, 0

    async def losing(kv: KV, *given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise holdfast.OutcomeUnknown("the request was lost")
        if calls == 2:
            await other.delete_session("s")
        return await batch(kv, *given, **more)

    monkeypatch.setattr(KV, "batch", losing)
    with pytest.raises(NotSaved, match="deleted"):
        await db.upsert_session(mine)
    assert await other.get_session("s") is None


@pytest.mark.parametrize("how", ["delete", "clear"])
async def test_a_memory_that_is_saved_while_it_is_deleted_is_found(
    store: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker saves it anew right after it is gone: it is listed, and found by its id as well."""
    db, other = AsyncHoldfastDb(store), AsyncHoldfastDb(store)
    await db.upsert_user_memory(UserMemory("old", "m", user_id="ada"))
    batch = KV.batch
    batches = 0

    async def then_saved(kv: KV, *given: Any, **more: Any) -> Any:
        nonlocal batches
        batches += 1
        result = await batch(kv, *given, **more)
        if batches == 1:
            await other.upsert_user_memory(UserMemory("new", "m", user_id="ada"))
        return result

    monkeypatch.setattr(KV, "batch", then_saved)
    await (db.delete_user_memory("m") if how == "delete" else db.clear_memories())
    assert [memory.memory for memory in await db.get_user_memories()] == ["new"]
    assert (await db.get_user_memory("m")).memory == "new"
    await db.delete_user_memory("m")
    assert await db.get_user_memories() == []


async def test_what_is_deleted_between_a_listing_and_a_read_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large sessions, runs and memories that another worker removes meanwhile are not in the list."""
    db = AsyncHoldfastDb(store)
    read = Records.read

    async def after_all_is_gone(records: Records, entry: Any) -> Any:
        monkeypatch.setattr(Records, "read", read)
        await db.delete_session("s")
        await db.clear_memories()
        return await records.read(entry)

    for listing in (db.get_sessions, db.get_runs, db.get_user_memories):
        await db.upsert_session(new(text=LARGE))
        await db.upsert_run(RunOutput(run_id="r", agent_id="x", content=LARGE), "s", "ada")
        await db.upsert_user_memory(UserMemory(LARGE, "m", user_id="ada"))
        monkeypatch.setattr(Records, "read", after_all_is_gone)
        assert await listing() == []


async def test_sessions_without_a_time_are_listed_with_the_oldest() -> None:
    """A session whose time another program has removed can be told from others by time all the same."""
    async with holdfast.open("memory://") as store:
        db = AsyncHoldfastDb(store)
        await db.upsert_session(new())
        [key] = (await store.kv("agno").list()).keys
        entry = await store.kv("agno").get(key)
        assert entry is not None
        entry.value["fields"]["created_at"] = None
        await store.kv("agno").set(key, entry.value)
        assert len(await db.get_sessions(end_timestamp=1)) == 1
        assert await db.get_sessions(start_timestamp=1) == []


async def test_a_memory_that_was_deleted_does_not_come_back(store: Store) -> None:
    """Who has read a memory before another worker deleted it can't save it any more."""
    db = AsyncHoldfastDb(store)
    memory = await db.upsert_user_memory(UserMemory("plums", "m", user_id="ada"))
    await db.delete_user_memory("m")
    memory.memory = "pears"
    with pytest.raises(holdfast.VersionConflict, match="deleted since it was read"):
        await db.upsert_user_memory(memory)
    assert await db.get_user_memory("m") is None


async def test_memories(store: Store) -> None:
    """Memories are found by user, topic and text; a change of an outdated one is refused."""
    db = AsyncHoldfastDb(store)
    for number, user in enumerate(("ada", "ada", "bob", None)):
        await db.upsert_user_memory(
            UserMemory(
                f"Likes {number}", f"m{number}", [f"t{number % 2}", "all"], user, created_at=number + 1
            )
        )

    async def ids(**wanted: Any) -> list[str]:
        return [memory.memory_id for memory in await db.get_user_memories(**wanted)]

    assert await ids() == ["m0", "m1", "m2", "m3"]
    assert await ids(user_id="ada") == ["m0", "m1"]
    assert await ids(user_id="") == []
    assert await ids(topics=["t1", "all"], sort_by="created_at", limit=1) == ["m3"]
    assert await ids(search_content="LIKES 2") == ["m2"]
    assert sorted(await db.get_all_memory_topics("bob")) == ["all", "t0"]
    stats, count = await db.get_user_memory_stats()
    assert ([(one["user_id"], one["total_memories"]) for one in stats], count) == (
        [("bob", 1), ("ada", 2)],
        2,
    )
    early, late = [await db.get_user_memory("m0", user_id="ada") for _ in range(2)]
    assert await db.get_user_memory("m0", user_id="bob") is None
    early.memory = LARGE
    await db.upsert_user_memory(early)
    with pytest.raises(holdfast.VersionConflict, match="m0"):
        await db.upsert_user_memory(late)
    await db.upsert_user_memory(UserMemory("From nothing", "m0", user_id="bob"))
    memory = await db.get_user_memory("m0")
    assert (memory.memory, memory.user_id, memory.created_at) == ("From nothing", "ada", 1)
    await db.delete_user_memories(["m0", "m1"], user_id="bob")
    await db.delete_user_memory("m0")
    assert await ids() == ["m1", "m2", "m3"]
    await db.clear_memories()
    assert (await store.kv("agno").list()).keys == []


async def test_agents_share_a_session(store: Store) -> None:
    """Agents that meet in a session merge, refuse loudly or wait, as the database says."""
    merging = AsyncHoldfastDb(store, on_conflict="merge")
    meet = asyncio.Barrier(2)
    await agent(merging, "0").arun("Hello", session_id="m")
    await asyncio.gather(*(agent(merging, mark, meet.wait).arun("Hi", session_id="m") for mark in "ab"))
    assert sorted((await state_of(merging, "m"))["marks"]) == ["0", "a", "b"]
    assert len((await merging.get_session("m")).runs) == 3
    db = AsyncHoldfastDb(store, plugin="strict")
    await agent(db, "0").arun("Hello", session_id="s")
    runs = [agent(db, mark, meet.wait).arun("Hi", session_id="s") for mark in "ab"]
    results = await asyncio.gather(*runs, return_exceptions=True)
    refused = [one for one in results if isinstance(one, NotSaved)]
    assert len(refused) == 1
    assert len((await state_of(db))["marks"]) == 2

    async def wait_for_the_turn(mark: str) -> None:
        async with db.turn("s", wait=30):
            await agent(db, mark).arun("Hi", session_id="s")

    await asyncio.gather(*(wait_for_the_turn(mark) for mark in "cdef"))
    assert sorted((await state_of(db))["marks"])[-4:] == ["c", "d", "e", "f"]


async def work(store: Store, name: str) -> None:
    """Work as a process does: run an agent in a session that others run in too, and remember."""
    db = AsyncHoldfastDb(store, on_conflict="merge", owner=name)
    for number in range(3):
        await agent(db, f"{name}.{number}").arun("Hi", session_id="s")
        await db.upsert_user_memory(UserMemory(f"{name}.{number}", user_id="ada"))


async def check(store: Store, names: list[str]) -> None:
    """Check that all that `work` has done is there once."""
    db = AsyncHoldfastDb(store)
    everything = sorted(f"{name}.{number}" for name in names for number in range(3))
    session = await db.get_session("s")
    assert sorted(session.session_data["session_state"]["marks"]) == everything
    assert sorted(memory.memory for memory in await db.get_user_memories(user_id="ada")) == everything
    assert len({run.run_id for run in session.runs}) == len(everything)


async def prepare(store: Store) -> None:
    """Save the session that `work` runs in."""
    await AsyncHoldfastDb(store).upsert_session(
        AgentSession("s", session_data={"session_state": {"marks": []}})
    )


@pytest.mark.unmeasured
async def test_processes_lose_nothing(ground: Ground) -> None:
    """Processes that run agents in one session lose no state, no run and no memory."""
    async with ground.open() as store:
        await prepare(store)
    await crowd(ground, ["a", "b"], work)
    async with ground.open() as store:
        await check(store, ["a", "b"])


@pytest.mark.unmeasured
def test_ten_processes_lose_nothing(tmp_path: Path) -> None:
    """Ten processes on one file lose no state, no run and no memory."""
    names = [f"p{number}" for number in range(10)]

    async def alone(task: Callable[[Store, Any], Any], names: Any) -> None:
        async with holdfast.open(str(tmp_path / "s.db")) as store:
            await task(store, names)

    asyncio.run(alone(lambda store, _: prepare(store), None))
    workers = []
    for name in names:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(alone(work, name))
                os._exit(0)
            finally:
                os._exit(1)
        workers.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in workers] == [0] * 10
    asyncio.run(alone(check, names))


@pytest.mark.parametrize("on_conflict", ["refuse", "merge"])
def test_a_stopped_worker_overwrites_nothing(tmp_path: Path, on_conflict: Any) -> None:
    """A worker that is stopped in its turn and comes back after its successor is refused, and told so."""
    path, (told, tell) = str(tmp_path / "s.db"), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        with holdfast.sync.open(path) as store:
            db = HoldfastDb(store, on_conflict=on_conflict)
            try:
                with db.turn("s", ttl=0.5):
                    db.upsert_session(new(marks=["first"]))
                    session = db.get_session("s")
                    os.write(tell, b"x")
                    os.kill(os.getpid(), signal.SIGSTOP)
                    session.session_data["session_state"]["marks"].append("late")
                    db.upsert_session(session)
            except NotSaved as error:
                why = holdfast.Fenced if on_conflict == "merge" else holdfast.VersionConflict
                code = 0 if isinstance(error.__cause__, why) else 2
        os._exit(code)
    os.read(told, 1)
    os.waitpid(pid, os.WUNTRACED)
    with holdfast.sync.open(path) as store:
        db = HoldfastDb(store, on_conflict=on_conflict)
        with db.turn("s", ttl=30, wait=30):
            session = db.get_session("s")
            session.session_data["session_state"]["marks"].append("successor")
            db.upsert_session(session)
        os.kill(pid, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert db.get_session("s").session_data["session_state"] == {"marks": ["first", "successor"]}


def test_a_program_without_asyncio(tmp_path: Path) -> None:
    """The same database serves `run` and `arun`, and its sessions are there after a restart."""
    path = str(tmp_path / "s.db")

    def add(run_context: RunContext) -> None:
        assert run_context.session_state is not None
        run_context.session_state["n"] = run_context.session_state.get("n", 0) + 1

    for count in (1, 3):
        with holdfast.sync.open(path) as store:
            db = HoldfastDb(store)
            desk = Agent(model=Parrot(), db=db, pre_hooks=[add], telemetry=False)
            assert desk.run("Hello", session_id="s").session_state == {"n": count}
            answer = asyncio.run(desk.arun("Hello", session_id="s"))
            assert (answer.content, answer.session_state) == ("Hello", {"n": count + 1})
            assert [run.status for run in db.get_session("s").runs] == [RunStatus.completed] * (count + 1)
            with db.turn("s"), pytest.raises(holdfast.Busy), HoldfastDb(store).turn("s", wait=0):
                pass


async def test_what_is_not_served_is_refused(store: Store) -> None:
    """Parts of agno's interface that are not served say so, and never do nothing."""
    db: Any = AsyncHoldfastDb(store)
    with holdfast.sync.open("memory://") as other:
        plain: Any = HoldfastDb(other)
        for base, made in ((BaseDb, plain), (AsyncBaseDb, db)):
            served = {name for name in vars(base) if not name.startswith("_")} & set(
                vars(type(db).__mro__[1])
            )
            refused = 0
            for name in served:
                method = getattr(made, name)
                if getattr(method, "__wrapped__", None) is None and name != "from_dict":
                    with pytest.raises(holdfast.Unsupported, match=name):
                        method()
                    refused += 1
            assert refused > 100
        with pytest.raises(holdfast.Unsupported, match="registry"):
            HoldfastDb.from_dict(plain.to_dict())
        with pytest.raises(NotImplementedError):
            plain.create_eval_run(None)
        assert plain.update_approval_run_status("r", RunStatus.completed) == 0
        assert plain.table_exists("agno_sessions") is True
        with pytest.raises(holdfast.ValidationError, match="AsyncHoldfastDb"):
            HoldfastDb(store)  # type: ignore[arg-type]
        with pytest.raises(holdfast.ValidationError, match="merge"):
            HoldfastDb(other, on_conflict="overwrite")  # type: ignore[arg-type]
    with pytest.raises(holdfast.ValidationError, match="JSON"):
        await db.upsert_run({"run_id": "r", "x": object()}, "s")
