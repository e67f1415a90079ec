"""Real nats-servers with JetStream for tests of the cluster: one alone, or three that form a cluster.

Everything about running them stands here, and nothing about pytest. They listen on free ports of
127.0.0.1, keep their files in a temporary folder, and can be killed, stopped and started again one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.edges.nats.server import NatsServer
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Servers:
    """Servers with JetStream on this machine."""

    def __init__(
        self, folder: Path, number: int, *, lazy: bool = False, max_payload: int = 1_048_576, more: str = ""
    ) -> None:
        self._routes = [free_port() for _ in range(number)]
        self.monitors = [free_port() for _ in range(number)]
        self.servers = [
            NatsServer(
                folder / str(position),
                port=free_port(),
                name=f"server-{position}",
                config=_config(folder, position, self._routes, self.monitors[position], lazy=lazy)
                + f"max_payload: {max_payload}\n{more}\n",
            )
            for position in range(number)
        ]

    async def start(self) -> None:
        """Start all of them."""
        await asyncio.gather(*(server.start() for server in self.servers))

    async def stop(self) -> None:
        """Stop all of them, those that are halted too."""
        for position in range(len(self.servers)):
            self.go_on(position)
        await asyncio.gather(*(server.stop() for server in self.servers))

    def kill(self, position: int) -> None:
        """End a server without a warning."""
        with contextlib.suppress(ProcessLookupError):
            self.servers[position].process.kill()

    async def start_again(self, position: int) -> None:
        """Start a server that was killed."""
        await self.servers[position].process.wait()
        await self.servers[position].start()

    def halt(self, position: int) -> None:
        """Stop a server's process where it is."""
        with contextlib.suppress(ProcessLookupError):
            self.servers[position].process.send_signal(signal.SIGSTOP)

    def go_on(self, position: int) -> None:
        """Let a halted process go on."""
        with contextlib.suppress(ProcessLookupError, RuntimeError):
            self.servers[position].process.send_signal(signal.SIGCONT)

    def url(self, name: str, folder: Path, **options: object) -> str:
        """The address of a node of a store, whose replica is kept in a folder."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        monitors = ",".join(map(str, self.monitors))
        more = "".join(f"&{option}={value}" for option, value in options.items())
        return f"cluster://{hosts}/{name}?data={folder}&monitor={monitors}{more}"


@contextlib.asynccontextmanager
async def servers_running(number: int, **options: Any) -> AsyncIterator[Servers]:
    """So many servers for the length of a block; see `Servers` for the options."""
    with tempfile.TemporaryDirectory(prefix="holdfast-js-") as folder:
        servers = Servers(Path(folder), number, **options)
        try:
            await servers.start()
            yield servers
        finally:
            await servers.stop()


@contextlib.contextmanager
def lasting_servers(number: int, **options: Any) -> Iterator[Servers]:
    """Servers that outlive the event loops of those who use them one after the other."""
    with asyncio.Runner() as runner:
        running = servers_running(number, **options)
        servers = runner.run(running.__aenter__())
        try:
            yield servers
        finally:
            runner.run(running.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def older(port: int) -> AsyncIterator[int]:
    """A port that passes on what the server at another one says, but for its version: 2.14."""

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(re.sub(rb'("version": ?"2\.)\d\d', rb"\g<1>14", data))
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(passed(reader, here), passed(there, writer))

    relay = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with relay:
        yield relay.sockets[0].getsockname()[1]


def _config(folder: Path, position: int, routes: list[int], monitor: int, *, lazy: bool) -> str:
    sync = "2m" if lazy else "always"
    text = f"""
        http: "127.0.0.1:{monitor}"
        jetstream {{ store_dir: "{folder}/js{position}", sync_interval: {sync} }}
    """
    if len(routes) > 1:
        others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        text += f"""
        cluster {{ name: "tests", listen: "127.0.0.1:{routes[position]}", routes: [{others}] }}
        """
    return text
