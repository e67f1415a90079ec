"""The way around ASGI: what it answers is what the application answers, in order and within bounds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest

from holdfast.clock import ManualClock
from holdfast.edges.http import connections
from holdfast.edges.http.api import FastPath, FastRequest
from holdfast.edges.http.app import Door
from holdfast.edges.http.connections import BoundedConnection
from tests.edges.http.ground import Served, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 60.0
START = 1_750_000_000_000
GUESSED = {"Authorization": "Bearer hf_0123456789ab_nothing"}
TOO_MANY = b"[" * 2_000

ASKED: tuple[tuple[str, str, bytes | None, dict[str, str]], ...] = (
    ("PUT", "/v1/kv/trivia/a", b"1", {}),
    ("PUT", "/v1/kv/trivia/a", b'{"n":2}', {"Holdfast-TTL": "60", "Holdfast-Request-Id": "r1"}),
    ("PUT", "/v1/kv/trivia/a", b'{"n":2}', {"Holdfast-TTL": "60", "Holdfast-Request-Id": "r1"}),
    ("PUT", "/v1/kv/trivia/a", b"3", {"Holdfast-Request-Id": "r1"}),
    ("PUT", "/v1/kv/trivia/a", b"3", {"If-None-Match": "*"}),
    ("PUT", "/v1/kv/trivia/a", b"3", {"If-Match": '"1"'}),
    ("PUT", "/v1/kv/trivia/a", b"3", {"If-Match": "many"}),
    ("PUT", "/v1/kv/trivia/a", b"no JSON", {}),
    ("PUT", "/v1/kv/trivia/a", TOO_MANY, {}),
    ("PUT", "/v1/kv/trivia/a", b"3", {"Holdfast-TTL": "soon"}),
    ("PUT", "/v1/kv/trivia/%ff", b"3", {}),
    ("PUT", "/v1/kv/Trivia/a", b"3", {}),
    ("PUT", "/v1/kv/trivia/a", b"3", GUESSED),
    ("GET", "/v1/kv/trivia/a", None, {}),
    ("GET", "/v1/kv/trivia/a", None, {"If-None-Match": '"2"'}),
    ("GET", "/v1/kv/trivia/none", None, {}),
    ("GET", "/v1/kv/trivia", None, {}),
    ("GET", "/v1/nowhere", None, {}),
    ("DELETE", "/v1/kv/trivia/a", None, {"If-Match": '"9"'}),
    ("DELETE", "/v1/kv/trivia/a", None, {}),
    ("PATCH", "/v1/kv/trivia/a", b"3", {}),
    ("POST", "/v1/kv/trivia:incr", b'{"key":"n","ttl_second":1}', {}),
    ("POST", "/v1/kv/trivia:incr", b'{"key":"n","line\\nfeed\\r\\nX-A: b":1}', {}),
    ("POST", "/v1/kv/trivia:none", b"{}", {}),
    ("POST", "/v1/table/trivia:tables", b"{}", {}),
    ("POST", "/v1/admin:namespaces", b"{}", {}),
)
"""Requests that are answered, refused and malformed, each with the fields of its head."""


def shown(answer: httpx.Response) -> tuple[object, ...]:
    """All of an answer that does not depend on the time of day."""
    headers = sorted(pair for pair in answer.headers.items() if pair[0] != "date")
    return answer.status_code, headers, answer.content


async def answers(path: Path, bus: str) -> list[tuple[object, ...]]:
    """The answers of a service on an empty store to all requests in turn."""
    found = []
    async with served(path, bus, clock=ManualClock(START)) as here:
        for method, where, body, headers in ASKED:
            found.append(shown(await here.client.request(method, where, content=body, headers=headers)))
    return found


async def test_both_ways_answer_alike(bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller can't tell whether its request took the shortcut: status, headers and body are the same."""
    taken, take = [], FastPath.take

    def noted(shortcut: FastPath, connection: BoundedConnection) -> FastRequest | None:
        taken.append(take(shortcut, connection))
        return taken[-1]

    with monkeypatch.context() as patch:
        patch.setattr(FastPath, "take", noted)
        fast = await answers(tmp_path / "fast.db", bus)
    with monkeypatch.context() as patch:
        patch.setattr(FastPath, "take", lambda self, connection: None)
        plain = await answers(tmp_path / "usual.db", bus)
    for asked, one, other in zip(ASKED, fast, plain, strict=True):
        assert one == other, asked
    assert len([one for one in taken if one is not None]) > len(ASKED) / 2


def request(method: str, path: str, body: bytes = b"", *more: str) -> bytes:
    """A request as it is sent."""
    length = [] if any("chunked" in line for line in more) else [f"Content-Length: {len(body)}"]
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", *length, *more]
    return "\r\n".join([*head, "", ""]).encode() + body


def chunked(method: str, path: str, body: bytes) -> bytes:
    """A request that can't take the shortcut."""
    pieces = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return request(method, path, pieces, "Transfer-Encoding: chunked")


async def bodies(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    """The bodies of so many answers."""
    found = []
    async with asyncio.timeout(PATIENCE):
        for _ in range(count):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found.append(await reader.readexactly(size))
    return found


async def test_answers_keep_the_order_of_requests(here: Served) -> None:
    """Requests sent together over one connection are done and answered in order, whatever way they take."""
    port = here.client.base_url.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ways = [request, chunked, chunked, request, request, chunked, request, request]
    for number, way in enumerate(ways):
        writer.write(way("PUT", "/v1/kv/trivia/a", str(number).encode()))
        writer.write(request("GET", "/v1/kv/trivia/a"))
        writer.write(request("GET", "/v1/kv/trivia/a?entry=false"))
    found = await bodies(reader, 3 * len(ways))
    assert found[1::3] == found[2::3] == [str(number).encode() for number in range(len(ways))]
    writer.close()


async def test_a_client_that_does_not_read_is_not_served_for_ever(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that only asks fills its own connection and no memory: reading from it stops."""
    monkeypatch.setattr(connections, "MOST_AHEAD", 8)
    await here.ask("PUT", "/v1/kv/trivia/a", b'"' + b"x" * 60_000 + b'"')
    begun, begin = [0], FastRequest.begin

    def counted(fast: FastRequest) -> None:
        begun[0] += 1
        begin(fast)

    monkeypatch.setattr(FastRequest, "begin", counted)
    made = connections_made(monkeypatch)
    asked = request("GET", "/v1/kv/trivia/a")
    _, writer = await asyncio.open_connection("127.0.0.1", here.client.base_url.port)
    writer.write(asked * 3_000)
    await until(lambda: bool(made) and made[0].flow.write_paused)
    for _ in range(300):  # time enough to begin all of them
        await asyncio.sleep(0)
    assert made[0].flow.read_paused
    assert 0 < begun[0] < 1_000
    assert len(made[0]._unanswered) <= 8 + connections.PIECE // len(asked)
    writer.transport.abort()


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop go on until something holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if holds():
                return
            await asyncio.sleep(0)


def connections_made(monkeypatch: pytest.MonkeyPatch) -> list[BoundedConnection]:
    """The connections that are made from now on."""
    made: list[BoundedConnection] = []
    begin = BoundedConnection.connection_made

    def remember(connection: BoundedConnection, transport: asyncio.Transport) -> None:
        made.append(connection)
        begin(connection, transport)

    monkeypatch.setattr(BoundedConnection, "connection_made", remember)
    return made


async def test_a_request_that_has_arrived_is_answered_before_the_end(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is told to end sends the answers that are under way first."""
    made = connections_made(monkeypatch)
    reader, writer = await asyncio.open_connection("127.0.0.1", here.client.base_url.port)
    writer.write(request("PUT", "/v1/kv/trivia/a", b"1"))
    await until(lambda: bool(made) and made[0].standing[0])
    made[0].shutdown()
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_service_that_stops_while_a_body_arrives(here: Served) -> None:
    """A request whose body comes after the service has stopped is refused as one that may be repeated."""
    reader, writer = await asyncio.open_connection("127.0.0.1", here.client.base_url.port)
    whole = request("PUT", "/v1/kv/trivia/a", b"12345")
    writer.write(whole[:-1])
    await here.ask("GET", "/v1/kv/trivia/a")  # the head has been read by now
    service, here.api.service = here.api.service, None
    writer.write(whole[-1:])
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 503")
    here.api.service = service
    writer.close()


def test_only_the_verbs_take_the_shortcut() -> None:
    """A door without verbs has no shortcut."""
    assert Door(lambda *_: None).fast_path is None  # type: ignore[arg-type]
