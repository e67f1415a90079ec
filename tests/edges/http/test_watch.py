"""Watches over HTTP: every change once and in order, across reconnects, and no client holds up the store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.http import watches as module
from holdfast.edges.http.connections import HttpLimits
from holdfast.edges.nats.service import Settings
from tests.edges.http.ground import Served, served
from tests.edges.nats.ground import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WATCH = "/v1/kv/trivia?watch"
PATIENCE = 20.0


class Stream:
    """The events of a stream, one after the other."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        """The next event; a comment is one with the name `comment`."""
        event: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if not line and event:
                    return event
                name, _, said = line.partition(": ")
                event[name or "comment"] = json.loads(said) if name == "data" else said
        return {"end": True}


@contextlib.asynccontextmanager
async def watching_at(here: Served, path: str = WATCH, **headers: str) -> AsyncIterator[Stream]:
    """A stream that has begun."""
    named = {name.replace("_", "-"): said for name, said in headers.items()}
    async with here.client.stream("GET", path, headers=named) as response:
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
        stream = Stream(response.aiter_lines())
        assert await stream.next() == {"comment": "watching"}
        yield stream


async def test_changes_come_as_events(here: Served) -> None:
    """Each change is an event named after what happened, with its version as the id and no value."""
    kv = here.store.kv("trivia")
    await kv.set("before", 1)
    async with watching_at(here) as stream:
        await kv.set("a", "secret", writer="alice:1")
        await kv.delete("a")
        first, second = await stream.next(), await stream.next()
    assert (first["event"], first["id"], first["data"]["key"]) == ("set", "2", "a")
    assert (first["data"]["last_writer"], "value" in first["data"]) == ("alice:1", False)
    assert (second["event"], second["id"]) == ("deleted", "3")


async def test_a_stream_is_resumed(here: Served) -> None:
    """A client that comes back with the last id it saw gets all that it missed, once."""
    kv = here.store.kv("trivia")
    async with watching_at(here) as stream:
        await kv.set("a", 1)
        seen = (await stream.next())["id"]
    await kv.set("b", 2)
    await kv.set("c", 3)
    async with watching_at(here, Last_Event_ID=seen) as stream:
        assert [(await stream.next())["data"]["key"] for _ in range(2)] == ["b", "c"]
    async with watching_at(here, f"{WATCH}&since=0") as stream:
        assert [(await stream.next())["data"]["key"] for _ in range(3)] == ["a", "b", "c"]


async def test_the_last_id_counts_more_than_where_the_stream_began(here: Served) -> None:
    """A browser comes back to the address with `since` in it and says what it saw since: nothing is repeated.

    The id may also be the older one, of a client that keeps its own place.
    """
    kv = here.store.kv("trivia")
    for key in "abc":
        await kv.set(key, 1)
    for since, last, keys in ((0, "2", ["c"]), (3, "1", ["b", "c"])):
        async with watching_at(here, f"{WATCH}&since={since}", Last_Event_ID=last) as stream:
            assert [(await stream.next())["data"]["key"] for _ in keys] == keys


@pytest.mark.parametrize("said", ["", "x", "-1", "1.5", "\u00b2", "9" * 20])
async def test_a_last_id_that_is_no_version_is_refused(here: Served, said: str) -> None:
    """A client that says what it can't have seen learns that, instead of a watch from anywhere."""
    response = await here.client.get(f"{WATCH}&since=0", headers={b"Last-Event-ID": said.encode("latin-1")})
    assert (response.status_code, response.json()["field"]) == (400, "last_event_id")


async def test_a_prefix_and_a_project(here: Served) -> None:
    """A watch may be of a prefix, and of a tenant's project, whose keys are whole."""
    kv, web = here.store.kv("trivia"), here.store.semantic("acme", "web")
    async with watching_at(here, f"{WATCH}=true&prefix=game%3A") as stream:
        await kv.set("other", 1)
        await kv.set("game:1", 1)
        assert (await stream.next())["data"]["key"] == "game:1"
    async with watching_at(here, "/v1/semantic/acme/web?watch") as stream:
        await web.set("a", 1)
        assert (await stream.next())["data"]["key"] == "tenant/acme/project/web/a"


async def test_a_gap_is_told(here: Served) -> None:
    """A client whose place is no longer in the journal learns that it missed something."""
    kv = here.store.kv("trivia")
    await kv.set("a", 1)
    async with watching_at(here, Last_Event_ID="99") as stream:
        gap = await stream.next()
        assert (gap["event"], gap["data"]["op"], int(gap["id"]) < 99) == ("gap", "gap", True)
        assert (await stream.next())["data"]["key"] == "a"


async def test_a_pruned_journal_is_told(bus: str, tmp_path: Path) -> None:
    """What upkeep has dropped from the journal is a gap, from which the client goes on."""
    clock = ManualClock()
    async with served(tmp_path / "state.db", bus, clock=clock) as here:
        kv = here.store.kv("trivia")
        await here.store.set_policy("kv/trivia", holdfast.Policy(journal_retention=60))
        for number in range(5):
            await kv.set("a", number)
        clock.advance(3_600)
        await here.store.upkeep()
        await kv.set("b", 1)
        async with watching_at(here, Last_Event_ID="1") as stream:
            assert (await stream.next())["event"] == "gap"
            assert (await stream.next())["data"]["key"] == "b"


async def test_silence_has_a_heartbeat(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment now and then shows client and proxies that a silent stream is alive."""
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.02)
    async with watching_at(here) as stream:
        assert [await stream.next() for _ in range(3)] == [{"comment": "alive"}] * 3
        await here.store.kv("trivia").set("a", 1)
        while "data" not in (event := await stream.next()):
            pass
        assert event["data"]["key"] == "a"


async def test_a_client_that_does_not_read_is_cut_off(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that leaves its stream unread is cut off; writers and other watches do not wait for it."""
    monkeypatch.setattr(module, "READ_SECONDS", 0.2)
    kv, where = here.store.kv("trivia"), urlsplit(here.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, (where.hostname, where.port))
        await asyncio.get_running_loop().sock_sendall(
            deaf, f"GET {WATCH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        watches = here.api._watches._of
        await until(lambda: watches.total() == 1)
        async with watching_at(here) as stream:
            writing = asyncio.create_task(_flood(kv))
            seen = 0
            while watches.total() > 1:
                assert not writing.done(), writing
                await stream.next()
                seen += 1
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    assert seen > 0
    await until(lambda: watches.total() == 0)


async def _flood(kv: holdfast.KV) -> None:
    while True:
        await kv.set_many([{"key": f"{'k' * 200}{number}", "value": 0} for number in range(200)])


async def test_a_client_that_goes_is_forgotten(here: Served) -> None:
    """When a client ends its connection, nothing of its watch is left."""
    async with watching_at(here):
        assert here.api._watches._of == {"trivia": 1}
    await until(lambda: here.api._watches._of == {})


async def test_watches_are_bounded(bus: str, tmp_path: Path) -> None:
    """A plugin that opens watches without end is told that it has too many; another gets its own."""
    limits = HttpLimits(watches=4)
    async with served(tmp_path / "state.db", bus, limits=limits) as here, watching_at(here):
        refused = await here.ask("GET", WATCH)
        assert (refused.status_code, refused.json()["code"]) == (503, "BUSY")
        async with watching_at(here, "/v1/kv/other?watch"):
            pass


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"{WATCH}&since=x", {}),
        (f"{WATCH}&prefix=%00", {}),
        (WATCH, {"Last_Event_ID": "x"}),
        (WATCH, {"Last_Event_ID": "-1"}),
    ],
)
async def test_a_wrong_start_is_refused(here: Served, path: str, headers: dict[str, str]) -> None:
    """A watch that can't begin is refused with a problem before a stream begins."""
    refused = await here.ask("GET", path, **headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")


async def test_a_watch_counts_against_the_rate(bus: str, tmp_path: Path) -> None:
    """To begin a watch is a request of its plugin like any other."""
    async with served(tmp_path / "state.db", bus, settings=Settings(rate=1)) as here, watching_at(here):
        assert (await here.ask("GET", WATCH)).status_code == 429


async def test_a_token_needs_changes_to_watch(bus: str, tmp_path: Path) -> None:
    """A token that may list keys may not watch them, unless it allows watch."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        tokens = here.store.tokens()
        lists = (await tokens.create(plugin="trivia", verbs=["list"])).token
        watches = (await tokens.create(plugin="trivia", verbs=["watch"])).token
        assert (await here.ask("GET", WATCH, Authorization=f"Bearer {lists}")).status_code == 403
        async with watching_at(here, Authorization=f"Bearer {watches}"):
            pass


async def _is_ended(stream: Stream) -> None:
    """Check that a stream says why it ends, soon after its token did."""
    began = time.monotonic()
    assert await stream.next() == {"comment": "the token has expired or been revoked"}
    assert await stream.next() == {"end": True}
    assert time.monotonic() - began < 15  # a second, and patience for a busy machine


@pytest.mark.parametrize("cookie", [False, True])
async def test_a_watch_ends_when_its_token_is_revoked(bus: str, tmp_path: Path, cookie: bool) -> None:
    """A watch is over within a second of the end of its token, also if a session stands for the token."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        tokens = here.store.tokens()
        made, other = await tokens.create(plugin="trivia"), await tokens.create(plugin="trivia")
        headers = {"Authorization": f"Bearer {made.token}"}
        if cookie:
            headers = {"Cookie": f"holdfast-{urlsplit(here.url).port}={here.sessions.open(made.token)}"}
        async with (
            watching_at(here, **headers) as stream,
            watching_at(here, Authorization=f"Bearer {other.token}") as spared,
        ):
            await here.store.kv("trivia").set("a", 1)
            assert (await stream.next())["event"] == "set"
            await tokens.revoke(made.about.id)
            await _is_ended(stream)
            await here.store.kv("trivia").set("b", 1)
            assert [(await spared.next())["data"]["key"] for _ in range(2)] == ["a", "b"]
        assert (await here.ask("GET", WATCH, **headers)).status_code == 401


async def test_a_watch_ends_when_its_token_expires(bus: str, tmp_path: Path) -> None:
    """A watch does not outlive the time for which its token was made."""
    clock = ManualClock()
    async with served(tmp_path / "state.db", bus, open_mode=False, clock=clock) as here:
        made = await here.store.tokens().create(plugin="trivia", ttl=60)
        async with watching_at(here, Authorization=f"Bearer {made.token}") as stream:
            clock.advance(61)
            await _is_ended(stream)


async def test_a_watch_ends_when_another_instance_revokes_its_token(bus: str, pg_url: str) -> None:
    """It does not matter which instance of a service is told that a token has ended."""
    async with (
        served(pg_url, bus, open_mode=False) as one,
        served(pg_url, bus, open_mode=False) as other,
    ):
        made = await one.store.tokens().create(plugin="trivia")
        async with watching_at(one, Authorization=f"Bearer {made.token}") as stream:
            await other.store.tokens().revoke(made.about.id)
            await _is_ended(stream)


async def test_a_watch_ends_with_its_session(bus: str, tmp_path: Path) -> None:
    """Who logs out of the console sees no more changes, by a link's session too."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        cookie = here.sessions.redeem(here.sessions.link()) or ""
        named = f"holdfast-{urlsplit(here.url).port}={cookie}"
        async with watching_at(here, Cookie=named) as stream:
            await here.store.kv("trivia").set("a", 1)
            assert (await stream.next())["event"] == "set"
            here.sessions.end(cookie)
            await _is_ended(stream)


async def test_a_stuck_watch_is_cut_off_with_its_token(
    bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that leaves its stream unread does not keep it beyond the end of its token."""
    monkeypatch.setattr(module, "READ_SECONDS", 600)
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        kv, where = here.store.kv("trivia"), urlsplit(here.url)
        made = await here.store.tokens().create(plugin="trivia")
        head = f"GET {WATCH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {made.token}\r\n\r\n"
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, (where.hostname, where.port))
            await asyncio.get_running_loop().sock_sendall(deaf, head.encode())
            watches = here.api._watches._of
            await until(lambda: watches.total() == 1)
            for _ in range(20):
                await kv.set_many([{"key": f"{'k' * 200}{number}", "value": 0} for number in range(200)])
            await here.store.tokens().revoke(made.about.id)
            await until(lambda: watches.total() == 0)


async def test_a_stream_ends_with_the_service(bus: str, tmp_path: Path) -> None:
    """When the store closes, the stream is ended in order, so that the client comes back elsewhere."""
    async with served(tmp_path / "state.db", bus) as here, watching_at(here) as stream:
        closing = asyncio.create_task(here.store.aclose())
        assert await stream.next() == {"end": True}
        await closing
