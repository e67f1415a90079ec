"""A round of the campaign: three servers, three nodes with clients, faults, and a verdict on what was seen.

    python -m tests.cluster_proof.campaign --seed 7            plays a round again
    python -m tests.cluster_proof.campaign --judge FOLDER      judges the histories of a round again

A round is bounded in operations and in time, and its folder holds all that is needed to judge it again.
The seed decides what is done and asked for; when a reply comes, the machine decides.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tests.cluster import equal
from tests.cluster_proof.faults import PARTITIONS, SIGNALS, FaultName, Faults
from tests.cluster_proof.final import Look, Wanted
from tests.cluster_proof.network import Network
from tests.cluster_proof.nodes import NodeFailed, ProofNodes
from tests.cluster_proof.plants import PLANTS
from tests.cluster_proof.servers import ProofServers
from tests.cluster_proof.steps import Step, recorded
from tests.cluster_proof.verdict import Figures, judged
from tests.linear.history import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES: Final = 3
SERVERS: Final = 3
PACE: Final = 0.006
PAUSE: Final = (0.3, 6.0)
STALL_SECONDS: Final = 120.0
CALM: Final = (1.0, 4.0)
"""How many seconds pass between two faults."""
LOOK_SECONDS: Final = 150.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a round."""

    seed: int
    seconds: float
    apart: bool
    """Whether the network was cut, too."""
    operations: int
    faults: dict[str, int]
    failovers: list[float]
    notes: list[str]
    figures: Figures

    def __str__(self) -> str:
        struck = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        how = "in network namespaces" if self.apart else "by signals alone, without partitions"
        lines = [
            f"cluster: seed {self.seed}: {self.operations} operations in {self.seconds:.0f} s {how}",
            f"  {struck or 'no faults'}",
            f"  {self.figures}",
            *(f"  {note}" for note in self.notes),
            *self.figures.violations[:20],
        ]
        return "\n".join(lines)


async def play(
    folder: Path,
    *,
    seed: int,
    operations: int,
    leader_kills: int = 0,
    faults: Sequence[FaultName] | None = None,
    plant: str = "",
    pause: tuple[float, float] = PAUSE,
) -> Round:
    """Play a round, and leave its histories in a folder.

    Args:
        folder: The folder, which is made anew.
        seed: Decides the faults, their order, and what clients ask for.
        operations: How many operations have to end.
        leader_kills: How many times the leader has to be killed at least.
        faults: The faults to choose from; by default all that are possible here.
        plant: The name of a bug to plant in every node.
        pause: For how many seconds something is stopped or cut off, at the least and at the most.
    """
    await asyncio.to_thread(_made_anew, folder)
    chance, began = random.Random(seed), time.monotonic()
    async with Network.made(SERVERS + NODES + 1) as network:
        servers = ProofServers(network, folder)
        options = {"seed": seed, "pace": PACE, "plant": plant}
        nodes = ProofNodes(network, servers, folder, number=NODES, options=options)
        possible = faults if faults is not None else (*SIGNALS, *(PARTITIONS if network.apart else ()))
        target = Faults(servers, nodes, network, pause=pause)
        struck: collections.Counter[str] = collections.Counter()
        turns = _turns(possible, chance)
        try:
            await servers.start()
            await nodes.start()
            while nodes.ended < operations or struck["kill leader"] < leader_kills:
                await _progress(nodes)
                await asyncio.sleep(chance.uniform(*CALM))
                for fault in itertools.islice(turns, 1):
                    struck[fault] += 1
                    await asyncio.to_thread(_noted, folder, fault)
                    await target.strike(fault, chance)
            await nodes.stop_clients()
            await _look(folder, network, servers)
            await nodes.leave()
            if not plant:
                equal(folder, [f"node-{number}/replica" for number in range(NODES)])
        finally:
            await network.heal()
            await nodes.close()
            await servers.stop()
    figures = await asyncio.to_thread(judge, folder)
    one = Round(
        seed=seed,
        seconds=time.monotonic() - began,
        apart=network.apart,
        operations=figures.operations,
        faults=dict(struck),
        failovers=target.failovers,
        notes=target.notes,
        figures=figures,
    )
    await asyncio.to_thread(_kept, folder, one)
    return one


def _noted(folder: Path, fault: FaultName) -> None:
    """Note when a fault began."""
    with (folder / "faults.txt").open("a") as written:
        written.write(f"{time.monotonic_ns()} {fault}\n")


def _made_anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _kept(folder: Path, one: Round) -> None:
    """Keep the histories and logs of a round; the files of its servers too, if something is wrong."""
    (folder / "round.json").write_bytes(msgspec.json.encode(one))
    if not one.figures.violations:
        for position in range(SERVERS):
            shutil.rmtree(folder / f"server-{position}" / "js", ignore_errors=True)


def judge(folder: Path) -> Figures:
    """Judge the histories of a round."""
    look = msgspec.json.decode((folder / "final.json").read_bytes(), type=Look)
    registers = registers_of(folder)
    steps = recorded(sorted(folder.glob("steps-*.jsonl")), Step)
    return judged(registers, steps, look)


def _turns(possible: Sequence[FaultName], chance: random.Random) -> collections.abc.Iterator[FaultName]:
    """Every fault in an order by chance, and a leader killed between each two, if that is among them."""
    while possible:
        for fault in chance.sample(list(possible), len(possible)):
            if fault != "kill leader" and "kill leader" in possible:
                yield "kill leader"
            if fault != "kill leader" or len(possible) == 1:
                yield fault


async def _progress(nodes: ProofNodes) -> None:
    """Wait until something was answered since the last fault: a cluster that is out of order is a failure."""
    before, end = nodes.ended, time.monotonic() + STALL_SECONDS
    while nodes.ended <= before:
        nodes.require()
        if time.monotonic() > end:
            raise NodeFailed(f"no operation has ended for {STALL_SECONDS:g} s")
        await asyncio.sleep(0.1)


def registers_of(folder: Path) -> list[Operation]:
    """Return what the clients of registers did in a round."""
    return recorded(sorted(folder.glob("registers-*.jsonl")), Operation)


async def _look(folder: Path, network: Network, servers: ProofServers) -> None:
    """Have a new node read everything."""
    registers = await asyncio.to_thread(registers_of, folder)
    wanted = Wanted(
        url=servers.url(folder / "judge", timeout=10, snapshot_every=0),
        keys=sorted({(one.namespace, one.key) for one in registers}),
        path=str(folder / "final.json"),
    )
    file = folder / "wanted.json"
    file.write_bytes(msgspec.json.encode(wanted))
    command = [*network.hub.command, sys.executable, "-m", "tests.cluster_proof.final", str(file)]
    with (folder / "final.txt").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*command, stderr=log)
    async with asyncio.timeout(LOOK_SECONDS):
        if await process.wait():
            raise NodeFailed(f"the last look failed: see final.txt in {folder}")


def main() -> int:
    """Play a round or judge one again; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_proof.campaign")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--leader-kills", type=int, default=0)
    parser.add_argument("--faults", help="names, with commas between; by default all, and none if empty")
    parser.add_argument("--plant", default="", choices=["", *PLANTS])
    parser.add_argument(
        "--keep", type=Path, default=Path(".dev/cluster-histories"), help="where histories go"
    )
    parser.add_argument("--judge", type=Path, help="the folder of a round")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it otherwise
    if given.judge is not None:
        figures = judge(given.judge)
        print(figures, *figures.violations, sep="\n")
        return 1 if figures.violations else 0
    faults = None if given.faults is None else [one for one in given.faults.split(",") if one]
    one = asyncio.run(
        play(
            given.keep.absolute() / f"seed-{given.seed}",
            seed=given.seed,
            operations=given.operations,
            leader_kills=given.leader_kills,
            faults=faults,
            plant=given.plant,
        )
    )
    print(one)
    return 1 if one.figures.violations else 0


if __name__ == "__main__":
    sys.exit(main())
