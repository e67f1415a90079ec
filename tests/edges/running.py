"""A `holdfast up` as a process of its own, on free ports and with none of the user's settings.

Only what is needed to start it, to speak to it and to end it; nothing about pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats

from holdfast.edges.nats.cluster_server import MONITOR_OFFSET
from tests.forking import ForkedProcess
from tests.ports import free_port

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

PATIENCE = 60.0
LAST_LINE = "Ctrl-C stops."


class Up:
    """The process, where it listens, and what it said.

    It is forked; an interpreter is started only for a subclass that says so or that calls another command.
    """

    started = False

    def __init__(self, home: Path, arguments: tuple[object, ...], variables: dict[str, str]) -> None:
        self.home = home
        self.nats_port, self.http_port = free_port(apart=MONITOR_OFFSET), free_port()
        self.url = f"nats://127.0.0.1:{self.nats_port}"
        self.said: list[str] = []
        self._arguments = arguments
        self._variables = variables
        self._process: Process | ForkedProcess | None = None
        self.module = "holdfast"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.complaints.splitlines() if line.startswith("{")]

    @property
    def complaints(self) -> str:
        """All of its stderr."""
        return (self.home / "stderr").read_text()

    async def start(self) -> None:
        """Start it, and wait until it has said what there is to say."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._process = await self._run()
        assert self._process.stdout is not None
        self.said = []
        while LAST_LINE not in self.said:
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
            assert line, f"it ended at once: {self.complaints}"
            self.said.append(line.decode().rstrip("\n"))

    async def ended(self) -> tuple[int, str]:
        """Start it, though it can't be: its exit code, and the last line that it complained with."""
        process = await self._run()
        await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        code = process.returncode
        return code, self.complaints.splitlines()[-1]

    async def _run(self) -> Process | ForkedProcess:
        command, env = self._command(), self._environment()
        with (self.home / "stderr").open("wb") as errors:
            if not self.started and command[:3] == [sys.executable, "-m", "holdfast"]:
                return await ForkedProcess.start(
                    "holdfast", *command[3:], env=env, cwd=self.home, stderr=errors.fileno()
                )
            return await asyncio.create_subprocess_exec(
                *command, env=env, cwd=self.home, stdout=asyncio.subprocess.PIPE, stderr=errors
            )

    async def stop(self, number: int = signal.SIGINT) -> int:
        """Tell it to stop, and wait: its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        rest, _ = await asyncio.wait_for(self._process.communicate(), PATIENCE)
        self.said += rest.decode().splitlines()
        assert self._process.returncode is not None
        return self._process.returncode

    async def kill(self) -> None:
        """Kill it and the server that it brought along: what still waits after a flood is not worked off."""
        assert self._process is not None
        self._process.kill()
        await self._process.communicate()
        os.kill(self.server_pid(), signal.SIGKILL)

    def server_pid(self) -> int:
        """The process of the nats-server that it brought along."""
        brought = self.home / "holdfast" / "nats" / str(self.nats_port) / "nats-server.pid"
        return int(brought.read_text())

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def http(self, path: str) -> tuple[int, str]:
        """The status and the text of an answer over HTTP."""
        return await get(self.http_port, path)

    def _command(self) -> list[str]:
        ports = ["--http-port", str(self.http_port)]
        if "--no-nats" not in self._arguments:
            ports += ["--nats-port", str(self.nats_port)]
        return [sys.executable, "-m", self.module, "up", *ports, *map(str, self._arguments)]

    def _environment(self) -> dict[str, str]:
        unwanted = ("HOLDFAST_", "NATS_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        # A busy machine may take longer than the usual second to begin with a request.
        own = {"XDG_DATA_HOME": str(self.home), "HOLDFAST_DEADLINE_MS": "60000"}
        return kept | own | self._variables


class StartedUp(Up):
    """One that an interpreter is started for: its memory and its speed are those that users see."""

    started = True


@contextlib.asynccontextmanager
async def holdfast_up(home: Path, *arguments: object, **variables: str) -> AsyncIterator[Up]:
    """A running `holdfast up` for the length of a block.

    Args:
        home: An empty folder: its data folder and its working folder.
        *arguments: What else it is called with.
        **variables: What else is in its environment.
    """
    async with _running(Up(home, arguments, variables)) as up:
        yield up


@contextlib.asynccontextmanager
async def started_up(
    home: Path, *arguments: object, module: str = "holdfast", **variables: str
) -> AsyncIterator[Up]:
    """The same, with an interpreter that is started for it, and that may run another module."""
    started = StartedUp(home, arguments, variables)
    started.module = module
    async with _running(started) as up:
        yield up


@contextlib.asynccontextmanager
async def _running(up: Up) -> AsyncIterator[Up]:
    await up.start()
    try:
        yield up
    finally:
        await up.stop(signal.SIGTERM)


async def get(port: int, path: str) -> tuple[int, str]:
    """Ask a server of this machine over HTTP."""

    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    return await asyncio.to_thread(fetch)


async def until_status(port: int, path: str, status: int) -> str:
    """Ask over HTTP again and again until the status is this one: the text that came with it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found, text = await get(port, path)
            if found == status:
                return text
            await asyncio.sleep(0.05)


async def ask(client: Client, subject: str, **fields: Any) -> dict[str, Any]:
    """A request as any NATS client would make it, and its reply."""
    reply = await client.request(subject, json.dumps(fields).encode(), timeout=PATIENCE)
    found: dict[str, Any] = json.loads(reply.data)
    return found


@contextlib.asynccontextmanager
async def plain_client(url: str, **options: Any) -> AsyncIterator[Client]:
    """A connection of the plain NATS library for the length of a block."""
    client = await nats.connect(url, **options)
    try:
        yield client
    finally:
        await client.close()
