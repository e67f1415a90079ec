"""A server that is about to stop is left for another one before it hangs up, and no call is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.bus import connection as module
from holdfast.bus.connection import Connection
from tests.bus.scribe import scribe
from tests.edges.nats.ground import PATIENCE, Gated, serving, until
from tests.nats import nats_server
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.bus.protocol import Message
    from holdfast.edges.nats.server import NatsServer

CONFIG = """
lame_duck_duration: "30s"
lame_duck_grace_period: "2s"
cluster {{ name: ducks, listen: "127.0.0.1:{own}", routes: ["nats://127.0.0.1:{other}"] }}
"""


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[tuple[NatsServer, NatsServer]]:
    """Two real servers that know each other."""
    one, other = free_port(), free_port()
    async with (
        nats_server(CONFIG.format(own=one, other=other)) as first,
        nats_server(CONFIG.format(own=other, other=one)) as second,
    ):
        client = Connection()
        await client.reach(first.url)
        await until(lambda: bool(client._servers.round()[1:]))  # each has told of the other
        await client.close()
        yield first, second


def at(client: Connection) -> int | None:
    """The port of the server that a connection is with."""
    return None if client._session is None else client._session.server.port


@pytest.mark.unmeasured
async def test_no_call_in_flight_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight calls wait when their server begins to stop; service and client go over, and all are answered."""
    monkeypatch.setattr(module, "OVERLAP_SECONDS", 0.3)
    engine = Gated()
    async with (
        cluster() as (first, second),
        serving(first.url, engine=engine) as running,
        holdfast.open(f"{first.url}?timeout=600") as store,
    ):
        gone: list[str] = []
        monkeypatch.setattr(running.client, "_on_disconnected", lambda: gone.append("service"))
        client: Connection = store.caller.transport._client  # type: ignore[union-attr]
        kv = store.kv("trivia")
        await kv.set("k", 0)
        engine.gate.clear()
        calls = [asyncio.ensure_future(kv.incr("n")) for _ in range(4)]
        calls += [asyncio.ensure_future(kv.list()) for _ in range(4)]  # type: ignore[arg-type]
        await until(lambda: running.service.requests.under_way + running.service.requests.waiting == 8)
        os.kill(first.process.pid, signal.SIGUSR2)
        await until(lambda: at(running.client) == at(client) == second.port)
        later = asyncio.ensure_future(kv.get("k"))
        async with asyncio.timeout(PATIENCE):
            await first.process.wait()
            assert not any(call.done() for call in calls)
            engine.gate.set()
            ends = await asyncio.gather(*calls, later, return_exceptions=True)
        assert not [end for end in ends if isinstance(end, BaseException)]
        assert (await kv.get("n")).value == 4  # type: ignore[union-attr]
        assert (gone, running.client.reconnects, client.reconnects) == ([], 0, 0)


@pytest.mark.unmeasured
async def test_calls_go_on_while_servers_stop_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks without a pause meets no error while service and client go over to the other server."""
    monkeypatch.setattr(module, "OVERLAP_SECONDS", 0.3)
    async with (
        cluster() as (first, second),
        serving(first.url) as running,
        holdfast.open(f"{first.url}?timeout=600") as store,
    ):
        client: Connection = store.caller.transport._client  # type: ignore[union-attr]
        kv, done = store.kv("trivia"), 0
        os.kill(first.process.pid, signal.SIGUSR2)
        async with asyncio.timeout(PATIENCE):
            while any(at(one) != second.port or one._left for one in (client, running.client)):
                done += 1
                assert (await kv.incr("n")).value == done
            await first.process.wait()
            assert (await kv.incr("n")).value == done + 1
        assert (running.client.reconnects, client.reconnects) == (0, 0)
        assert done > 10


async def test_a_lame_duck_is_kept_until_it_hangs_up_if_it_is_the_only_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection stays with the only server there is until that hangs up, and then looks for it as ever."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.02)
    async with scribe() as who:
        client = Connection(on_error=lambda error: None)
        await client.reach(who.url)
        who.say(b'INFO {"ldm": true}\r\n')
        await client.flush()
        await asyncio.sleep(0.2)
        assert (len(who.writers), client.is_connected) == (1, True)
        who.writers[0].transport.abort()
        await until(lambda: client.reconnects == 1 and client.is_connected)
        await client.close()


async def test_one_that_is_about_to_stop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody goes over to a server that is about to stop as well."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.02)
    async with scribe() as first, scribe() as second, scribe() as third:
        client = Connection(on_error=lambda error: None)
        await client.reach([first.url, second.url, third.url])
        first.info = second.info = {"ldm": True}
        first.say(b'INFO {"ldm": true}\r\n')
        await until(lambda: at(client) == third.port)
        assert (len(first.writers), len(second.writers)) == (1, 1)
        await client.close()


async def test_both_servers_are_heard_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the old server still has is taken until it is told to send no more; then it is left."""
    monkeypatch.setattr(module, "OVERLAP_SECONDS", 0.05)
    heard: list[bytes] = []
    told: list[str] = []

    def take(message: Message) -> None:
        heard.append(message.data)

    async with scribe() as old, scribe() as new:
        client = Connection(
            on_error=lambda error: None,
            on_disconnected=lambda: told.append("gone"),
            on_reconnected=lambda: told.append("back"),
        )
        await client.reach([old.url, new.url])
        kept, dropped = client.listen("kept", take, queue="q"), client.listen("dropped", take)
        await client.flush()
        old.say(b'INFO {"ldm": true}\r\n')
        await until(lambda: b"SUB kept q 1" in new.lines)
        old.say(b"MSG kept 1 1\r\n1\r\n")
        new.say(b"MSG kept 1 1\r\n2\r\n")
        assert client.send("a", b"x")
        await until(lambda: len(heard) == 2)
        dropped.cancel()
        await client.flush()
        assert b"UNSUB 2" in old.lines
        assert b"UNSUB 2" in new.lines
        await until(lambda: old.lines[-2:] == [b"UNSUB 1", b"PING"])
        await until(lambda: not client._left)
        assert b"PUB a 1" in new.lines
        assert b"PUB a 1" not in old.lines
        await kept.drain()
        assert (sorted(heard), told, client.reconnects) == ([b"1", b"2"], [], 0)
        await client.close()


async def test_a_flush_while_a_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that has asked a server succeeds, also if that server is left before it answers."""
    monkeypatch.setattr(module, "OVERLAP_SECONDS", 0)
    async with scribe() as old, scribe() as new, asyncio.timeout(PATIENCE):
        client = Connection(on_error=lambda error: None)
        await client.reach([old.url, new.url])
        old.say(b'INFO {"ldm": true}\r\n')
        flushes: list[asyncio.Future[None]] = []
        while client._left or not flushes:
            if client._left:
                flushes.append(asyncio.ensure_future(client.flush()))
            await asyncio.sleep(0)
        await asyncio.gather(*flushes)
        await client.close()


async def test_closing_while_two_servers_are_heard() -> None:
    """Who closes a connection closes it with both."""
    async with scribe() as old, scribe() as new:
        client = Connection(on_error=lambda error: None)
        await client.reach([old.url, new.url])
        old.say(b'INFO {"ldm": true}\r\n')
        await until(lambda: at(client) == new.port)
        kept = client.listen("kept", lambda message: None)
        await kept.drain()
        await client.close()
        assert client._left == {}
        assert client.unreadable == 0
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*filter(None, (*old.tasks, *new.tasks)))
