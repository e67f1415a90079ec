"""The three servers of a campaign, each on a host of its own.

It starts, stops and looks at servers, and can put a wrong bit into the files of one that is down. What
happens when is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.nats.server import find

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from pathlib import Path
    from random import Random

    from tests.cluster_proof.network import Network

START_SECONDS: Final = 60.0
STREAM: Final = "HF_proof"


class ProofServer:
    """One nats-server with JetStream."""

    def __init__(self, network: Network, folder: Path, position: int) -> None:
        self.host = network.hosts[position]
        self.name = f"server-{position}"
        self.folder = folder / self.name
        self.port = network.port(4222)
        self.route = network.port(6222)
        self.monitor = network.port(8222)
        self.process: Process | None = None

    def configure(self, routes: list[str]) -> None:
        """Write the file of settings."""
        self.folder.mkdir(parents=True)
        ip = self.host.ip
        (self.folder / "server.conf").write_text(
            f'server_name: "{self.name}"\nlisten: "{ip}:{self.port}"\nhttp: "{ip}:{self.monitor}"\n'
            f'jetstream {{ store_dir: "{self.folder}/js", sync_interval: always }}\n'
            f'cluster {{ name: "proof", listen: "{ip}:{self.route}", routes: {json.dumps(routes)}, '
            'ping_interval: "1s" }\nping_interval: "1s"\nping_max: 2\n'
        )

    async def start(self) -> None:
        """Start the server, and return once it accepts connections."""
        for stale in self.folder.glob("*.ports"):
            stale.unlink()
        with (self.folder / "server.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.host.command,
                *(str(find()), "--config", str(self.folder / "server.conf")),
                *("--ports_file_dir", str(self.folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        async with asyncio.timeout(START_SECONDS):
            while not list(self.folder.glob("*.ports")):
                if self.process.returncode is not None:
                    raise RuntimeError(f"{self.name} has ended: see {self.folder}/server.log")
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End the server without a warning."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def halt(self) -> None:
        """Stop the process where it is."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a halted process go on."""
        self._signal(signal.SIGCONT)

    def flip_a_bit(self, chance: Random) -> str:
        """Change a bit of a block of the log, while the server is down. Return where."""
        blocks = sorted(self.folder.glob(f"js/jetstream/*/streams/{STREAM}/msgs/*.blk"))
        blocks = [block for block in blocks if block.stat().st_size]
        if not blocks:
            return "nowhere: there is no block yet"
        block = chance.choice(blocks)
        data = bytearray(block.read_bytes())
        place, bit = chance.randrange(len(data)), chance.randrange(8)
        data[place] ^= 1 << bit
        block.write_bytes(data)
        return f"bit {bit} of byte {place} of {len(data)} in {self.name}/{block.name}"

    def _signal(self, which: signal.Signals) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(which)


class ProofServers:
    """The servers together."""

    def __init__(self, network: Network, folder: Path, number: int = 3) -> None:
        self._network = network
        self.all = [ProofServer(network, folder, position) for position in range(number)]
        routes = [f"nats://{server.host.ip}:{server.route}" for server in self.all]
        for server in self.all:
            server.configure(routes)

    def url(self, data: Path, **options: object) -> str:
        """Return the address of a node whose replica is kept in a folder."""
        hosts = ",".join(f"{server.host.ip}:{server.port}" for server in self.all)
        monitors = ",".join(str(server.monitor) for server in self.all)
        more = "".join(f"&{option}={value}" for option, value in options.items())
        return f"cluster://{hosts}/proof?data={data}&monitor={monitors}{more}"

    async def start(self) -> None:
        """Start all of them."""
        await asyncio.gather(*(server.start() for server in self.all))

    async def stop(self) -> None:
        """End all of them."""
        for server in self.all:
            if server.process is not None:
                server.go_on()
        await asyncio.gather(*(server.kill() for server in self.all))

    async def leader(self, *, other_than: ProofServer | None = None, seconds: float = 30.0) -> ProofServer:
        """Return the server that leads the log, once most servers say so.

        One that has just started may name itself, though the others have elected another one meanwhile.
        """
        async with asyncio.timeout(seconds):
            while True:
                told = [
                    await self._network.inside(partial(_leader, server))
                    for server in self.all
                    if server is not other_than
                ]
                for server in self.all:
                    if server is not other_than and told.count(server.name) > len(self.all) // 2:
                        return server
                await asyncio.sleep(0.05)


def _leader(server: ProofServer) -> str | None:
    url = f"http://{server.host.ip}:{server.monitor}/jsz?streams=1"
    try:
        with urllib.request.urlopen(url, timeout=1) as reply:
            told: Any = json.load(reply)
    except (OSError, ValueError):
        return None
    for account in told.get("account_details") or []:
        for stream in account.get("stream_detail") or []:
            if stream["name"] == STREAM:
                leader: str | None = (stream.get("cluster") or {}).get("leader")
                return leader
    return None
