"""The session of the OpenAI Agents SDK, on every ground."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from agents import Agent, RunConfig, Runner
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message

import holdfast
from holdfast.integrations import overflow_values
from holdfast.integrations.openai_agents import HoldfastCompactionSession, HoldfastSession
from tests.forking import ForkedProcess
from tests.integrations.session_process import TURNS, talk

if TYPE_CHECKING:
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

LONG: Final = "session " * 100 + "\x00/%#"


def item(text: object) -> Any:
    """A user's message."""
    return {"role": "user", "content": f"{text}"}


def texts(items: list[Any]) -> list[str]:
    """The contents of messages."""
    return [one["content"] for one in items]


async def test_items_come_back_in_order(store: Store) -> None:
    """Items come back in the order in which they were added, sessions apart, whatever their names are."""
    session, other = HoldfastSession(LONG, store.kv("desk")), HoldfastSession("other", store.kv("desk"))
    assert isinstance(session, Session)
    assert await session.get_items() == []
    await session.add_items([])
    await session.add_items([item(1), item(2)])
    await other.add_items([item("other")])
    await session.add_items([item(3)])
    assert texts(await session.get_items()) == ["1", "2", "3"]
    assert texts(await HoldfastSession(LONG, store.kv("desk")).get_items()) == ["1", "2", "3"]
    assert texts(await other.get_items()) == ["other"]


async def test_limit_returns_the_latest_items(store: Store) -> None:
    """A limit gives the latest items, the oldest of them first; a call's limit precedes the settings'."""
    settings = SessionSettings(limit=2)
    session = HoldfastSession("s", store.kv("desk"), session_settings=settings)
    await session.add_items([item(number) for number in range(5)])
    assert texts(await session.get_items()) == ["3", "4"]
    assert texts(await session.get_items(3)) == ["2", "3", "4"]
    assert texts(await session.get_items(9)) == ["0", "1", "2", "3", "4"]
    assert await session.get_items(0) == []


async def test_pop_takes_the_latest_and_clear_takes_all(store: Store) -> None:
    """Popping takes the latest item; after clearing a session begins anew and leaves nothing behind."""
    kv = store.kv("desk")
    session = HoldfastSession("s", kv)
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([item(1), item(2)])
    assert await session.pop_item() == item(2)
    await session.add_items([item(3)])
    assert texts(await session.get_items()) == ["1", "3"]
    await session.clear_session()
    assert (await kv.list()).keys == []
    assert await session.get_items() == []
    await session.add_items([item(4)])
    assert texts(await session.get_items()) == ["4"]


async def test_more_items_than_a_batch_are_added_in_order(store: Store) -> None:
    """More items than fit into one batch are added in order."""
    session = HoldfastSession("s", store.kv("desk"))
    await session.add_items([item(f"{number} {'x' * 400}") for number in range(1_500)])
    assert [text.split()[0] for text in texts(await session.get_items())] == list(map(str, range(1_500)))


async def test_an_item_that_is_too_large_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can not be kept is an error, and the items added with it are not there either."""
    monkeypatch.setattr(overflow_values, "LARGEST", 80_000)
    session = HoldfastSession("s", store.kv("desk"))
    with pytest.raises(holdfast.ValueTooLarge):
        await session.add_items([item(1), item("x" * 70_000), item("x" * 90_000)])
    assert await session.get_items() == []
    assert (await store.blobs("desk").list()).blobs == []


async def test_large_items_keep_their_places(store: Store) -> None:
    """Items far beyond the size of an entry come back in their places, popped or read, and leave nothing."""
    session, long = HoldfastSession("s", store.kv("desk")), "é" * 200_000
    await session.add_items([item(1), item(long), item(2), item(long + "!")])
    assert texts(await session.get_items()) == ["1", long, "2", long + "!"]
    assert await session.pop_item() == item(long + "!")
    assert len((await store.blobs("desk").list()).blobs) == 1
    await session.clear_session()
    assert (await store.blobs("desk").list()).blobs == []
    assert (await store.kv("desk").list()).keys == []


async def test_two_instances_lose_nothing(ground: Ground) -> None:
    """Two programs that add to one session at once lose no item, and each one's items stay in its order."""
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(ground.open())
        two = one if ground.kind == "sqlite" else await stack.enter_async_context(ground.open())

        async def talk(store: Store, name: str) -> None:
            session = HoldfastSession("shared", store.kv("desk"))
            for number in range(15):
                await session.add_items([item(f"{name} {number}"), item(f"{name} {number}b")])

        await asyncio.gather(talk(one, "one"), talk(two, "two"))
        session = HoldfastSession("shared", one.kv("desk"))
        said = texts(await session.get_items())
        for name in ("one", "two"):
            wanted = [f"{name} {number}{half}" for number in range(15) for half in ("", "b")]
            assert [text for text in said if text.startswith(name)] == wanted
        for first, second in zip(said[::2], said[1::2], strict=True):
            assert second == f"{first}b"
        popped = await asyncio.gather(
            *(HoldfastSession("shared", store.kv("desk")).pop_item() for store in (one, two) * 10)
        )
        assert sorted(texts(popped)) == sorted(said[-20:])


@pytest.mark.unmeasured
async def test_two_processes_lose_nothing(pg_url: str) -> None:
    """Each item that two processes add to one session stays or is popped once, and no other is there."""
    other = await ForkedProcess.start(
        "tests.integrations.session_process", pg_url, "far", told=True, near=True
    )
    async with asyncio.timeout(60), holdfast.open(pg_url) as store:
        assert await other.stdout.readline() == b"ready\n"
        popped, (told, _) = await asyncio.gather(talk(store, "near"), other.communicate(b"\n"))
        left = await HoldfastSession("shared", store.kv("desk")).get_items()
    added = [f"{name} {number}{half}" for name in ("near", "far") for number in range(TURNS) for half in "ab"]
    assert sorted(texts([*left, *popped, *json.loads(told)])) == sorted(added)
    for name in ("near", "far"):
        said = [text for text in texts(left) if text.startswith(name)]
        assert said == [text for text in added if text in said]


async def test_settings_may_be_a_dictionary(store: Store) -> None:
    """Settings are given as the SDK's own sessions take them; what is no setting is refused."""
    given: Any = {"limit": 1}
    session = HoldfastSession("s", store.kv("desk"), session_settings=given)
    await session.add_items([item(1), item(2)])
    assert texts(await session.get_items()) == ["2"]
    with pytest.raises(TypeError):
        HoldfastSession("s", store.kv("desk"), session_settings={"limitt": 1})


async def test_agent_sees_earlier_runs_of_its_session(store: Store) -> None:
    """A run sees what earlier runs of its session have said, through another session object."""
    model = ScriptedModel([[assistant_message("San Francisco")], [assistant_message("California")]])
    agent = Agent(name="guide", model=model)
    for question in ("Where is the bridge?", "In which state?"):
        session = HoldfastSession("s", store.kv("desk"))
        await Runner.run(agent, question, session=session, run_config=RunConfig(tracing_disabled=True))
    history = await HoldfastSession("s", store.kv("desk")).get_items()
    assert [one.get("role") for one in history] == ["user", "assistant", "user", "assistant"]


async def test_items_of_a_request_are_added_once(store: Store) -> None:
    """A call that is made again with its request id adds nothing, however many items it has."""
    session, many = HoldfastSession("s", store.kv("desk")), [item(number) for number in range(1_200)]
    for _ in range(2):
        await session.add_items([item("a"), item("é" * 60_000)], request_id="one")
        await HoldfastSession("s", store.kv("desk")).add_items(many, request_id="many")
    await session.add_items([item("b")], request_id="two")
    assert texts(await session.get_items()) == ["a", "é" * 60_000, *texts(many), "b"]
    assert len((await store.blobs("desk").list()).blobs) == 1


async def test_replacing_keeps_what_was_added_since(store: Store) -> None:
    """A summary takes the place of the items that it was made from; later ones follow it."""
    session, other = HoldfastSession("s", store.kv("desk")), HoldfastSession("s", store.kv("desk"))
    await session.add_items([item(1), item("é" * 60_000)])
    taken = await session.snapshot()
    assert len(taken.items) == 2
    await other.add_items([item(3), item("è" * 60_000)])
    await session.replace_items([item("summary")], since=taken.head)
    assert texts(await other.get_items()) == ["summary", "3", "è" * 60_000]
    with pytest.raises(holdfast.VersionConflict):
        await other.replace_items([item("second summary")], since=taken.head)
    assert texts(await other.get_items()) == ["summary", "3", "è" * 60_000]
    assert len((await store.kv("desk").list("item/")).keys) == 1
    assert len((await store.kv("desk").list("log/")).keys) == 2
    assert len((await store.blobs("desk").list()).blobs) == 1


async def test_replacing_what_was_removed_is_refused(store: Store) -> None:
    """If an item was popped, or all were cleared, a summary of what was there is not stored."""
    session = HoldfastSession("s", store.kv("desk"))
    await session.add_items([item(1), item(2)])
    taken = await session.snapshot()
    await session.pop_item()
    await session.add_items([item(3)])
    with pytest.raises(holdfast.VersionConflict):
        await session.replace_items([item("summary")], since=taken.head)
    taken = await session.snapshot()
    await session.clear_session()
    with pytest.raises(holdfast.VersionConflict):
        await session.replace_items([item("summary")], since=taken.head)
    assert await session.get_items() == []
    empty = await session.snapshot()
    await session.replace_items([item("begun")], since=empty.head)
    with pytest.raises(holdfast.VersionConflict):
        await session.replace_items([item("begun twice")], since=empty.head)
    assert texts(await session.get_items()) == ["begun"]


async def test_runner_compacts_a_long_history(store: Store) -> None:
    """After a run the runner compacts a history that has grown long, and loses no item of another worker."""
    kv = store.kv("desk")

    async def summarized(items: list[Any]) -> list[Any]:
        await HoldfastSession("ada", kv).add_items([item("meanwhile")])
        return [item(f"{len(items)} items")]

    session = HoldfastCompactionSession("ada", kv, compact=summarized, threshold=4, owner="worker 1")
    model = ScriptedModel([[assistant_message("one")], [assistant_message("two")]])
    agent, quiet = Agent(name="a", model=model), RunConfig(tracing_disabled=True)
    await Runner.run(agent, "first", session=session, run_config=quiet)
    assert len(await session.get_items()) == 2
    await Runner.run(agent, "second", session=session, run_config=quiet)
    assert texts(await session.get_items()) == ["4 items", "meanwhile"]
    assert [entry.last_writer for entry in (await kv.list("item/", values=True)).entries or ()] == [
        "worker 1"
    ]


async def test_compaction_that_was_overtaken_changes_nothing(store: Store) -> None:
    """If another worker has cleared the session meanwhile, the summary of what was there is dropped."""
    kv = store.kv("desk")

    async def cleared(items: list[Any]) -> list[Any]:
        await HoldfastSession("ada", kv).clear_session()
        return [item("summary")]

    session = HoldfastCompactionSession("ada", kv, compact=cleared)
    await session.add_items([item(1)])
    await session.run_compaction()
    assert texts(await session.get_items()) == ["1"]
    await session.run_compaction({"force": True})
    assert await session.get_items() == []
    assert (await kv.list()).keys == []


async def test_workers_take_turns(store: Store) -> None:
    """One worker at a time has the turn of a session; one that has lost it can't write any more."""
    kv = store.kv("desk")
    session = HoldfastSession(LONG, kv, owner="worker 1")
    async with session.turn():
        with pytest.raises(holdfast.Busy):
            async with HoldfastSession(LONG, kv).turn(wait=0):
                raise AssertionError("two workers had the turn at once")
        await session.add_items([item(1)])
    turn = session.turn()
    await turn.__aenter__()
    [lock] = [key for key in (await kv.list("lock/")).keys if "/waiting/" not in key]
    await kv.delete(lock)  # as if its time had run out while the worker was stopped
    taken = kv.lock(lock.removeprefix("lock/"))
    assert await taken.acquire(timeout=60)
    head = (await session.snapshot()).head
    for write in (
        session.add_items([item(2)]),
        session.pop_item(),
        session.clear_session(),
        session.replace_items([item("summary")], since=head),
    ):
        with pytest.raises(holdfast.Fenced):
            await write
    with pytest.raises(holdfast.LockLost):
        await turn.__aexit__(None, None, None)
    await taken.release()
    assert texts(await session.get_items()) == ["1"]
    await session.add_items([item(3)])  # a task whose turn is over writes without one


async def test_items_of_unknown_outcome_are_not_added_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a request id nobody knows whether items are there already, so that the caller has to decide."""
    kv = store.kv("desk")
    session = HoldfastSession("s", kv)
    batch = kv.batch

    async def unanswered(**arguments: Any) -> Any:
        await batch(**arguments)
        raise holdfast.OutcomeUnknown("the answer is lost")

    monkeypatch.setattr(kv, "batch", unanswered)
    with pytest.raises(holdfast.OutcomeUnknown):
        await session.add_items([item(1)])
    assert texts(await session.get_items()) == ["1"]


async def test_items_are_those_of_the_newest_head(store: Store) -> None:
    """A worker that has seen an older head reads what has replaced its items since."""
    kv = store.kv("desk")
    session, other = HoldfastSession("s", kv), HoldfastSession("s", kv)
    for number in range(3):
        await other.replace_items([item(number)], since=(await other.snapshot()).head)
        assert texts(await session.get_items()) == [str(number)]
        assert texts(await session.get_items(1)) == [str(number)]


async def test_session_of_an_earlier_version_goes_on(store: Store) -> None:
    """Items that an earlier version has numbered itself are read, added to, popped and replaced."""
    kv = store.kv("desk")

    async def begun(name: str) -> HoldfastSession:
        await kv.set(f"session/{name}", {"items": 2, "run": name, "pops": 1})
        for number in range(2):
            await kv.set(f"item/{name}/{number:012d}", item(number))
        return HoldfastSession(name, kv)

    session = await begun("popped")
    assert texts(await session.get_items()) == ["0", "1"]
    await session.add_items([item(2)])
    assert texts(await session.get_items(2)) == ["1", "2"]
    assert texts([await session.pop_item() for _ in range(2)]) == ["2", "1"]
    await session.add_items([item(3)])
    assert texts(await session.get_items()) == ["0", "3"]

    session = await begun("replaced")
    taken = await session.snapshot()
    await session.add_items([item(2)])
    await session.replace_items([item("summary")], since=taken.head)
    assert texts(await HoldfastSession("replaced", kv).get_items()) == ["summary", "2"]

    session = await begun("cleared")
    await session.add_items([item(2)])
    await session.clear_session()
    assert await session.get_items() == []
    assert not [key for key in (await kv.list()).keys if "cleared" in key]


@pytest.mark.parametrize("replaced", [False, True])
async def test_pop_takes_what_is_the_latest_then(
    store: Store, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """An item that another worker adds while one is being popped is the one that is popped."""
    kv = store.kv("desk")
    session, added = HoldfastSession("s", kv), list[str]()
    await session.add_items([item("first")])
    await session.add_items([item("popped before")])
    await session.pop_item()
    if replaced:
        await session.replace_items([item("first")], since=(await session.snapshot()).head)
    change = session._change

    async def late(*arguments: Any) -> int:
        if not added:
            added.append("late")
            await HoldfastSession("s", kv).add_items([item("late")])
        return await change(*arguments)

    monkeypatch.setattr(session, "_change", late)
    assert await session.pop_item() == item("late")
    assert texts(await session.get_items()) == ["first"]


async def test_cleared_session_is_not_read_in_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader during whose reading another worker clears the session sees none of the old items."""
    kv = store.kv("desk")
    session, cleared = HoldfastSession("s", kv), list[bool]()
    await session.add_items([item(1), item(2)])
    entries = session._entries

    async def clearing(*arguments: Any) -> Any:
        read = await entries(*arguments)
        if not cleared:
            cleared.append(True)
            await HoldfastSession("s", kv).clear_session()
            await HoldfastSession("s", kv).add_items([item(3)])
        return read

    monkeypatch.setattr(session, "_entries", clearing)
    assert texts(await session.get_items()) == ["3"]


async def test_large_item_stays_if_its_writer_dies(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blob of an item survives the sweep, also if its writer was killed right after the commit."""
    kv, long = store.kv("desk"), "é" * 60_000

    async def killed(*_: Any) -> None:
        """Nothing more is written."""

    for settles in (True, False):
        with monkeypatch.context() as patch:
            if not settles:
                patch.setattr(overflow_values.OverflowValues, "settle", killed)
            await HoldfastSession("s", kv).add_items([item(1), item(long)])
    session = HoldfastSession("s", kv)
    for _ in range(40):  # each of these looks at some records, from a random part of all
        await session._values._sweep(datetime.now(UTC) + timedelta(hours=2))
    assert texts(await session.get_items()) == ["1", long, "1", long]
    await session.clear_session()
    assert (await store.blobs("desk").list()).blobs == []
    assert (await kv.list()).keys == []


@pytest.mark.parametrize("by", ["keys", "bytes"])
@pytest.mark.parametrize("size", [10, 70_000])
async def test_a_session_is_cleared_where_nothing_more_fits(size: int, by: str) -> None:
    """In a namespace that has reached its quota a session can be cleared, which makes room."""
    async with holdfast.open("memory://") as store:
        session = HoldfastSession("s", store.kv("p"))
        for _ in range(3):
            await session.add_items([{"role": "user", "content": "x" * size}])
        keys = len((await store.kv("p").list()).keys)
        full = holdfast.Policy(quota_keys=keys) if by == "keys" else holdfast.Policy(quota_bytes=1)
        await store.set_policy("kv/p", full)
        with pytest.raises(holdfast.QuotaExceeded):
            await session.add_items([{"role": "user", "content": "x"}])
        await session.clear_session()
        assert await HoldfastSession("s", store.kv("p")).get_items() == []
        assert (await store.kv("p").list()).keys == []
        assert (await store.blobs("p").list()).blobs == []
