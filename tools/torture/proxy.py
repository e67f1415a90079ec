"""A way to a server on which answers can be lost: what the server has done, its client never hears of."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing import Self

_CHUNK = 65_536


class CuttingProxy:
    """A process that passes on connections to a server.

    Args:
        url: The server's address. `url` of this object is the same by way of the proxy.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = parts.hostname or "127.0.0.1", parts.port or 5432
        self._listening = socket.create_server(("127.0.0.1", 0))
        host = f"127.0.0.1:{self._listening.getsockname()[1]}"
        user = parts.netloc.rpartition("@")[0]
        self.url = parts._replace(netloc=f"{user}@{host}" if user else host).geturl()
        self._orders, self._order = os.pipe()
        self._heard, self._hear = os.pipe()
        self._left = 0
        self._pid = 0

    def __enter__(self) -> Self:
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):
                asyncio.run(self._serve())
            os._exit(0)
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._listening.close()
        for end in (self._orders, self._order, self._heard, self._hear):
            os.close(end)

    def cut_at(self, number: int) -> None:
        """Cut the connection on which the `number`th answer from now on arrives, which is lost with it.

        0 cuts none. Any process that was forked since may say so.
        """
        os.write(self._order, bytes([number]))
        os.read(self._heard, 1)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._orders, self._obey)
        server = await asyncio.start_server(self._connect, sock=self._listening)
        await server.serve_forever()

    def _obey(self) -> None:
        self._left = os.read(self._orders, 1)[0]
        os.write(self._hear, b".")

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            answers, requests = await asyncio.open_connection(*self._server)
            ends = [
                asyncio.create_task(_pass_on(reader, requests)),
                asyncio.create_task(self._pass_answers(answers, writer)),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            requests.transport.abort()
        writer.transport.abort()

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self._left:
                self._left -= 1
                if not self._left:
                    return
            writer.write(data)
            await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
