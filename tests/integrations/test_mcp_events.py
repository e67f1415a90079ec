"""The event store of the MCP SDK, on every ground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp.server.lowlevel import Server
from mcp_types import JSONRPCNotification

import holdfast
from holdfast.integrations.mcp import HoldfastEventStore, HoldfastSessionManager
from tests.integrations.crowd import crowd

if TYPE_CHECKING:
    from mcp.server.streamable_http import EventMessage

    from holdfast.store import Store
    from tests.integrations.grounds import Ground


def message(text: str) -> JSONRPCNotification:
    """A notification."""
    return JSONRPCNotification(jsonrpc="2.0", method="say", params={"text": text})


async def replayed(events: HoldfastEventStore, after: str) -> tuple[str | None, list[tuple[Any, str | None]]]:
    """The stream that a client resumes, with texts and ids of the messages that it gets."""
    sent: list[EventMessage] = []

    async def send(event: EventMessage) -> None:
        sent.append(event)

    stream = await events.replay_events_after(after, send)
    texts = [(one.message.params["text"], one.event_id) for one in sent]  # type: ignore[index, union-attr]
    return stream, texts


async def test_a_stream_is_resumed_after_an_event(store: Store) -> None:
    """A client gets what follows the event that it names, of its own stream, in order, large or small."""
    events = HoldfastEventStore(store.kv("mcp"), "s")
    texts = ["one", 'é\\"\n' * 100_000, "three"]
    stream_id = "7/\u00e9 \n-"
    first = await events.store_event(stream_id, None)
    ids = []
    for text in texts:
        await events.store_event("other", message("no"))
        ids.append(await events.store_event(stream_id, message(text)))
    assert all(one.isascii() and one.isprintable() for one in ids)
    whole = list(zip(texts, ids, strict=True))
    again = HoldfastEventStore(store.kv("mcp"), "s")
    assert await replayed(again, first) == (stream_id, whole)
    assert await replayed(again, ids[1]) == (stream_id, whole[2:])
    assert await replayed(again, ids[2]) == (stream_id, [])
    assert await replayed(again, first.split("-")[0] + "-other") == (None, [])
    await again.clear()
    assert await replayed(again, first) == (None, [])


async def test_a_message_that_began_before_the_event_is_whole(store: Store) -> None:
    """A large message comes whole to a client that has seen a small one, stored between its parts."""
    kv = store.kv("mcp")
    events, others = HoldfastEventStore(kv, "s"), HoldfastEventStore(kv, "s")
    ids: list[str] = []

    async def between(**given: Any) -> Any:
        done = await batch(**given)
        if len(ids) < 2:
            ids.append(await others.store_event("1", message(f"small {len(ids)}")))
        return done

    slow = store.kv("mcp")
    batch, slow.batch = slow.batch, between  # type: ignore[method-assign]
    large = "x" * 500_000
    last = await HoldfastEventStore(slow, "s").store_event("1", message(large))
    assert await replayed(events, ids[0]) == ("1", [("small 1", ids[1]), (large, last)])
    assert await replayed(events, ids[1]) == ("1", [(large, last)])
    assert await replayed(events, last) == ("1", [])


async def test_unknown_events_resume_nothing(store: Store) -> None:
    """A client that names an event of another session, or none, gets nothing."""
    kv = store.kv("mcp")
    mine, theirs = HoldfastEventStore(kv, "s"), HoldfastEventStore(kv, "t")
    first = await theirs.store_event("1", None)
    await theirs.store_event("1", message("secret"))
    for name in (first, "", "1", "x-1", "99-1", "-1-1", "1-" + "x" * 5_000):
        assert await replayed(mine, name) == (None, [])


async def test_old_events_are_removed(store: Store) -> None:
    """A session keeps about as many events as it was told to, and says so to a client that comes too late."""
    events = HoldfastEventStore(store.kv("mcp"), "s", keep=3)
    ids = [await events.store_event("1", message(str(number))) for number in range(6)]
    assert await replayed(events, ids[0]) == (None, [])
    assert [text for text, _ in (await replayed(events, ids[3]))[1]] == ["4", "5"]


async def test_a_session_has_one_log(store: Store) -> None:
    """However many streams a session has, the store keeps the last number of one log for it."""
    kv = store.kv("mcp")
    events = HoldfastEventStore(kv, "s")
    for number in range(5):
        await events.store_event(str(number), message("x"))
    assert len({key.rpartition("/")[0] for key in (await kv.list("")).keys}) == 1


async def test_planted_events_are_refused(store: Store) -> None:
    """An entry that holds no part of a message gives an error that names it."""
    kv = store.kv("mcp")
    events = HoldfastEventStore(kv, "s")
    first = await events.store_event("1", None)
    await events.store_event("1", message("x"))
    [_, key] = (await kv.list("stream/")).keys
    part = {"stream": (await kv.get(key)).value["stream"], "message": "m", "text": "{}", "last": True}  # type: ignore[union-attr]
    for value in (1, {"message": "m"}, part):
        await kv.set(key, value)
        with pytest.raises(holdfast.ValidationError, match="stream/"):
            await replayed(events, first)


async def test_each_session_has_events_of_its_own(store: Store) -> None:
    """The manager gives every session an event store in which no other session's events are found."""
    manager = HoldfastSessionManager(Server("test"), store.kv("mcp"), retry_interval=5)
    one, two = manager.event_store, manager.event_store
    assert isinstance(one, HoldfastEventStore)
    assert isinstance(two, HoldfastEventStore)
    first = await one.store_event("1", None)
    last = await one.store_event("1", message("mine"))
    assert await replayed(one, first) == ("1", [("mine", last)])
    assert await replayed(two, first) == (None, [])


async def say(store: Store, name: str) -> None:
    """Store events as a process does."""
    events = HoldfastEventStore(store.kv("mcp"), "s")
    for number in range(5):
        await events.store_event("1", message(f"{name}.{number} {'x' * 10_000}"))


@pytest.mark.unmeasured
async def test_processes_lose_nothing(ground: Ground) -> None:
    """Events that two processes store in one stream are all there, each one's in its order."""
    async with ground.open() as store:
        first = await HoldfastEventStore(store.kv("mcp"), "s").store_event("1", None)
    await crowd(ground, ["a", "b"], say)
    async with ground.open() as store:
        _, sent = await replayed(HoldfastEventStore(store.kv("mcp"), "s"), first)
    for name in "ab":
        mine = [text.split()[0] for text, _ in sent if text.startswith(name)]
        assert mine == [f"{name}.{number}" for number in range(5)]
    assert len(sent) == 10
