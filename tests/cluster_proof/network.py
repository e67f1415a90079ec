"""Hosts for the processes of a campaign: network namespaces where root allows it, else this machine.

Each host has an address in a network that only this campaign sees; a bridge in a namespace of its own joins
them. A route that leads nowhere cuts a host off from another, in one direction.

Everything that it makes has a name with the campaign's tag, and is removed at the end. The network of
the machine itself is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

T = TypeVar("T")

_NETNS: Final = "/run/netns"
_NEWNET: Final = 0x40000000


class Host(NamedTuple):
    """Where a process runs: what its command begins with, and its address."""

    name: str
    command: list[str]
    ip: str


class Network:
    """The hosts of a campaign. Without namespaces all of them are this machine, and nothing can be cut.

    Args:
        number: The number of hosts.
        apart: Whether every host has a namespace of its own.
    """

    def __init__(self, number: int, *, apart: bool) -> None:
        self.apart = apart
        self._tag = f"hf{secrets.token_hex(3)}"
        self._hub = f"{self._tag}hub"
        self._cuts: set[tuple[str, str]] = set()
        self._thread: ThreadPoolExecutor | None = None
        self.hosts = [self._host(position) for position in range(number)]
        self.hub = Host("hub", _entering(self._hub) if apart else [], "10.77.0.254")

    def _host(self, position: int) -> Host:
        name = f"{self._tag}n{position}"
        return (
            Host(name, _entering(name), f"10.77.0.{position + 1}")
            if self.apart
            else Host(name, [], "127.0.0.1")
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def made(cls, number: int) -> AsyncIterator[Network]:
        """So many hosts for the length of a block."""
        network = cls(number, apart=possible())
        try:
            if network.apart:
                await asyncio.to_thread(network._make)
            yield network
        finally:
            if network.apart:
                await asyncio.to_thread(network._remove)

    def port(self, usual: int) -> int:
        """Return a port to listen on: the usual one where every host has its own."""
        return usual if self.apart else free_port()

    async def cut(self, pairs: Iterable[tuple[Host, Host]]) -> None:
        """Let nothing pass from the first host of each pair to the second."""
        for one, other in pairs:
            if (one.name, other.ip) not in self._cuts:
                self._cuts.add((one.name, other.ip))
                await _ip("-n", one.name, "route", "add", "blackhole", f"{other.ip}/32")

    async def heal(self) -> None:
        """Let everything pass again."""
        for name, ip in list(self._cuts):
            await _ip("-n", name, "route", "del", "blackhole", f"{ip}/32")
        self._cuts.clear()

    async def inside(self, work: Callable[[], T]) -> T:
        """Return what a function returns that is called where all hosts can be reached."""
        if not self.apart:
            return await asyncio.to_thread(work)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, initializer=_enter, initargs=(self._hub,))
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _make(self) -> None:
        run = _run
        run("ip", "netns", "add", self._hub)
        run("ip", "-n", self._hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self._hub, "addr", "add", "10.77.0.254/24", "dev", "br0")
        for what in ("lo", "br0"):
            run("ip", "-n", self._hub, "link", "set", what, "up")
        for position, host in enumerate(self.hosts):
            run("ip", "netns", "add", host.name)
            ours = f"p{position}"
            run(
                *("ip", "-n", self._hub, "link", "add", ours, "type", "veth"),
                *("peer", "name", "eth0", "netns", host.name),
            )
            run("ip", "-n", self._hub, "link", "set", ours, "master", "br0", "up")
            run("ip", "-n", host.name, "addr", "add", f"{host.ip}/24", "dev", "eth0")
            for what in ("lo", "eth0"):
                run("ip", "-n", host.name, "link", "set", what, "up")

    def _remove(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        for name in (*(host.name for host in self.hosts), self._hub):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def possible() -> bool:
    """Return True if this process may make network namespaces."""
    if os.environ.get("HOLDFAST_CLUSTER_NETWORK") == "no" or os.geteuid() != 0:
        return False
    if not all(map(shutil.which, ("ip", "nsenter"))):
        return False
    probe = f"hf{secrets.token_hex(3)}probe"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "-n", probe, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", probe, "link", "add", "p0", "type", "veth", "peer", "name", "p1")
    except subprocess.CalledProcessError:
        return False
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)
    return True


def both_ways(some: Sequence[Host], others: Sequence[Host]) -> list[tuple[Host, Host]]:
    """Return the pairs that separate some hosts from others."""
    return [pair for one in some for other in others for pair in ((one, other), (other, one))]


def _entering(name: str) -> list[str]:
    return ["nsenter", f"--net={_NETNS}/{name}"]


def _enter(name: str) -> None:
    """Move the thread that calls this into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"{_NETNS}/{name}", "rb") as handle:
        if libc.setns(handle.fileno(), _NEWNET):
            raise OSError(ctypes.get_errno(), "setns failed")


async def _ip(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("ip", *arguments)
    if await process.wait():
        raise RuntimeError(f"ip {' '.join(arguments)} failed")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
