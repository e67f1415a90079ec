"""The server over stdin and stdout, for a client that starts it as a process.

Law: stdout carries the protocol alone; everything for people goes to stderr.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from mcp.server.stdio import stdio_server

from holdfast.edges.mcp.server import Handlers

if TYPE_CHECKING:
    from mcp.server import Server

    from holdfast.edges.mcp.callers import ToolCaller


async def serve_stdio(caller: ToolCaller) -> int | None:
    """Serve one caller until its client closes stdin, or until SIGINT or SIGTERM.

    Returns:
        The signal, if there was one. The caller must then end the process with `os._exit`: a thread still
        waits for a line from stdin, and nothing can end that wait.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped, number)
    serving = asyncio.create_task(_serve(Handlers(lambda ctx: caller).server()), name="holdfast mcp stdio")
    await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        return stopped.result()
    serving.result()
    return None


async def _serve(server: Server[object]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)
