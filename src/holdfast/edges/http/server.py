"""The HTTP server, run inside the service's event loop.

It owns its socket and nothing else. The service handles signals. Requests are not logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import socket
import ssl
from collections.abc import AsyncIterator, Generator
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from holdfast.edges.http.app import Door
from holdfast.edges.http.connections import Bodies, BoundedConnection, HttpLimits, ReadingTurns
from holdfast.errors import Unavailable, ValidationError

BACKLOG: Final = 128
"""Length of the listen queue, which is also the number of connections accepted at a time."""
GRACE: Final = 2
"""Seconds that a request may still take when the server stops."""

USUAL_LIMITS: Final = HttpLimits()
"""The default limits."""


class _Server(uvicorn.Server):
    """A server that ignores signals and reports when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@contextlib.asynccontextmanager
async def http_server(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    limits: HttpLimits = USUAL_LIMITS,
) -> AsyncIterator[None]:
    """Serve an application within an `async with` block, over TLS if there is a context for it.

    Raises:
        Unavailable: The port is taken.
        ValidationError: There is no such address on this machine.
    """
    listener = _listen(host, port)
    fast_path = app.fast_path if isinstance(app, Door) else None
    connection: Any = partial(
        BoundedConnection,
        limits=limits,
        turns=ReadingTurns(),
        bodies=Bodies(limits.body_bytes),
        fast_path=fast_path,
    )
    config = uvicorn.Config(
        app,
        http=connection,
        backlog=BACKLOG,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=math.ceil(limits.idle_seconds),
    )
    if tls is not None:
        config.load()
        config.ssl = tls
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]), name="holdfast http")
    try:
        await server.up.wait()
        yield
    finally:
        server.should_exit = True
        await task


def tls_context(cert: str, key: str | None) -> ssl.SSLContext:
    """Return the context for a certificate in these files.

    Raises:
        ValidationError: The files can't be read, or don't belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError):
        raise ValidationError(
            f"http_tls_cert: {cert} can't be used: it must be a file with a certificate in PEM form, and its "
            "key must be there too or in the file that http_tls_key names",
            field="http_tls_cert",
        ) from None
    return context


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"port {port} of {host} is taken by another program; stop it, or choose another port "
                "with --http-port"
            ) from None
        reason = (error.strerror or "there is no such address").lower()
        raise ValidationError(
            f"http_host: can't listen at {host} port {port}: {reason}", field="http_host"
        ) from None
    # asyncio sets this only on sockets that name their protocol. Without it, a reply waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
