"""Calls in flight when the connection to NATS is lost: a write fails at once, a read is asked again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from nats.aio.msg import Msg

import holdfast
from holdfast.bus import connection as connection_module
from holdfast.bus.errors import ServerComplaint
from holdfast.client.nats import NatsTransport
from holdfast.edges.nats.server import NatsServer
from holdfast.errors import OutcomeUnknown, PermissionDenied, Unavailable
from holdfast.testing.exact import refusal
from tests.edges.nats.ground import PATIENCE, Gated, serving, until
from tests.nats import library_client
from tests.security.middle import Middle, middle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def wire(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Middle]:
    """A wire between a client and its server that can be cut; it is looked for again soon."""
    monkeypatch.setattr(connection_module, "PAUSE_SECONDS", 0.05)
    async with middle(nats_server.port) as who:
        yield who


async def test_a_lost_connection_fails_a_write_in_flight_at_once(
    nats_server: NatsServer, wire: Middle
) -> None:
    """Nobody knows whether it was done, and nobody will: the caller is told so without waiting any longer."""
    engine = Gated()
    async with (
        serving(nats_server.url, engine=engine),
        holdfast.open(f"{wire.url}?timeout=600") as store,
    ):
        kv, tables = store.kv("trivia"), store.tables("trivia")
        await kv.set("k", 0)
        engine.gate.clear()
        writes: list[Any] = [
            kv.set("k", 1),
            kv.incr("n"),
            kv.batch(writes=[{"key": "b", "value": 1}]),
            tables.create_table("scores", partition_key=("user", "string")),
        ]
        calls = [asyncio.ensure_future(write) for write in writes]
        await asyncio.sleep(0)
        await store.ready()
        wire.cut()
        async with asyncio.timeout(PATIENCE):
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [OutcomeUnknown] * 4
        assert all("the connection to NATS was lost" in str(end) for end in ends)
        engine.gate.set()


async def test_a_write_that_was_still_to_be_sent_was_not_made(nats_server: NatsServer, wire: Middle) -> None:
    """When the connection is lost before a request has left the process, the write was certainly not made."""
    async with serving(nats_server.url), holdfast.open(f"{wire.url}?timeout=600") as store:
        kv = store.kv("trivia")
        await kv.set("k", 0)
        transport = store.caller.transport  # type: ignore[union-attr]
        session = transport._client._session
        session.pause_writing()  # as if the server did not read
        calls = [asyncio.ensure_future(call) for call in (kv.set("k", 1), kv.incr("n"))]
        await until(lambda: len(transport._pending) == 2)
        wire.cut()
        async with asyncio.timeout(PATIENCE):
            for call in calls:
                with refusal(Unavailable, says="was sent: nothing was done"):
                    await call
        await until(lambda: transport._client.is_connected)
        entry = await kv.get("k")
        assert entry is not None
        assert entry.value == 0
        assert await kv.get("n") is None


async def test_a_write_that_nobody_heard_was_not_made(wire: Middle, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connection is lost while the client looks for a service, the write was not made all the same."""
    attempt = NatsTransport._attempt

    async def lost(transport: NatsTransport, subject: str, *given: Any, **more: Any) -> Any:
        if subject == "db.ready":
            wire.cut()
        return await attempt(transport, subject, *given, **more)

    monkeypatch.setattr(NatsTransport, "_attempt", lost)
    async with holdfast.open(f"{wire.url}?timeout=600") as store, asyncio.timeout(PATIENCE):
        with refusal(Unavailable, says="no Holdfast service answers"):
            await store.kv("trivia").set("k", 1)


async def test_a_lost_connection_does_not_resend_a_write(nats_server: NatsServer, wire: Middle) -> None:
    """Whether it was done or not, a write reaches the service once."""
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(json.loads(message.data)["key"])

    async with library_client(nats_server.url) as service:
        await service.subscribe("db.>", cb=hear)
        await service.flush()
        async with holdfast.open(f"{wire.url}?timeout=600") as store:
            kv = store.kv("trivia")
            write, read = asyncio.ensure_future(kv.set("w", 1)), asyncio.ensure_future(kv.get("r"))
            await until(lambda: len(heard) == 2)
            wire.cut()
            async with asyncio.timeout(PATIENCE):
                with refusal(OutcomeUnknown):
                    await write
            await until(lambda: len(heard) == 3)
            assert sorted(heard) == ["r", "r", "w"]
            read.cancel()


async def test_reads_in_flight_are_sent_again_after_a_reconnect(
    nats_server: NatsServer, wire: Middle
) -> None:
    """A read that a lost connection left without an answer gets one when the connection is back."""
    engine = Gated()
    async with (
        serving(nats_server.url, engine=engine) as running,
        holdfast.open(f"{wire.url}?timeout=600") as store,
    ):
        kv = store.kv("trivia")
        await kv.set("k", 1)
        engine.gate.clear()
        reads = [asyncio.ensure_future(kv.list()) for _ in range(8)]
        await until(lambda: running.service.requests.under_way == 8)
        wire.cut()
        await until(lambda: running.service.requests.under_way == 16)
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            assert [found.keys for found in await asyncio.gather(*reads)] == [["k"]] * 8


async def test_a_read_waits_until_the_service_has_reconnected_too(
    nats_server: NatsServer, wire: Middle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may be back before the service is: it asks until somebody answers."""
    engine, asked = Gated(), 0
    repeat = NatsTransport._repeat

    def count(transport: NatsTransport, token: str, pending: Any) -> None:
        nonlocal asked
        asked += 1
        repeat(transport, token, pending)

    monkeypatch.setattr(NatsTransport, "_repeat", count)
    async with (
        middle(nats_server.port) as other,
        serving(other.url, engine=engine) as running,
        holdfast.open(f"{wire.url}?timeout=600") as store,
    ):
        kv = store.kv("trivia")
        await kv.set("k", 1)
        engine.gate.clear()
        read = asyncio.ensure_future(kv.list())
        await until(lambda: running.service.requests.under_way == 1)
        other.alter = lambda info: b"-ERR 'not now'\r\n"
        other.cut()
        await until(lambda: not running.client.is_connected)
        wire.cut()
        engine.gate.set()
        await until(lambda: asked > 2)
        assert not read.done()
        other.be_honest()
        async with asyncio.timeout(PATIENCE):
            assert (await read).keys == ["k"]


async def test_a_resent_read_keeps_its_timeout(nats_server: NatsServer, wire: Middle) -> None:
    """Asking again does not make a call longer than it may be."""
    async with library_client(nats_server.url) as service:
        taken = asyncio.Event()

        async def hear(message: Msg) -> None:
            taken.set()

        await service.subscribe("db.>", cb=hear)
        await service.flush()
        async with holdfast.open(f"{wire.url}?timeout=0.3") as store:
            read = asyncio.ensure_future(store.kv("trivia").get("k"))
            async with asyncio.timeout(PATIENCE):
                await taken.wait()
                wire.alter = lambda info: b"-ERR 'gone'\r\n"
                wire.cut()
                with refusal(Unavailable, says="within 0.3 s"):
                    await read
                with refusal(Unavailable, says="no connection"):
                    await store.kv("trivia").get("k")


async def test_a_refusal_ends_only_the_write_that_was_refused(nats_server: NatsServer) -> None:
    """A server that refuses one of two messages leaves open which, so that neither is taken for refused."""
    engine = Gated()
    async with (
        serving(nats_server.url, engine=engine),
        holdfast.open(f"{nats_server.url}?timeout=600") as store,
    ):
        kv, transport = store.kv("trivia"), store.caller.transport  # type: ignore[union-attr]
        refused = ServerComplaint('Permissions Violation for Publish to "db.kv.trivia.set"')
        engine.gate.clear()
        calls = [asyncio.ensure_future(kv.set(f"k{number}", 1)) for number in range(2)]
        await until(lambda: len(transport._pending) == 2)
        transport._on_error(refused)
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            assert [(await call).version for call in calls] == [1, 2]
            engine.gate.clear()
            calls = [asyncio.ensure_future(kv.set(f"k{number}", 1)) for number in range(2)]
            await until(lambda: len(transport._pending) == 2)
            for _ in calls:
                transport._on_error(refused)
            for call in calls:
                with refusal(PermissionDenied, says="does not let this user send to"):
                    await call


async def test_a_lost_inbox_leaves_a_write_unknown(nats_server: NatsServer, wire: Middle) -> None:
    """A user who may no longer listen learns nothing of a write in flight, and is let in again later."""
    engine = Gated()
    async with (
        serving(nats_server.url, engine=engine),
        holdfast.open(f"{wire.url}?timeout=600") as store,
    ):
        kv, transport = store.kv("trivia"), store.caller.transport  # type: ignore[union-attr]
        engine.gate.clear()
        calls: list[Any] = [asyncio.ensure_future(call) for call in (kv.set("k", 1), kv.list())]
        await until(lambda: len(transport._pending) == 2)
        refused = f'Permissions Violation for Subscription to "{transport._inbox}.*"'
        transport._on_error(ServerComplaint(refused))
        async with asyncio.timeout(PATIENCE):
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(end) for end in ends] == [OutcomeUnknown, PermissionDenied]
            engine.gate.set()
            with refusal(PermissionDenied, says="let this user listen"):
                await kv.get("k")
            wire.cut()
            await until(lambda: not transport._client.is_connected)
            await until(lambda: transport._client.is_connected)
            assert await kv.get("k") is not None


async def test_closing_waits_for_a_request_that_is_sent_once_more(nats_server: NatsServer) -> None:
    """A store that is closed while a request is about to be sent again waits for its reply."""
    async with library_client(nats_server.url) as service:
        store = holdfast.open(f"{nats_server.url}?timeout=600")
        await store.__aenter__()
        closing: list[asyncio.Task[None]] = []

        async def begin(message: Msg) -> None:
            if not closing:
                await service.subscribe("db.kv.trivia.get", cb=answer)
                await service.flush()
                closing.append(asyncio.create_task(store.aclose()))
            await message.respond(b'{"success": true, "ready": true}')

        async def answer(message: Msg) -> None:
            await message.respond(b'{"success": true, "exists": false}')

        await service.subscribe("db.ready", cb=begin)
        await service.flush()
        async with asyncio.timeout(PATIENCE):
            assert await store.kv("trivia").get("k") is None
            await closing[0]


async def test_a_program_that_cancels_all_its_tasks_is_connected_again(
    nats_server: NatsServer, wire: Middle
) -> None:
    """A call after the search for a server was cancelled begins it again."""
    async with serving(nats_server.url), holdfast.open(wire.url) as store:
        kv, connection = store.kv("trivia"), store.caller.transport._client  # type: ignore[union-attr]
        await kv.set("k", 1)
        wire.cut()
        await until(lambda: not connection.is_connected)
        search = connection._search
        search.cancel()
        await asyncio.gather(search, return_exceptions=True)
        with refusal(Unavailable, says="there is no connection"):
            await kv.get("k")
        await until(lambda: connection.is_connected)
        assert await kv.get("k") is not None
