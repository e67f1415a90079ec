"""Official clients of MCP servers in this process, one for each plugin or project.

Everything goes through the client of the SDK, as an agent's does; nothing about pytest.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp import Client
from mcp_types import Implementation

from holdfast.edges.mcp.callers import StoreCaller
from holdfast.edges.mcp.server import Handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp_types import CallToolResult

    from holdfast.handles.kv import KV
    from holdfast.store import Store

MODERN = "2026-07-28"
LEGACY = "legacy"
REVISIONS = (MODERN, LEGACY)
"""The two ways to speak the protocol: without a handshake and with one."""


class Agent:
    """A client, and what it calls tools for."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must not count as failed; its structured content."""
        result = await self.result(tool, **arguments)
        assert not result.is_error, result
        found: dict[str, Any] = result.structured_content
        return found

    async def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must fail; its structured content."""
        result = await self.result(tool, **arguments)
        assert result.is_error, result
        found: dict[str, Any] = result.structured_content
        return found

    async def result(self, tool: str, /, **arguments: Any) -> CallToolResult:
        """Call a tool."""
        return await self.client.call_tool(tool, arguments)


@asynccontextmanager
async def agent(
    store: Store,
    kv: KV | None = None,
    *,
    mode: str = MODERN,
    name: str = "tester",
    read_only: bool = False,
    writer: str | None = None,
    **options: Any,
) -> AsyncIterator[Agent]:
    """Connect a client to a server of its own within an `async with` block."""
    caller = StoreCaller(store, kv or store.kv("trivia"), read_only=read_only, writer=writer)
    server = Handlers(lambda ctx: caller).server()
    info = Implementation(name=name, version="1")
    async with Client(server, mode=mode, client_info=info, **options) as client:
        yield Agent(client)
