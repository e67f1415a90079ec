"""The server over stdin and stdout, for a client that starts it as a process.

Stdout carries the protocol alone; everything for people goes to stderr. Arguments and results of tools bypass
the SDK, as over HTTP.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from anyio import wrap_file
from mcp.server import Server
from mcp.server.stdio import stdio_server

from holdfast.edges.mcp.bypass import SdkBypass
from holdfast.edges.mcp.callers import ToolCaller
from holdfast.edges.mcp.memory import MemoryHandlers
from holdfast.edges.mcp.server import Handlers

_IN: Final = 0
_OUT: Final = 1
_ERRORS: Final = 2


async def serve_stdio(caller: ToolCaller, *, memory: bool = False) -> int | None:
    """Serve one caller until its client closes stdin, or until SIGINT or SIGTERM.

    Args:
        caller: The caller.
        memory: Whether the tools are those of a memory, instead of those of the catalogue.

    Returns:
        The signal, if there was one. The caller must then end the process with `os._exit`: a thread still
        waits for a line from stdin, and nothing can end that wait.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped, number)
    handlers = MemoryHandlers if memory else Handlers
    server = handlers(lambda ctx: caller).server()
    serving = asyncio.create_task(_serve(server, caller.bypass), name="holdfast mcp stdio")
    await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        return stopped.result()
    serving.result()
    return None


async def _serve(server: Server[object], bypass: SdkBypass) -> None:
    with _own_streams() as (lines, out):
        reading: Any = _Lines(lines, bypass)
        writing: Any = _Out(out, bypass)
        async with stdio_server(reading, writing) as (received, sent):
            await server.run(received, sent, server.create_initialization_options())


@contextmanager
def _own_streams() -> Iterator[tuple[int, int]]:
    """Take stdin and stdout for the protocol: whoever else writes to stdout meanwhile writes to stderr.

    The descriptors are not closed: a thread may still wait for a line.
    """
    lines, out, nothing = os.dup(_IN), os.dup(_OUT), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _IN)
    os.dup2(_ERRORS, _OUT)
    os.close(nothing)
    try:
        yield lines, out
    finally:
        os.dup2(lines, _IN)
        os.dup2(out, _OUT)


class _Lines:
    """The lines of stdin, with marks in place of arguments."""

    def __init__(self, descriptor: int, bypass: SdkBypass) -> None:
        self._file = wrap_file(os.fdopen(descriptor, "rb", closefd=False))
        self._bypass = bypass

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._file:
            yield self._bypass.take(line).body.decode(errors="replace")


class _Out:
    """Stdout, with results in place of their marks."""

    def __init__(self, descriptor: int, bypass: SdkBypass) -> None:
        self._file = wrap_file(os.fdopen(descriptor, "wb", closefd=False))
        self._bypass = bypass

    async def write(self, line: str) -> None:
        await self._file.write(self._bypass.give(line.encode()))

    async def flush(self) -> None:
        await self._file.flush()


def _stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)
