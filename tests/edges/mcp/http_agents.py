"""Official clients at the door of a service, each with a token.

Everything goes through the client of the SDK, as an agent's does; nothing about pytest.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.edges.mcp.agents import MODERN, Agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.edges.http.ground import Served

PATIENCE = 60.0


async def token_for(here: Served, plugin: str | None = "trivia", **limits: Any) -> str:
    """A token, for a plugin unless something else is named."""
    owner = {} if limits.keys() & {"tenant", "operator"} else {"plugin": plugin}
    return (await here.store.tokens().create(**owner, **limits)).token  # type: ignore[arg-type]


@asynccontextmanager
async def agent(
    here: Served, token: str | None, *, path: str = "/mcp", mode: str = MODERN, **options: Any
) -> AsyncIterator[Agent]:
    """Connect the official client with a token within an `async with` block."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE, verify=False) as http:
        transport = streamable_http_client(here.url + path, http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield Agent(client)
