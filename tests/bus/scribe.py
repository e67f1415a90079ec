"""Somebody in the place of a server, who notes what it is sent and says what it is told to.

It speaks just enough of the protocol to be connected to; what must hold stands in the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INFO = {"server_id": "s", "version": "2.14.0", "max_payload": 1_048_576, "headers": True}


class Scribe:
    """Greets, answers pings, and notes each line that it was sent. `info` adds to what it says of itself."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None] | None] = []
        self.silent = False
        self.greeting: bytes | None = None
        self.info: dict[str, Any] = {}
        self.answer = b"PONG\r\n"
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"nats://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.writers.append(writer)
        self.tasks.append(asyncio.current_task())
        writer.write(self.greeting or b"INFO " + json.dumps(INFO | self.info).encode() + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self.lines.append(line.strip())
                if line == b"PING\r\n" and not self.silent:
                    writer.write(self.answer)
        writer.close()

    def say(self, text: bytes) -> None:
        """Say something to whoever came last."""
        self.writers[-1].write(text)

    def verbs(self) -> list[bytes]:
        """The first words of what it was sent."""
        return [line.partition(b" ")[0] for line in self.lines if line]


@contextlib.asynccontextmanager
async def scribe() -> AsyncIterator[Scribe]:
    """A scribe for the length of a block."""
    who = Scribe()
    server = await asyncio.start_server(who.serve, "127.0.0.1", 0, limit=2**20)
    who.port = server.sockets[0].getsockname()[1]
    try:
        yield who
    finally:
        server.close()
        for writer in who.writers:
            writer.close()
        await asyncio.gather(*filter(None, who.tasks))
