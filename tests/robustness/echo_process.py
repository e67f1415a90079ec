"""A bare echo over NATS, as a process of its own: what a service that decides nothing would take.

A message at `echo.get` is answered at once. One at `echo.set` is answered after a thread has written a page
to a file and waited for the disk, which is what the machine has to do for any write that is kept. So the
echo needs the same trips as the service: to the NATS server, to the event loop, to a thread, to the disk
and back.

The standard library, and nothing of Holdfast. It answers each message with its own payload, and ends
with its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.nats.server_config import Mode

SUBJECT: Final = "echo"
USER: Final = "echo"
"""The user that asks the echo; its password is the same."""
_SERVER: Final = "echo_server"
_ACCOUNT: Final = "HOLDFAST"
"""The account of the service."""
PAGE: Final = b"x" * 4096


def admitted(configuration: str, mode: Mode) -> str:
    """A server's configuration that lets the echo in, as the mode lets the service and plugins in.

    The echo is a user of the service's account. With accounts, its callers have an account of their own
    that imports the echo's subjects, so that each message crosses accounts as a plugin's does. The server has
    messages that do so wait for each other.
    """
    server, caller = (f'{{ user: "{user}", password: "{user}" }}' for user in (_SERVER, USER))
    if mode == "permissions":
        return configuration.replace("    users: [\n", f"    users: [\n      {server}\n      {caller}\n", 1)
    imported = f'{{ service: {{ account: "{_ACCOUNT}", subject: "{SUBJECT}.*" }} }}'
    for before, added in (
        ("    users: [\n", f"      {server}\n"),
        ("    exports: [\n", f'      {{ service: "{SUBJECT}.*", response_threshold: "30s" }}\n'),
        ("accounts: {\n", f'  "ECHO": {{ users: [ {caller} ], imports: [ {imported} ] }}\n'),
    ):
        configuration = configuration.replace(before, before + added, 1)
    return configuration


async def echo(port: int, path: str) -> None:
    """Answer until the server is gone.

    Args:
        port: The port of the NATS server.
        path: The file to write to.
    """
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    hello = f'CONNECT {{"verbose":false,"pedantic":false,"user":"{_SERVER}","pass":"{_SERVER}"}}\r\n'
    writer.write(f"{hello}SUB {SUBJECT}.* 1\r\nPING\r\n".encode())
    while line := await reader.readline():
        words = line.split()
        if words[0] == b"MSG":
            payload = (await reader.readexactly(int(words[-1]) + 2))[:-2]
            if words[1] == f"{SUBJECT}.set".encode():
                await asyncio.to_thread(_keep, file)
            writer.write(b"PUB %b %b\r\n%b\r\n" % (words[3], words[-1], payload))
        elif words[0] == b"PING":
            writer.write(b"PONG\r\n")
        elif words[0] == b"PONG":
            print("ready", flush=True)


def _keep(file: int) -> None:
    os.write(file, PAGE)
    os.fdatasync(file)


@contextlib.asynccontextmanager
async def echoing(port: int, folder: Path) -> AsyncIterator[None]:
    """Such a process for the length of a block, which writes to a file in this folder."""
    process = await ForkedProcess.start("tests.robustness.echo_process", str(port), str(folder / "echo"))
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        asyncio.run(echo(int(sys.argv[1]), sys.argv[2]))
