"""The faults of a campaign: what is done to its servers, its nodes, their network, disks and clocks.

Every fault is mended before `strike` returns, so that a campaign can always go on. It touches only the
processes and folders of the campaign.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from tests.cluster_proof.network import both_ways

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.cluster_proof.network import Host, Network
    from tests.cluster_proof.nodes import ProofNodes
    from tests.cluster_proof.servers import ProofServer, ProofServers

SignalFault: TypeAlias = Literal[
    "kill leader",
    "pause leader",
    "kill server",
    "pause server",
    "kill all servers",
    "kill node",
    "pause node",
    "kill all nodes",
    "pause all nodes",
    "lose replica",
    "clock jump",
    "disk full",
    "flip a bit",
    "join and leave",
]
Partition: TypeAlias = Literal[
    "isolate leader", "isolate server", "isolate node", "halves", "bridge", "one way", "ring"
]
FaultName: TypeAlias = SignalFault | Partition
SIGNALS: Final[tuple[SignalFault, ...]] = get_args(SignalFault)
PARTITIONS: Final[tuple[Partition, ...]] = get_args(Partition)


class Faults:
    """What can be done to a campaign.

    Args:
        servers: Its servers.
        nodes: Its nodes.
        network: Its hosts.
        pause: For how many seconds something is stopped or cut off, at the least and at the most.
    """

    def __init__(
        self, servers: ProofServers, nodes: ProofNodes, network: Network, *, pause: tuple[float, float]
    ) -> None:
        self._servers = servers
        self._nodes = nodes
        self._network = network
        self._pause = pause
        self.failovers: list[float] = []
        """After how many seconds another server led, each time the leader was killed."""
        self.notes: list[str] = []

    async def strike(self, fault: FaultName, chance: Random) -> None:
        """Do something bad, and mend it."""
        if fault in PARTITIONS:
            await self._partition(fault, chance)
        elif "server" in fault or "leader" in fault or fault == "flip a bit":
            await self._servers_fault(fault, chance)
        else:
            await self._nodes_fault(fault, chance)

    def _seconds(self, chance: Random) -> float:
        return chance.uniform(*self._pause)

    async def _servers_fault(self, fault: FaultName, chance: Random) -> None:
        every = self._servers.all
        which = chance.choice(every)
        if fault == "kill leader":
            await self._kill_leader()
        elif fault == "kill all servers":
            await asyncio.gather(*(server.kill() for server in every))
            await self._servers.start()
        elif fault == "kill server":
            await which.kill()
            await asyncio.sleep(self._seconds(chance))
            await which.start()
        elif fault == "flip a bit":
            await which.kill()
            self.notes.append(f"flipped {which.flip_a_bit(chance)}")
            await which.start()
        else:
            if fault == "pause leader":
                which = await self._servers.leader()
            which.halt()
            await asyncio.sleep(self._seconds(chance))
            which.go_on()

    async def _kill_leader(self) -> None:
        leader = await self._servers.leader()
        began = asyncio.get_running_loop().time()
        await leader.kill()
        with contextlib.suppress(TimeoutError):
            await self._servers.leader(other_than=leader)
        self.failovers.append(asyncio.get_running_loop().time() - began)
        await leader.start()

    async def _nodes_fault(self, fault: FaultName, chance: Random) -> None:
        nodes = self._nodes
        which = chance.randrange(nodes.number)
        every = range(nodes.number)
        if fault == "kill node":
            await nodes.restart(which)
        elif fault == "kill all nodes":
            await asyncio.gather(*(nodes.kill(number) for number in every))
            await asyncio.gather(*(nodes.launch(number) for number in every))
        elif fault == "lose replica":
            await nodes.kill(which)
            shutil.rmtree(nodes.data(which) / "replica")
            await nodes.launch(which)
        elif fault == "clock jump":
            nodes.ahead[which] = chance.choice([-600.0, -30.0, -2.0, 0.0, 0.5, 2.0, 30.0, 600.0])
            await nodes.restart(which)
        elif fault == "join and leave":
            await nodes.launch(nodes.number)
            await asyncio.sleep(self._seconds(chance))
            await nodes.remove(nodes.number)
        elif fault == "disk full":
            await self._fill_disk(chance)
        else:
            stopped = every if fault == "pause all nodes" else [which]
            for number in stopped:
                nodes.halt(number)
            await asyncio.sleep(self._seconds(chance))
            for number in stopped:
                nodes.go_on(number)

    async def _fill_disk(self, chance: Random) -> None:
        """Leave no room on the disk of the node that has one of its own."""
        folder = self._nodes.small_disk
        if folder is None:
            return
        ballast = folder / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as handle:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while handle.write(bytes(size)) == size:
                        pass
        await asyncio.sleep(self._seconds(chance))
        ballast.unlink()

    async def _partition(self, fault: FaultName, chance: Random) -> None:
        await self._network.cut(await self._cuts(fault, chance))
        await asyncio.sleep(self._seconds(chance))
        await self._network.heal()

    async def _cuts(self, fault: FaultName, chance: Random) -> list[tuple[Host, Host]]:
        every = self._network.hosts[: len(self._servers.all) + self._nodes.number]
        servers, nodes = [server.host for server in self._servers.all], self._nodes.hosts
        if fault == "isolate node":
            return _alone([chance.choice(nodes)], every)
        if fault == "isolate server":
            return _alone([chance.choice(servers)], every)
        if fault == "isolate leader":
            leader: ProofServer = await self._servers.leader()
            return _alone([leader.host], every)
        if fault == "halves":
            some = [chance.choice(servers), chance.choice(nodes)]
            return _alone(some, every)
        one, other, _ = chance.sample(servers, 3)
        if fault == "bridge":
            return both_ways([one], [other])
        if fault == "one way":
            return [(one, host) for host in every if host is not one]
        return [(one, other), *((chance.choice(nodes), server) for server in servers[:2])]


def _alone(some: Sequence[Host], every: Sequence[Host]) -> list[tuple[Host, Host]]:
    return both_ways(some, [host for host in every if host not in some])
