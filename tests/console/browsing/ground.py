"""A service with a sample store that all browser tests of a process share, and how one logs in to it.

Only what is needed to reach it; nothing about pytest. Every caller of the service needs a token.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tests.console import sample
from tests.edges.http.ground import served
from tests.nats import nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.browser import Window
    from tests.edges.http.ground import Served

OWN_PAGE = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
"""The headers of a request that a page of the service causes."""


class Console:
    """The service, and the token of an operator."""

    def __init__(self, service: Served, token: str) -> None:
        self.service = service
        self.store = service.store
        self.url = service.url
        self.token = token

    async def enter(self, window: Window, token: str | None = None) -> Window:
        """Log a window in, without the form."""
        answer = await window.page.request.post(
            f"{self.url}/ui/login", data={"token": token or self.token}, headers=OWN_PAGE
        )
        assert answer.ok, await answer.text()
        return window

    async def json(self, path: str) -> dict[str, Any]:
        """The JSON of a page, for the operator."""
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self.token}"}
        answer = await self.service.client.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def call(self, path: str, fields: dict[str, Any]) -> None:
        """Call a verb as the operator."""
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = await self.service.client.post(path, json=fields, headers=headers)
        assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def console(folder: Path) -> AsyncIterator[Console]:
    """Serve a sample store within an `async with` block."""
    async with (
        nats_server() as bus,
        served(folder / "state.db", bus.url, open_mode=False) as service,
    ):
        await sample.fill(service.store)
        made = await service.store.tokens().create(operator=True)
        found = Console(service, made.token)
        await sample.give_up(found.call)
        yield found


@contextlib.asynccontextmanager
async def site_of_another(html: str) -> AsyncIterator[str]:
    """The address of a web server of someone else that answers every request with this page."""
    body = html.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
    head += "Connection: close\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode() + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
