"""A real nats-server for tests, benchmarks and the soak, and clients that speak to it.

Everything about running that server for a while and connecting to it stands here, and nothing about
pytest. Each server is its user's alone, on a free port of 127.0.0.1, in a temporary folder.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import nkeys  # type: ignore[import-untyped]
from nats.aio.client import Client

from holdfast.bus.connection import Connection
from holdfast.bus.login import Login
from holdfast.edges.nats.server import NatsServer
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.edges.nats.server_config import Credentials

C = TypeVar("C", bound=Client)


@contextlib.asynccontextmanager
async def nats_server(config: str | None = None) -> AsyncIterator[NatsServer]:
    """Run a nats-server for the length of a block; it can be stopped, killed and started again meanwhile.

    Args:
        config: The text of its configuration; without one anybody may do anything.

    Raises:
        RuntimeError: It does not start; the message holds its log.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-nats-") as folder:
        server = NatsServer(Path(folder), port=None, config=config)
        try:
            await server.start()
        except Unavailable as error:
            raise RuntimeError(f"{error}:\n{server.log.read_text()}") from error
        try:
            yield server
        finally:
            await server.stop()


@contextlib.contextmanager
def lasting_nats_server() -> Iterator[str]:
    """The address of a nats-server that outlives the event loops of those who use it one after the other."""
    with lasting_server() as server:
        yield server.url


@contextlib.contextmanager
def lasting_server(config: str | None = None) -> Iterator[NatsServer]:
    """Such a server itself; those who use it can't stop it."""
    with asyncio.Runner() as runner:
        servers = nats_server(config)
        server = runner.run(servers.__aenter__())
        try:
            yield server
        finally:
            runner.run(servers.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def connection(url: str, credentials: Credentials | None = None) -> AsyncIterator[Connection]:
    """A connection of our own for the length of a block, quiet about what the server refuses."""
    inbox = "_INBOX" if credentials is None else credentials.inbox
    one = Connection(inbox=inbox, on_error=lambda error: None)
    await one.reach(url, login_of(credentials))
    try:
        yield one
    finally:
        await one.close()


def login_of(credentials: Credentials | None) -> Login:
    """How our own connection logs in with these."""
    if credentials is None:
        return Login()
    if credentials.public is None:
        return Login(user=credentials.entry()["user"], password=credentials.secret)
    return Login(nkey=credentials.secret)


class LibraryClient(Client):
    """The library that plugins use, with a flush that is a barrier.

    Its own PING goes out ahead of what waits to be sent; a second one goes behind that.
    """

    async def flush(self, timeout: int = 10) -> None:  # noqa: ASYNC109 - as the library has it
        """Return when the server has seen all that was sent."""
        await super().flush(timeout)
        await super().flush(timeout)


@contextlib.asynccontextmanager
async def library_client(url: str, credentials: Credentials | None = None) -> AsyncIterator[LibraryClient]:
    """Such a client for the length of a block."""
    async with connected(LibraryClient(), url, credentials) as client:
        yield client


@contextlib.asynccontextmanager
async def connected(client: C, url: str, credentials: Credentials | None = None) -> AsyncIterator[C]:
    """A client of the library, quiet about what the server refuses: tests look at what is delivered."""
    known = {} if credentials is None else credentials.options()
    await client.connect(url, error_cb=_quiet, **known)
    try:
        yield client
    finally:
        await client.close()


class Wire:
    """A bare connection that sends bytes as they are given: what no client library would let out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str, credentials: Credentials | None = None) -> AsyncIterator[Wire]:
        """A connection for the length of a block, let in with these credentials."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            greeting = json.loads((await reader.readline()).removeprefix(b"INFO "))
            hello = {"verbose": False, "pedantic": False, "headers": True, **_login(credentials, greeting)}
            wire = cls(reader, writer)
            await wire.settle(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
            yield wire
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def send(self, line: bytes, payload: bytes = b"") -> None:
        """Send a control line, and a payload after it if the line announces one."""
        self._writer.write(line + b"\r\n" + payload)

    def publish(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        """Publish a message, whatever is in its subjects."""
        self.send(b"PUB %b %b %d" % (subject, reply, len(payload)), payload + b"\r\n")

    async def settle(self, last: bytes = b"") -> list[bytes]:
        """Wait until the server has dealt with all that was sent, and return what it said.

        Args:
            last: Bytes to send in one write with the PING. A server that refuses them has then read all there
                is, and closes in a way that leaves its reason readable.

        Raises:
            ConnectionError: The server has hung up.
        """
        self._writer.write(last + b"PING\r\n")
        said: list[bytes] = []
        while (line := await self._reader.readline()) != b"PONG\r\n":
            if not line:
                raise ConnectionResetError(f"the server has hung up after {said}")
            said.append(line)
        return said


def _login(credentials: Credentials | None, greeting: dict[str, Any]) -> dict[str, str]:
    if credentials is None:
        return {}
    if credentials.public is None:
        return {"user": credentials.entry()["user"], "pass": credentials.secret}
    signature = nkeys.from_seed(credentials.secret.encode()).sign(greeting["nonce"].encode())
    return {"nkey": credentials.public, "sig": base64.urlsafe_b64encode(signature).decode().rstrip("=")}


async def _quiet(error: Exception) -> None:
    """Take note of nothing."""
