"""HTTP under attack: slow clients, too many of them, other names and other methods stop no probe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from typing import TYPE_CHECKING

import msgspec
import pytest

import holdfast
from holdfast.edges.http.app import Door, Health, application
from holdfast.edges.http.connections import HttpLimits
from holdfast.edges.http.server import http_server
from holdfast.edges.monitoring.metrics import Metrics
from tests.edges.running import get, holdfast_up
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

HALF_SENT = int(os.environ.get("HOLDFAST_HALF_SENT", "600"))
"""How many clients begin a request and do not end it."""
FILES = 512
"""How many files and connections a service may have open that is attacked."""
PATIENCE = 60.0
HALF = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def health(folder: Path, **limits: float) -> AsyncIterator[int]:
    """Where health and metrics of a store are served, with other limits."""
    number = free_port()
    async with holdfast.open(folder / "state.db") as store:
        app = Door(application(Health(store), Metrics("holdfast", store)), names=["Metrics.Example"])
        others = msgspec.structs.replace(HttpLimits(), **limits)
        async with http_server(app, host="127.0.0.1", port=number, limits=others):
            yield number


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """Where health and metrics of a store are served."""
    async with health(tmp_path) as number:
        yield number


@contextlib.asynccontextmanager
async def clients(port: int, count: int, *, send: bytes) -> AsyncIterator[list[Client]]:
    """Clients that send so much and wait, for the length of a block."""
    made: list[Client] = []
    try:
        for _ in range(count):
            made.append(await asyncio.open_connection("127.0.0.1", port))
            made[-1][1].write(send)
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()


async def ended(client: Client) -> bytes:
    """What the server still says until it ends the connection."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await client[0].read()
        except ConnectionError:
            return b""


async def answer(port: int, request: str) -> str:
    """The whole answer to a request that asks for the connection to be ended."""
    async with clients(port, 1, send=request.encode()) as [client]:
        return (await ended(client)).decode()


async def test_half_sent_requests_stop_no_probe(tmp_path: Path) -> None:
    """However many clients send half a request, `/livez`, `/readyz` and `/metrics` are answered."""
    most = 128
    async with (
        health(tmp_path, connections=most) as port,
        clients(port, HALF_SENT, send=HALF) as made,
    ):
        for path, status in (("/livez", 200), ("/readyz", 503), ("/metrics", 200)):
            assert (await get(port, path))[0] == status
        for client in made[: HALF_SENT - most]:  # who came first has made room
            assert await ended(client) == b""
        reader, writer = made[-1]
        writer.write(b"not so slow\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")


async def test_a_service_under_attack(tmp_path: Path) -> None:
    """`holdfast up` stays ready while more clients than it may have files send half a request.

    It answers to the names in its settings and to no others.
    """
    async with holdfast_up(tmp_path / "home", HOLDFAST_HTTP_HOSTS="metrics.example") as up:
        resource.prlimit(up.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        async with clients(up.http_port, HALF_SENT, send=HALF):
            assert [(await up.http(path))[0] for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
            for host, status in (("metrics.example", 200), ("evil.example", 421)):
                asked = f"GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                assert (await answer(up.http_port, asked)).startswith(f"HTTP/1.1 {status} ")


async def trickle(client: Client) -> None:
    """Send a byte again and again for as long as the connection is there."""
    with contextlib.suppress(ConnectionError):
        while not client[1].is_closing():
            client[1].write(b"x")
            await client[1].drain()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("begin", [b"", HALF], ids=["nothing sent", "half a request sent"])
async def test_a_request_has_its_time(tmp_path: Path, begin: bytes) -> None:
    """A client that does not get its request sent in time is left, however many bytes it sends meanwhile."""
    async with health(tmp_path, request_seconds=0.1) as port, clients(port, 1, send=begin) as [client]:
        sending = asyncio.create_task(trickle(client)) if begin else None
        assert await ended(client) == b""
        if sending is not None:
            sending.cancel()


async def test_an_idle_connection_has_its_time(tmp_path: Path) -> None:
    """After an answer a client may ask again, but not wait for ever, nor begin and go on slowly."""
    asked = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with (
        health(tmp_path, request_seconds=0.1, idle_seconds=0.1) as port,
        clients(port, 2, send=asked + asked) as [quiet, slow],
    ):
        for client in (quiet, slow):
            for _ in range(2):
                async with asyncio.timeout(PATIENCE):
                    assert b" 200 OK" in await client[0].readuntil(b'{"alive":true}')
        slow[1].write(HALF)
        sending = asyncio.create_task(trickle(slow))
        assert (await ended(quiet), await ended(slow)) == (b"", b"")
        sending.cancel()


class Hanging:
    """An application that answers when it is let."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.let = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait, then answer."""
        self.asked.release()
        await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"at last"})


async def test_an_answer_has_its_time() -> None:
    """A connection whose answer does not get finished is ended too."""
    app, port = Hanging(), free_port()
    async with http_server(app, host="127.0.0.1", port=port, limits=HttpLimits(answer_seconds=0.1)):
        assert await answer(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") == ""
        app.let.set()


async def test_connections_that_wait_for_their_client_are_closed_first() -> None:
    """Connections that wait for their client make room before one does that waits for us."""
    app, port = Hanging(), free_port()
    async with (
        http_server(app, host="127.0.0.1", port=port, limits=HttpLimits(connections=3)),
        clients(port, 1, send=b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") as [asking],
    ):
        await app.asked.acquire()
        async with clients(port, 5, send=HALF) as slow:
            for client in slow[:3]:
                await ended(client)
            app.let.set()
            assert b"at last" in await ended(asking)


async def test_a_newcomer_is_let_in_when_all_are_busy() -> None:
    """If every connection is being answered, the one that was asked first makes room."""
    app, port, asking = Hanging(), free_port(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    async with (
        http_server(app, host="127.0.0.1", port=port, limits=HttpLimits(connections=2)),
        clients(port, 1, send=asking) as [first],
        clients(port, 1, send=asking) as [second],
    ):
        await app.asked.acquire()
        await app.asked.acquire()
        async with clients(port, 1, send=asking) as [third]:
            assert await ended(first) == b""
            app.let.set()
            assert b"at last" in await ended(second)
            assert b"at last" in await ended(third)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[
            ("localhost", 200),
            ("localhost:8420", 200),
            ("LOCALHOST.", 200),
            ("127.0.0.1", 200),
            ("[::1]:1", 200),
        ],
        *[("10.1.2.3:8420", 200), ("metrics.example", 200), ("METRICS.example:80", 200)],
        *[("evil.example", 421), ("evil.example:8420", 421), ("localhost.evil.example", 421), ("", 421)],
        *[("127.0.0.1.evil.example", 421), ("other.metrics.example", 421), ("localhost:x", 421)],
    ],
)
async def test_names(port: int, host: str, status: int) -> None:
    """A name must be known, so that no web page can ask by a name of its own; an address need not be."""
    for path in ("/livez", "/metrics"):
        text = await answer(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        assert text.startswith(f"HTTP/1.1 {status} ")
        assert ("http_hosts" in text) == (status == 421)


async def test_a_probe_without_a_name(port: int) -> None:
    """A plain HTTP/1.0 probe names no host, and is answered."""
    assert " 200 OK" in await answer(port, "GET /livez HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/nothing"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
async def test_other_methods(port: int, method: str, path: str) -> None:
    """Nothing here changes anything, so nothing but GET and HEAD is answered."""
    text = await answer(port, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert text.startswith("HTTP/1.1 405 ")
    assert "allow: GET, HEAD" in text


async def test_a_method_that_http_does_not_have(port: int) -> None:
    """A request that is not HTTP is refused, and its connection is ended."""
    text = await answer(port, "ODD /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert text.startswith("HTTP/1.1 400 ")


async def test_head(port: int) -> None:
    """HEAD is answered as GET is, without the text."""
    text = await answer(port, "HEAD /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (text.startswith("HTTP/1.1 200 "), "alive" in text) == (True, False)


async def test_noise_leaves_no_line(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can fill the log by sending what is no HTTP, or asking for another protocol."""
    caplog.set_level("INFO")
    assert (await answer(port, "\x01\x02\r\n\r\n")).startswith("HTTP/1.1 400 ")
    asked = (
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    )
    assert " 200 OK" in await answer(port, asked)
    assert caplog.records == []


@pytest.mark.parametrize(
    "head", [b"GET /" + b"a" * 70_000, HALF + b"a" * 70_000, HALF + b"a: b\r\n" * 12_000]
)
async def test_a_head_has_its_length(port: int, head: bytes) -> None:
    """A client that sends a first line or headers without end is refused, and nothing is kept of it."""
    async with clients(port, 1, send=head) as [client]:
        assert (await ended(client)).startswith(b"HTTP/1.1 431 ")


async def test_a_slow_second_head_has_its_time(tmp_path: Path) -> None:
    """Between requests a client may rest, but once it has begun the next one it must go on."""
    asked = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with health(tmp_path, request_seconds=0.1) as port, clients(port, 1, send=asked) as [client]:
        await client[0].readuntil(b'{"alive":true}')
        client[1].write(HALF)
        sending = asyncio.create_task(trickle(client))
        assert await ended(client) == b""
        sending.cancel()
