"""Somebody on the wire between a client and a NATS server, without any key, who reads along and alters bytes.

What it can do stands here, and what it must not achieve in the tests. It listens on 127.0.0.1 and passes
everything on but for what it was told to alter.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


def _as_it_is(data: bytes) -> bytes:
    return data


class Middle:
    """Passes on what both sides say; `alter` is given the first that the server says on each connection."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.alter: Callable[[bytes], bytes] = _as_it_is
        self.connections = 0
        self.heard = b""
        """All that the client's side has sent."""
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"nats://127.0.0.1:{self.port}"

    def be_honest(self) -> None:
        """Alter nothing any more."""
        self.alter = _as_it_is

    def cut(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        self._tasks.add(task) if (task := asyncio.current_task()) else None
        self.connections += 1
        self._writers.append(writer)
        with contextlib.suppress(OSError):
            there, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.append(to_server)
            greeting = await there.readline()
            writer.write(self.alter(greeting))
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, to_server, listen=True))
                both.create_task(self._pump(there, writer, listen=False))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, listen: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if listen:
                    self.heard += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def end(self) -> None:
        """End everything."""
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def middle(target: int) -> AsyncIterator[Middle]:
    """Such a one before a server's port, for the length of a block."""
    who = Middle(target)
    server = await asyncio.start_server(who.meet, "127.0.0.1", 0)
    who.port = server.sockets[0].getsockname()[1]
    try:
        yield who
    finally:
        server.close()
        await who.end()
