"""The connection under client and service: it reads what can be read, in order, and never gives up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.bus import connection as connection_module
from holdfast.bus import session
from holdfast.bus.connection import Connection
from holdfast.bus.errors import BusError, Lost, ProtocolError, ServerComplaint
from holdfast.bus.protocol import Message, block
from holdfast.edges.nats.server import NatsServer
from tests.bus.scribe import Scribe, scribe
from tests.edges.nats.ground import PATIENCE, until
from tests.nats import Wire


def ignore(message: Message) -> None:
    """Take a message."""


def quiet(error: Exception) -> None:
    """Take note of nothing."""


@contextlib.asynccontextmanager
async def reached(*servers: str, **told: Any) -> AsyncIterator[Connection]:
    """A connection for the length of a block."""
    connection = Connection(**{"on_error": quiet, **told})
    await connection.reach(servers)
    try:
        yield connection
    finally:
        async with asyncio.timeout(PATIENCE):
            await connection.close()


async def test_flush_is_a_barrier() -> None:
    """What was sent before a flush has reached the server when it returns: the PING goes out behind it."""
    async with scribe() as who, reached(who.url) as client:
        who.lines.clear()
        subscriptions = [client.listen(f"s.{number}", ignore) for number in range(20)]
        assert client.send("p", b"")
        await client.flush()
        assert who.verbs() == [b"SUB"] * 20 + [b"PUB", b"PING"]
        who.lines.clear()
        await subscriptions[0].drain()
        subscriptions[1].cancel()
        await client.flush()
        assert who.verbs() == [b"UNSUB", b"PING", b"UNSUB", b"PING"]


async def test_nothing_of_a_lost_connection_is_sent_on_the_next() -> None:
    """What was not sent is gone with its connection, and who waits for a PONG of it learns that."""
    async with scribe() as who, reached(who.url) as client:
        kept, gone = client.listen("kept", ignore, queue="q"), client.listen("gone", ignore)
        await client.flush()
        who.silent = True
        waiting = asyncio.create_task(client.flush())
        await until(lambda: who.lines[-1] == b"PING")
        draining = asyncio.create_task(gone.drain())
        assert client.send("late", b"x")
        who.writers[0].transport.abort()
        await until(lambda: not client.is_connected)
        assert client.send("later", b"y") is False
        who.lines.clear()
        who.silent = False
        with pytest.raises(Lost):
            await waiting
        with pytest.raises(Lost):
            await client.flush()
        await draining
        await until(lambda: client.reconnects == 1 and client.is_connected)
        await client.flush()
        assert who.verbs() == [b"CONNECT", b"PING", b"SUB", b"PING"]
        assert f"SUB kept q {kept.sid}".encode() in who.lines


async def test_loss_and_return_are_told_once_each() -> None:
    """That the connection is gone, and that it is back, is told once each; the end of a closed one is not."""
    told: list[str] = []
    async with (
        scribe() as who,
        reached(
            who.url,
            on_disconnected=lambda: told.append("gone"),
            on_reconnected=lambda: told.append("back"),
        ) as client,
    ):
        who.writers[0].transport.abort()
        await until(lambda: len(told) == 2)
        assert client.is_connected
    assert told == ["gone", "back"]


@pytest.mark.parametrize("line", [b"NONSENSE\r\n", b"x" * 70_000, b"INFO nonsense\r\n", b"MSG a 1 -1\r\n"])
async def test_a_line_of_no_known_form_starts_anew(line: bytes) -> None:
    """What is no line of the protocol ends this connection, and the next one is made."""
    errors: list[Exception] = []
    async with scribe() as who, reached(who.url, on_error=errors.append) as client:
        who.say(line)
        await until(lambda: client.reconnects == 1 and client.is_connected)
    assert [type(error) for error in errors] == [ProtocolError]


async def test_messages_before_a_line_of_no_known_form_are_taken() -> None:
    """What came before such a line in the same piece is not lost, and nothing behind it is believed."""
    taken: list[bytes] = []
    async with scribe() as who, reached(who.url) as client:
        client.listen("a", lambda message: taken.append(message.data))
        await client.flush()
        who.say(b"MSG a 1 1\r\n1\r\nNONSENSE\r\nMSG a 1 1\r\n2\r\n")
        await until(lambda: client.reconnects == 1 and client.is_connected)
    assert taken == [b"1"]


async def test_a_server_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pings that nothing follows are enough: the connection is given up and made anew."""
    monkeypatch.setattr(session, "PING_SECONDS", 0.01)
    errors: list[Exception] = []
    async with scribe() as who, reached(who.url, on_error=errors.append) as client:
        await until(lambda: who.lines.count(b"PING") > 10)
        assert client.reconnects == 0
        who.silent = True
        await until(lambda: not client.is_connected)
        who.silent = False
        await until(lambda: client.is_connected)
    assert isinstance(errors[0], Lost)


async def test_pings_of_the_server_are_answered() -> None:
    """The server is told that this side is alive."""
    async with scribe() as who, reached(who.url):
        who.say(b"PING\r\nPONG\r\n+OK\r\n")
        await until(lambda: who.lines[-1] == b"PONG")


async def test_servers_that_are_named_later() -> None:
    """When its server is gone a client goes on to the others of the list, and to those it was told of."""
    async with scribe() as first, scribe() as second, scribe() as third:
        first.info = {"connect_urls": [f"127.0.0.1:{third.port}", "nonsense://"]}
        async with reached(first.url, second.url, on_error=quiet) as client:
            first.greeting = second.greeting = b"-ERR 'not now'\r\n"
            first.writers[0].transport.abort()
            await until(lambda: client.is_connected and bool(third.writers))
        assert third.verbs()[:2] == [b"CONNECT", b"PING"]


async def test_the_first_that_answers_is_taken() -> None:
    """A server that is not there is passed over; if none is, the error of one of them is raised."""
    async with scribe() as gone:
        pass
    async with scribe() as who, reached(gone.url, who.url) as client:
        assert client.is_connected
        assert client.max_payload == 1_048_576
        who.say(b'INFO {"max_payload": 77}\r\n')
        await until(lambda: client.max_payload == 77)
    with pytest.raises(OSError, match=str(gone.port)):
        await Connection().reach([gone.url, gone.url])


async def test_what_is_no_nats_server_is_recognized(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers and is no NATS server, or says nothing, is told from one that does."""
    monkeypatch.setattr(connection_module, "ATTEMPT_SECONDS", 0.2)
    async with scribe() as who:
        for greeting, error in ((b"220 mail\r\n", ProtocolError), (b"-ERR 'full'\r\n", ServerComplaint)):
            who.greeting = greeting
            with pytest.raises(error):
                await Connection().reach(who.url)
        who.greeting = b"INFO"
        with pytest.raises(TimeoutError):
            await Connection().reach(who.url)
        who.greeting, who.silent = None, True
        with pytest.raises(TimeoutError):
            await Connection().reach(who.url)


async def test_bytes_that_no_client_would_send(nats_server: NatsServer) -> None:
    """Unreadable subjects and reply subjects are dropped, odd headers not looked at, all else is heard."""
    heard: list[bytes] = []
    async with reached(nats_server.url) as client, Wire.open(nats_server.url) as wire:
        client.listen("ear.>", lambda message: heard.append(message.data))
        await client.flush()
        wire.publish(b"ear.\xff", b"", b"1")
        wire.publish(b"ear.x", b"re.\xff", b"2")
        wire.publish(b"ear.y\x0b7", b"", b"3")
        wire.send(b"HPUB ear.z 8 9", b"NATS/1.04\r\n")
        wire.send(b"HPUB ear.z 16 17", b"NATS/1.0 \xff\xff\xff\r\n\r\n5\r\n")
        await wire.settle()
        await client.flush()
        assert (heard, client.unreadable) == ([b"3", b"4", b"5"], 2)
    assert client.unreadable == 2


async def test_a_connection_outlives_what_the_server_complains_of(nats_server: NatsServer) -> None:
    """An error that the server reports is told; if the server ends the connection for it, it comes back."""
    errors: list[Exception] = []
    async with reached(nats_server.url, on_error=errors.append) as client:
        assert client.send("a 0\r\n\r\nNONSENSE\r\nPUB a", b"")
        await until(lambda: client.reconnects == 1 and client.is_connected)
        assert any(isinstance(error, ServerComplaint) for error in errors)
        await client.flush()


async def test_a_connection_comes_back_however_long_it_takes(nats_server: NatsServer) -> None:
    """A server that was gone for a while is found again, with every subscription."""
    heard: list[bytes] = []
    async with reached(nats_server.url) as client:
        client.listen("there", lambda message: heard.append(message.data))
        for number in (b"1", b"2"):
            nats_server.process.kill()
            await nats_server.process.wait()
            await until(lambda: not client.is_connected)
            await nats_server.start()
            await until(lambda: client.is_connected)
            assert client.send("there", number)
            await client.flush()
        assert heard == [b"1", b"2"]


async def test_messages_are_taken_as_they_are_read(nats_server: NatsServer) -> None:
    """Who listens gets each message in order; an exception there is reported, and the next one is taken."""
    taken: list[bytes] = []
    errors: list[Exception] = []

    def take(message: Message) -> None:
        if message.data == b"bad":
            raise KeyError("bad")
        taken.append(message.data)

    async with (
        reached(nats_server.url, on_error=errors.append) as listener,
        reached(nats_server.url) as sender,
    ):
        subscription = listener.listen("here.>", take, queue="q")
        await listener.flush()
        for data in (b"1", b"bad", b"2", b"3"):
            assert sender.send("here.it.is", data, head=block({"Odd": "header"}))
        await sender.flush()
        await subscription.drain()
        assert taken == [b"1", b"2", b"3"]
        assert [str(error) for error in errors] == ["'bad'"]
        assert sender.send("here.it.is", b"4")
        await sender.flush()
        await listener.flush()
        assert taken == [b"1", b"2", b"3"]
    assert sender.send("here.it.is", b"5") is False
    assert sender.is_closed


async def test_headers_and_replies_arrive(nats_server: NatsServer) -> None:
    """A message brings its headers and where its reply should go; that nobody listens is told at once."""
    heard: list[Message] = []
    async with reached(nats_server.url, inbox="_INBOX.me") as client:
        inbox = client.new_inbox()
        assert inbox.startswith("_INBOX.me.")
        client.listen(f"{inbox}.*", heard.append)
        client.listen("there", heard.append)
        assert client.send("there", b"x", head=block({"Name": "value"}), reply=f"{inbox}.1")
        assert client.send("nowhere", b"x", reply=f"{inbox}.2")
        await client.flush()
        await client.flush()
    assert [(one.subject, one.reply, one.status) for one in heard] == [
        ("there", f"{inbox}.1", ""),
        (f"{inbox}.2", "", "503"),
    ]
    assert heard[0].header("Name") == "value"


async def test_unsent_messages_are_bounded(nats_server: NatsServer) -> None:
    """A message past 16 MB that the server has not taken is refused; once they are gone there is room."""
    async with reached(nats_server.url) as client:
        sent = [client.send("here", b"x" * 1_000_000) for _ in range(20)]
        assert sent == [True] * 16 + [False] * 4
        await client.flush()
        assert client.send("here", b"x", head=block({"Name": "value"}))
        await client.flush()


async def test_a_server_that_takes_nothing() -> None:
    """Against one that does not read, memory stays bounded over many turns of the loop, and closing soon."""
    stuck = asyncio.Event()

    class Deaf(Scribe):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.writers.append(writer)
            self.tasks.append(asyncio.current_task())
            writer.write(b'INFO {"max_payload": 1048576}\r\n')
            await reader.readline()
            writer.write(b"PONG\r\n")
            await stuck.wait()

    who = Deaf()
    server = await asyncio.start_server(who.serve, "127.0.0.1", 0)
    async with reached(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        taken = 0
        for _ in range(200):
            taken += sum(client.send("here", b"x" * 1_000_000) for _ in range(2))
            await asyncio.sleep(0)
        assert taken < 40
        assert client.send("here", b"x" * 1_000_000) is False
    stuck.set()
    server.close()
    who.writers[0].close()


async def test_closing_while_the_server_is_gone() -> None:
    """A connection that is looking for its server can be closed, and looks no more."""
    async with scribe() as who:
        client = Connection(on_error=quiet)
        await client.reach(who.url)
        await client.close()
        assert not client.is_connected
        client = Connection(on_error=quiet)
        await client.reach(who.url)
        who.greeting = b"-ERR 'no more'\r\n"
        who.writers[-1].transport.abort()
        await until(lambda: not client.is_connected)
        await client.close()
        with pytest.raises(BusError):
            await client.flush()
