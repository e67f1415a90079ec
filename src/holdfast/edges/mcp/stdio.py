"""The server over stdin and stdout, for a client that starts it as a process.

Law: stdout carries the protocol alone; everything for people goes to stderr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.stdio import stdio_server

from holdfast.edges.mcp.server import Handlers

if TYPE_CHECKING:
    from holdfast.edges.mcp.callers import ToolCaller


async def serve_stdio(caller: ToolCaller) -> None:
    """Serve one caller until its client closes stdin."""
    server = Handlers(lambda ctx: caller).server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
