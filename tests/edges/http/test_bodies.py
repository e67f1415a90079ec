"""Bodies that arrive together: their memory is bounded, all of them arrive, and short requests pass them."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.edges.http import api
from holdfast.edges.http.connections import BODIES, HttpLimits
from holdfast.edges.http.server import http_server
from holdfast.edges.intake.requests import Request
from tests.edges.test_http_bounds import Client, clients
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from tests.edges.http.ground import Served

LARGEST: Final = 200_000
MANY: Final = 2 * BODIES
"""Number of clients, whose bodies have room for half of them."""
PATIENCE: Final = 60.0
HEAD: Final = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGEST}\r\n\r\n".encode()
SHORT: Final = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
BODY: Final = b"x" * LARGEST


class Holding:
    """An application that keeps the bodies of large requests, and answers those when it may."""

    def __init__(self) -> None:
        self.port = free_port()
        self.held = 0
        self.may = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the body, and answer."""
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            self.held += len(message["body"])
            more = message["more_body"]
        if size == LARGEST:
            await self.may.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def app() -> AsyncIterator[Holding]:
    """The application, served."""
    app = Holding()
    limits = HttpLimits(body_bytes=LARGEST, answer_seconds=PATIENCE)
    async with http_server(app, host="127.0.0.1", port=app.port, limits=limits):
        yield app


async def answered(client: Client) -> None:
    """Wait for an answer."""
    async with asyncio.timeout(PATIENCE):
        head = await client[0].readuntil(b"\r\n\r\nok")
    assert head.startswith(b"HTTP/1.1 200 ")


async def settled(app: Holding) -> int:
    """Wait until no more bytes arrive; their number."""
    async with asyncio.timeout(PATIENCE):
        while True:
            before = app.held
            async with clients(app.port, 1, send=SHORT) as [client]:
                await answered(client)
            await asyncio.sleep(0.02)
            if app.held == before + 2:
                return app.held


async def test_bodies_are_bounded_together(app: Holding) -> None:
    """While the bodies of many clients wait, no more of them are read; a short request passes them."""
    async with clients(app.port, MANY, send=HEAD + BODY) as made:
        held = await settled(app)
        assert BODIES * LARGEST / 2 < held < BODIES * LARGEST + MANY * 65_536
        assert held < MANY * LARGEST
        app.may.set()
        for client in made:
            await answered(client)


async def test_requests_of_one_client_are_bounded(app: Holding) -> None:
    """A client that sends many large requests without waiting has no more room than many clients."""
    async with clients(app.port, 1, send=(HEAD + BODY) * MANY) as [client]:
        assert await settled(app) < (BODIES + 1) * LARGEST + 65_536
        app.may.set()
        for _ in range(MANY):
            await answered(client)


async def test_bodies_that_arrive_slowly_all_arrive(app: Holding) -> None:
    """Clients that have each sent a part, and together filled the room, can all send the rest."""
    app.may.set()
    async with clients(app.port, MANY, send=HEAD + BODY[:150_000]) as made:
        await settled(app)
        for _, writer in reversed(made):
            writer.write(BODY[150_000:])
        for client in made:
            await answered(client)


async def test_clients_that_go_make_room(app: Holding) -> None:
    """The room of clients that are gone is free again."""
    async with clients(app.port, MANY, send=HEAD + BODY[:150_000]):
        await settled(app)
    app.may.set()
    async with clients(app.port, MANY, send=HEAD + BODY) as made:
        for client in made:
            await answered(client)


class Mark(str):
    """A text in a request, of which can be told whether it is still there."""


@pytest.mark.parametrize("body", [b"[" * 20_000, b" " * 20_000 + b"{}"], ids=["not JSON", "no items"])
async def test_a_refused_request_is_forgotten(
    here: Served, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """Nothing of a request that was refused stays in memory: a flood of them would fill it."""
    seen: list[weakref.ref[Mark]] = []

    def made(**fields: Any) -> Request:
        mark = Mark(fields["user"])
        seen.append(weakref.ref(mark))
        return Request(**fields | {"user": mark})

    monkeypatch.setattr(api, "Request", made)
    for _ in range(5):
        assert (await here.ask("POST", "/v1/kv/trivia:set_many", body)).status_code == 400
    await asyncio.sleep(0)
    assert len(seen) == 5
    assert [one() for one in seen[:4]] == [None] * 4
