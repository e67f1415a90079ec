"""The nodes of a campaign, each a process with clients of its own.

A node has many lives; each has a name and histories of its own, so that what a killed one was doing is
known. One node keeps its replica on a small disk, where root allows that.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.cluster_proof.node import Plan

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from pathlib import Path

    from tests.cluster_proof.network import Host, Network
    from tests.cluster_proof.servers import ProofServers

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 90.0
DISK: Final = "size=384m"
SNAPSHOT_EVERY: Final = 400
"""The number of messages after which a node makes a snapshot and trims the log."""


class NodeFailed(Exception):
    """A node ended by itself, or did not start."""


class ProofNodes:
    """The nodes of a campaign.

    Args:
        network: The hosts, of which the servers have the first.
        servers: The servers.
        folder: The folder of the campaign.
        number: The number of nodes.
        options: What the plans of all nodes have in common: `seed`, `pace` and `plant`.
    """

    def __init__(
        self, network: Network, servers: ProofServers, folder: Path, *, number: int, options: dict[str, Any]
    ) -> None:
        self.number = number
        self.hosts: list[Host] = network.hosts[len(servers.all) :]
        self._servers = servers
        self._folder = folder
        self._options = {**options, "start": time.monotonic_ns()}
        self._processes: dict[int, Process] = {}
        self._lives: dict[int, int] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, int] = {}
        self._done: dict[str, asyncio.Event] = {}
        self.ahead: dict[int, float] = {}
        self.small_disk: Path | None = None

    @property
    def ended(self) -> int:
        """The number of operations that have ended by now."""
        return sum(self._ended.values())

    def data(self, number: int) -> Path:
        """Return the folder of a node."""
        return self._folder / f"node-{number}"

    async def _mount(self) -> None:
        folder = self.data(self.number - 1)
        folder.mkdir()
        mounted = await _called("mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(folder))
        self.small_disk = folder if mounted else None

    async def start(self) -> None:
        """Start all nodes, the last one on a small disk if this user may mount one."""
        await self._mount()
        for number in range(self.number):
            await self.launch(number)

    async def launch(self, number: int) -> None:
        """Start a node, again and again until it is ready: while servers elect a leader, it can't start."""
        end = time.monotonic() + START_SECONDS
        while not await self._begin(number):
            if time.monotonic() > end:
                name = f"{number}-{self._lives[number]}"
                raise NodeFailed(f"the node {number} does not start: see log-{name}.txt in {self._folder}")

    async def _begin(self, number: int) -> bool:
        """Start a life of a node. Return whether it is ready."""
        life = self._lives[number] = self._lives.get(number, 0) + 1
        name = f"{number}-{life}"
        self.data(number).mkdir(exist_ok=True)
        plan = Plan(
            url=self._servers.url(self.data(number) / "replica", timeout=5, snapshot_every=SNAPSHOT_EVERY),
            folder=str(self._folder),
            number=number,
            nodes=self.number,
            life=name,
            ahead=self.ahead.get(number, 0.0),
            **self._options,
        )
        with (self._folder / f"log-{name}.txt").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.hosts[number].command,
                *(sys.executable, "-m", "tests.cluster_proof.node", msgspec.json.encode(plan).decode()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._processes[number] = process
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            said = await process.stdout.readline()
        if said != b"ready\n":
            await self.kill(number)
            return False
        self._done[name] = asyncio.Event()
        self._readers[name] = asyncio.create_task(self._read(name, process))
        return True

    async def restart(self, number: int) -> None:
        """Kill a node, and start its next life."""
        await self.kill(number)
        await self.launch(number)

    async def kill(self, number: int) -> None:
        """End a node without a warning."""
        process = self._processes.pop(number, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def remove(self, number: int) -> None:
        """Have a node leave as an operator would, with all its files."""
        await self._stop_clients(number)
        await self._leave(number)
        shutil.rmtree(self.data(number))

    def halt(self, number: int) -> None:
        """Stop a node where it is."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """Let a node go on."""
        self._processes[number].send_signal(signal.SIGCONT)

    def require(self) -> None:
        """Raise an error if a node has ended by itself.

        Raises:
            NodeFailed: One has.
        """
        for number, process in self._processes.items():
            if process.returncode is not None:
                life = f"{number}-{self._lives[number]}"
                raise NodeFailed(f"the node {life} ended by itself: see log-{life}.txt in {self._folder}")

    async def stop_clients(self) -> None:
        """Have all clients finish what they have begun. The nodes go on."""
        await asyncio.gather(*map(self._stop_clients, list(self._processes)))

    async def leave(self) -> None:
        """Close all nodes."""
        await asyncio.gather(*map(self._leave, list(self._processes)))

    async def close(self) -> None:
        """End what is left, and give the small disk back."""
        await asyncio.gather(*map(self.kill, list(self._processes)))
        await asyncio.gather(*self._readers.values(), return_exceptions=True)
        if self.small_disk is not None:
            await _called("umount", "-l", str(self.small_disk))

    async def _stop_clients(self, number: int) -> None:
        self._processes[number].terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await self._done[f"{number}-{self._lives[number]}"].wait()
        self.require()

    async def _leave(self, number: int) -> None:
        process = self._processes.pop(number)
        process.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            code = await process.wait()
        if code:
            raise NodeFailed(f"the node {number} ended with {code}: see its log in {self._folder}")

    async def _read(self, name: str, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line == b"done\n":
                self._done[name].set()
            else:
                self._ended[name] = int(line)
        self._done[name].set()


async def _called(*command: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return False
    return await process.wait() == 0
