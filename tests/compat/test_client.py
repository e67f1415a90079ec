"""A plugin's client over a connection that it has, and the connection that a service lends to its program."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.compat.client import BotConnection
from holdfast.compat.rosey import DatabaseClient, DatabaseService
from tests.nats import library_client

if TYPE_CHECKING:
    from nats.aio.client import Client

    from holdfast.compat.client import BotMessage
    from holdfast.edges.nats.server import NatsServer


def lent(service: DatabaseService) -> BotConnection:
    """The connection of a service that runs."""
    assert service.nc is not None
    return service.nc


@pytest.mark.parametrize("whose", ["nats-py", "service"])
async def test_the_keys_of_a_plugin(service: DatabaseService, client: Client, whose: str) -> None:
    """Over a connection of nats-py, or the service's, a plugin has all verbs on its keys."""
    db = DatabaseClient(client if whose == "nats-py" else lent(service), plugin_name="trivia")
    version = await db.kv.set("score", {1: 2}, ttl=60)
    assert version > 0
    assert await db.kv.get("score") == {"1": 2}
    assert (await db.kv.get("missing"), await db.kv.get("missing", 0)) == (None, 0)
    assert [await db.kv.incr("n"), await db.kv.incr("n", 2.5)] == [1, 3.5]
    assert await db.kv.list() == ["n", "score"]
    assert await db.kv.list("s", limit=1) == ["score"]
    assert [await db.kv.delete("score"), await db.kv.delete("score")] == [True, False]
    other = DatabaseClient(client, "quotes", prefix="rosey.db")
    assert await other.kv.list() == []
    await other.kv.set("q", None)
    assert await service.db.kv_get("quotes", "q") == {"exists": True, "value": None}


async def test_the_errors_of_a_client(client: Client) -> None:
    """What is not legal is a ValueError or a TypeError; an error of the store is Holdfast's own."""
    db = DatabaseClient(client, "trivia")
    with pytest.raises(ValueError, match="64KB"):
        await db.kv.set("k", "x" * 70_000)
    with pytest.raises(TypeError, match="not JSON-serializable"):
        await db.kv.set("k", object())
    with pytest.raises(ValueError, match="ttl"):
        await db.kv.set("k", 1, ttl=0)
    with pytest.raises(ValueError, match="key"):
        await db.kv.get("")
    with pytest.raises(ValueError, match="Plugin name"):
        DatabaseClient(client, "No Such")
    await db.kv.set("word", "x")
    with pytest.raises(ValueError, match="is not a number"):
        await db.kv.incr("word")


async def test_without_a_service(nats_server: NatsServer) -> None:
    """Where nobody serves, both kinds of connections lead to Unavailable."""
    own = BotConnection()
    await own.reach(nats_server.url)
    async with library_client(nats_server.url) as client:
        for nats in (client, own):
            with pytest.raises(holdfast.Unavailable, match="no Holdfast service answers"):
                await DatabaseClient(nats, "trivia").kv.set("k", 1)
    await own.close()


async def test_a_silent_service(nats_server: NatsServer) -> None:
    """A write without a reply is OutcomeUnknown, and a read Unavailable."""
    async with library_client(nats_server.url) as client:
        await client.subscribe("db.>")
        await client.flush()
        db = DatabaseClient(client, "trivia", timeout=0.05)
        with pytest.raises(holdfast.OutcomeUnknown):
            await db.kv.set("k", 1)
        with pytest.raises(holdfast.Unavailable):
            await db.kv.get("k")


async def test_the_connection_of_a_service(service: DatabaseService, client: Client) -> None:
    """`service.nc` publishes, subscribes and requests as the connection of nats-py does."""
    heard: list[bytes] = []
    done = asyncio.Event()

    async def hear(message: BotMessage) -> None:
        heard.append(message.data)
        if message.reply:
            await message.respond(b"pong")
            done.set()
        elif message.data == b"fail":
            raise RuntimeError("a callback's own fault")

    subscription = await lent(service).subscribe("bot.*", cb=hear)
    await client.publish("bot.a", b"fail")
    reply = await client.request("bot.b", b"ping", timeout=60)
    await done.wait()
    assert (reply.data, heard) == (b"pong", [b"fail", b"ping"])
    await subscription.unsubscribe()
    listening = await lent(service).subscribe("bot.c")
    await lent(service).publish("bot.c", b"x", headers={"A": "b"})
    message = await listening.next_msg(timeout=60)
    assert (message.subject, message.data, message.headers) == ("bot.c", b"x", {"A": "b"})
    await lent(service).publish("bot.c", b"y")
    async for message in listening.messages:
        assert message.data == b"y"
        break
    payload = b'{"key":"k","value":1,"deadline_ms":60000}'
    stored = await lent(service).request("db.kv.trivia.set", payload, timeout=60)
    assert json.loads(stored.data)["success"] is True
    with pytest.raises(ConnectionError, match="nobody listens"):
        await lent(service).request("bot.nobody", timeout=60)
    with pytest.raises(TimeoutError):
        await lent(service).request("bot.c", timeout=0.05)
    with pytest.raises(ValueError, match="no subject"):
        await lent(service).publish("two words")


async def test_cleanup_is_told(service: DatabaseService, caplog: pytest.LogCaptureFixture) -> None:
    """The start of the cleanup with its interval, and its stop, are INFO lines."""
    caplog.set_level(logging.INFO, logger="holdfast.compat")
    await service.stop()
    await service.start()
    await asyncio.sleep(0)
    await service.stop()
    lines: list[Any] = [record.getMessage() for record in caplog.records if record.name == "holdfast.compat"]
    assert lines[-2:] == [
        "cleanup of expired keys started; it runs every 300 s",
        "cleanup of expired keys stopped",
    ]
