"""A server as a child process that says `ready`.

What is started here is ended here, by its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping

PATIENCE = 30.0


@contextlib.asynccontextmanager
async def module(name: str, *arguments: str) -> AsyncIterator[Process]:
    """A Python module as a process, once it has said that it is ready."""
    async with program(sys.executable, "-m", name, *arguments) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        if line != b"ready\n":
            raise RuntimeError(f"{name} did not start")
        yield process


@contextlib.asynccontextmanager
async def program(*command: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Process]:
    """A program as a process."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def accepting(port: int) -> None:
    """Wait until somebody accepts connections on a port of this machine."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number
