"""The connection under client and service: it reads what can be read, in order, and never gives up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg

from holdfast.edges.nats.server import NatsServer
from holdfast.engines.remote.connection import Connection
from tests.edges.nats.ground import PATIENCE, until
from tests.nats import Wire


class Scribe:
    """In the place of a server: greets, answers pings, and notes each line that it was sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None] | None] = []
        self.silent = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.writers.append(writer)
        self.tasks.append(asyncio.current_task())
        writer.write(b'INFO {"server_id":"s","version":"2.14.0","max_payload":1048576,"headers":true}\r\n')
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self.lines.append(line.strip())
                if line == b"PING\r\n" and not self.silent:
                    writer.write(b"PONG\r\n")
        writer.close()


@contextlib.asynccontextmanager
async def scribe() -> AsyncIterator[tuple[Scribe, str]]:
    """A scribe and its address for the length of a block."""
    who = Scribe()
    server = await asyncio.start_server(who.serve, "127.0.0.1", 0)
    try:
        yield who, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in who.writers:
            writer.close()
        await asyncio.gather(*filter(None, who.tasks))


async def ignore(message: Msg) -> None:
    """Take a message."""


async def test_flush_is_a_barrier() -> None:
    """What was sent before a flush has reached the server when it returns: the PING goes out behind it."""
    async with scribe() as (who, url):
        client = Connection()
        await client.reach(url)
        who.lines.clear()
        subscriptions = [await client.subscribe(f"s.{number}", cb=ignore) for number in range(20)]
        await client.publish("p", b"")
        await client.flush()
        assert [line.partition(b" ")[0] for line in who.lines if line] == [b"SUB"] * 20 + [b"PUB", b"PING"]
        who.lines.clear()
        await subscriptions[0].drain()  # type: ignore[no-untyped-call]
        assert [line.partition(b" ")[0] for line in who.lines] == [b"UNSUB", b"PING"]
        await client.close()


@pytest.mark.parametrize(("pending_size", "survives"), [(0, False), (2_097_152, True)])
async def test_what_a_lost_connection_had_not_sent(pending_size: int, survives: bool) -> None:
    """Without a buffer nothing of the old connection is sent on the new one; pings never are."""
    async with scribe() as (who, url):
        client = Connection()
        await client.reach(url, pending_size=pending_size)
        who.silent = True
        who.lines.clear()
        waiting = asyncio.create_task(client.flush())
        await until(lambda: who.lines == [b"PING"])
        who.writers[0].transport.abort()
        client._pending += [b"PUB late 1\r\nx\r\n", b"PING\r\n"]
        client._pending_data_size += 20
        who.lines.clear()
        who.silent = False
        await until(lambda: client.stats["reconnects"] == 1 and client.is_connected)
        async with asyncio.timeout(PATIENCE):
            await client.flush()
        assert (b"PUB late 1" in who.lines) is survives
        assert who.lines.count(b"PING") == 3  # of the handshake, of the library after it, and of this flush
        waiting.cancel()
        await client.close()


async def test_lines_are_read_however_they_arrive() -> None:
    """Messages come out the same whether their bytes come at once or one by one, with headers and without."""
    heard: list[tuple[str, str, bytes, object]] = []

    async def hear(message: Msg) -> None:
        heard.append((message.subject, message.reply, message.data, message.headers))

    named, bare = b"NATS/1.0\r\nName: v\r\n\r\n", b"NATS/1.0\r\n\r\n"
    stream = (
        b"MSG a 1 5\r\nhello\r\n+OK\r\nMSG a.b 1 re.ply 0\r\n\r\nPING\r\n"
        b"HMSG h 1 %d %d\r\n%b{}\r\n"
        % (len(named), len(named) + 2, named)
        + b"HMSG h 1 r %d %d\r\n%b\r\n\r\n" % (len(bare), len(bare) + 2, bare)
        + b"MSG gone 99 2\r\n{}\r\nMSG \xff 1 2\r\n{}\r\nMSG x\x0b1 1 2\r\n{}\r\n"
        b'INFO {"server_id":"s"}\r\n-ERR \'Permissions Violation\'\r\nMSG last 1 4\r\n\r\n\r\n\r\n'
    )
    async with scribe() as (who, url):
        for size in (len(stream), 7, 1):
            heard.clear()
            client = Connection()
            await client.reach(url, error_cb=_quiet)
            await client.subscribe(">", cb=hear)
            await client.flush()
            for start in range(0, len(stream), size):
                await client._ps.parse(stream[start : start + size])
            await until(lambda: bool(heard) and heard[-1][0] == "last")
            assert heard == [
                ("a", "", b"hello", None),
                ("a.b", "re.ply", b"", None),
                ("h", "", b"{}", {"Name": "v"}),
                ("h", "r", b"\r\n", None),
                ("x\x0b1", "", b"{}", None),
                ("last", "", b"\r\n\r\n", None),
            ]
            assert client.unreadable == 1
            assert who.lines[-1] == b"PONG"
            await client.close()


async def _quiet(error: Exception) -> None:
    """Take note of nothing."""


async def test_a_line_of_no_known_form_starts_anew() -> None:
    """What is no line of the protocol ends this connection, and the next one is made."""
    async with scribe() as (who, url):
        client = Connection()
        await client.reach(url, error_cb=_quiet)
        who.writers[0].write(b"NONSENSE\r\n")
        await until(lambda: client.stats["reconnects"] == 1 and client.is_connected)
        await client.close()


async def test_bytes_that_no_client_would_send(nats_server: NatsServer) -> None:
    """Unreadable subjects, reply subjects and headers are dropped, and the next message is heard."""
    client = Connection()
    await client.reach(nats_server.url)
    heard = await client.subscribe("ear.>")
    await client.flush()
    async with Wire.open(nats_server.url) as wire:
        wire.publish(b"ear.\xff", b"", b"1")
        wire.publish(b"ear.x", b"re.\xff", b"2")
        wire.publish(b"ear.y\x0b7", b"", b"3")
        wire.send(b"HPUB ear.z 8 9", b"NATS/1.04\r\n")
        wire.send(b"HPUB ear.z 16 17", b"NATS/1.0 \xff\xff\xff\r\n\r\n5\r\n")
        await wire.settle()
    got = [(await heard.next_msg(timeout=PATIENCE)).data for _ in range(3)]
    assert (got, client.unreadable) == ([b"3", b"4", b"5"], 2)
    await client.close()


async def test_a_connection_outlives_what_the_server_complains_of(nats_server: NatsServer) -> None:
    """An error that the server reports does not close the client for good: it connects again by itself."""
    complaints: list[str] = []

    async def note(error: Exception) -> None:
        complaints.append(str(error).lower())

    client = Connection()
    await client.reach(nats_server.url, error_cb=note)
    assert client._transport is not None
    client._transport.write(b"NONSENSE\r\n")
    await until(lambda: client.stats["reconnects"] == 1 and client.is_connected)
    assert any("unknown protocol operation" in complaint for complaint in complaints)
    await client.flush()
    await client.close()


async def test_a_connection_comes_back_however_long_it_takes(nats_server: NatsServer) -> None:
    """A server that was gone for a while is found again, with every subscription."""
    client = Connection()
    await client.reach(nats_server.url)
    heard = await client.subscribe("there")
    for _ in range(2):
        nats_server.process.kill()
        await nats_server.process.wait()
        await until(lambda: not client.is_connected)
        await nats_server.start()
        await until(lambda: client.is_connected)
        await client.publish("there", b"!")
        assert (await heard.next_msg(timeout=5)).data == b"!"
    await client.close()


async def test_messages_are_taken_as_they_are_read(nats_server: NatsServer) -> None:
    """Who listens gets each message in order; an exception there is reported, and the next one is taken."""
    taken: list[bytes] = []
    errors: list[Exception] = []

    def take(message: Msg) -> None:
        if message.data == b"bad":
            raise KeyError("bad")
        taken.append(message.data)

    async def report(error: Exception) -> None:
        errors.append(error)

    listener, sender = Connection(), Connection()
    await listener.reach(nats_server.url, error_cb=report)
    await sender.reach(nats_server.url)
    subscription = await listener.listen("here.>", take, queue="q")
    await listener.flush()
    for data in (b"1", b"bad", b"2", b"3"):
        assert sender.send("here.it.is", data, {"Odd": "header"})
    await sender.flush()
    await listener.flush()
    assert taken == [b"1", b"2", b"3"]
    assert [str(error) for error in errors] == ["'bad'"]
    await subscription.drain()  # type: ignore[no-untyped-call]
    assert sender.send("here.it.is", b"4")
    await sender.flush()
    await listener.flush()
    assert taken == [b"1", b"2", b"3"]
    await sender.close()
    await listener.close()
    assert sender.send("here.it.is", b"5") is False


async def test_what_waits_to_be_sent_is_bounded(nats_server: NatsServer) -> None:
    """A message past 16 MB that the server has not taken is refused; once they are gone there is room."""
    connection = Connection()
    await connection.reach(nats_server.url)
    try:
        sent = [connection.send("here", b"x" * 1_000_000) for _ in range(20)]
        assert sent == [True] * 16 + [False] * 4
        await connection.flush()
        assert connection.send("here", b"x", {"Name": "value"})
        await connection.flush()
    finally:
        await connection.close()
