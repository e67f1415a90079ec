"""A bare echo over NATS, as a process of its own: what a service that does nothing would take.

Law: bare sockets, and nothing of Holdfast. It answers each message with its own payload, and ends with its
connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SUBJECT: Final = "echo"
USER: Final = "echo"
ACCOUNT: Final = f'  "ECHO": {{ users: [ {{ user: "{USER}", password: "{USER}" }} ] }}\n'
"""An account of its own in a server's configuration, where nobody can disturb it."""


def echo(port: int) -> None:
    """Answer until the server is gone."""
    wire = socket.create_connection(("127.0.0.1", port))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.recv(65_536)
    hello = f'CONNECT {{"verbose":false,"pedantic":false,"user":"{USER}","pass":"{USER}"}}\r\n'
    wire.sendall(f"{hello}SUB {SUBJECT} 1\r\nPING\r\n".encode())
    held = b""
    while data := wire.recv(65_536):
        held += data
        while (end := held.find(b"\r\n")) >= 0:
            words = held[:end].split(b" ")
            if words[0] == b"MSG":
                after = end + 2 + int(words[-1])
                if len(held) < after + 2:
                    break
                wire.sendall(b"PUB %b %b\r\n%b\r\n" % (words[3], words[-1], held[end + 2 : after]))
                held = held[after + 2 :]
                continue
            if words[0] == b"PING":
                wire.sendall(b"PONG\r\n")
            elif words[0] == b"PONG":
                print("ready", flush=True)
            held = held[end + 2 :]


@contextlib.asynccontextmanager
async def echoing(port: int) -> AsyncIterator[None]:
    """Such a process for the length of a block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.robustness.echo_process", str(port)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    echo(int(sys.argv[1]))
