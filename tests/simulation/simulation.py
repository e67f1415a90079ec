"""One run of one seed: the world, the target, the faults and the verdict."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from typing import Any, Final

import msgspec

from tests.simulation import seams
from tests.simulation.cluster import Cluster
from tests.simulation.disk import Disk
from tests.simulation.faults import Nemesis, draw
from tests.simulation.processes import Processes
from tests.simulation.subject import Finding
from tests.simulation.target import Target
from tests.simulation.workload import Limits
from tests.simulation.world import Note, World

LONGEST: Final = 150.0
"""The virtual seconds after which a run that has not ended is broken off."""
NUMBERS: Final = ("ops", "clients", "keys", "subjects")
PLAN: Final = f"faults=1,2 {' '.join(f'{name}=N' for name in NUMBERS)} only=fences,logs"
"""How a plan is written."""
TARGETS: Final[dict[str, type[Target]]] = {"sqlite": Target, "processes": Processes, "cluster": Cluster}


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a seed is run: all of it, or what shrinking has left.

    Attributes:
        faults: The numbers of the faults; None for all.
        ops: The number of operations; None for the usual number. So are `clients`, `keys` and `subjects`.
        only: The subjects beside the registers; None for those that the seed has chosen.
    """

    faults: tuple[int, ...] | None = None
    ops: int | None = None
    clients: int | None = None
    keys: int | None = None
    subjects: int | None = None
    only: tuple[str, ...] | None = None

    def __str__(self) -> str:
        words = []
        for name, value in msgspec.structs.asdict(self).items():
            if name == "faults" and value is not None:
                words.append(f"faults={','.join(map(str, value)) or 'none'}")
            elif name == "only" and value is not None:
                words.append(f"only={','.join(value)}")
            elif value is not None:
                words.append(f"{name}={value}")
        return " ".join(words)

    @classmethod
    def parse(cls, words: list[str]) -> Plan:
        """Read what `str` writes."""
        fields: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name == "faults":
                fields[name] = () if value == "none" else tuple(map(int, value.split(",")))
            elif name == "only":
                fields[name] = tuple(value.split(","))
            elif name in NUMBERS:
                fields[name] = int(value)
            else:
                raise ValueError(f"{word!r} is none of {PLAN}")
        return cls(**fields)

    def limits(self, usual: Limits) -> Limits:
        """How much the clients do."""
        fields = {name: getattr(self, name) for name in (*NUMBERS, "only")}
        return usual._replace(**{name: value for name, value in fields.items() if value is not None})


class Result(msgspec.Struct):
    """What came of a run."""

    seed: int
    target: str
    hash: str = ""
    findings: list[Finding] = []
    operations: int = 0
    outcomes: dict[str, int] = {}
    faults: dict[str, int] = {}
    struck: list[int] = []
    """The numbers of the faults that were drawn."""
    virtual: float = 0.0
    turns: int = 0
    syncs: int = 0
    lost_sectors: int = 0
    starts: int = 0
    cpu: float = 0.0
    notes: list[Note] = []
    figures: dict[str, int] = {}
    points: dict[str, int] = {}
    """How often each point of the code that is on in this world was reached."""


def simulate(
    target: str, seed: int, plan: Plan, *, ops: int, tracing: bool = False, stop_at: float = float("inf")
) -> Result:
    """Run a seed. This process can't be used for anything else afterwards."""
    began = seams.cpu_time()
    result = Result(seed, target)
    folder = tempfile.mkdtemp(prefix="holdfast-simulation-")
    os.chdir(folder)  # what the services say about their files must not differ between runs
    world = World(seed, Disk(), tracing=tracing)  # type: ignore[abstract]
    world.stop_at = stop_at
    seams.enter(world)
    try:
        _run(result, world, TARGETS[target](world, ".", plan.limits(Limits(ops=ops))), plan)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result.points = dict(seams.points)
    result.cpu = seams.cpu_time() - began
    return result


def _run(result: Result, world: World, target: Target, plan: Plan) -> None:
    chosen = draw(world.seed, target.kinds, target.paces)
    if plan.faults is not None:
        chosen = [fault for fault in chosen if fault.number in plan.faults]
    nemesis = Nemesis(target, chosen)
    workload = target.workload
    target.begin()
    nemesis.start()
    world.outside.spawn(_await_calm(target, nemesis), name="calm")
    world.run(lambda: workload.over or bool(target.broken) or bool(workload.faults) or world.now > LONGEST)
    found = list(target.broken)
    if not found and not workload.over and not workload.faults:
        found.append(Finding("no end", f"the run has not ended after {world.now:.0f} s"))
    found += [] if found else workload.findings()
    found += [
        Finding("error in a callback", f"{one.machine}: {one.text}", at=one.time) for one in world.errors
    ]
    found += [Finding("stall", str(one), at=one.time) for one in world.stalls]
    found += [] if found else target.compare()
    digest = hashlib.sha256(f"{world.hash} {world.disk.hash} {world.turns}".encode())
    digest.update(msgspec.json.encode([workload.kept, *(subject.seen for subject in workload.subjects)]))
    result.hash = digest.hexdigest()[:16]
    result.findings = [one._replace(at=world.turned_at) if one.at is None else one for one in found]
    result.operations = workload.operations
    for one in workload.registers.history:
        result.outcomes[one.outcome] = result.outcomes.get(one.outcome, 0) + 1
    result.figures["watches waited ms"] = round(1000 * workload.watches_waited)
    result.faults = dict(world.faults)
    result.struck = [fault.number for fault in chosen if fault.time < world.now]
    result.virtual, result.turns, result.syncs = world.now, world.turns, world.disk.syncs
    result.lost_sectors, result.starts, result.notes = world.disk.lost_sectors, target.starts, world.notes


async def _await_calm(target: Target, nemesis: Nemesis) -> None:
    """Tell the clients when their work is done and nothing is broken any more."""
    while not (target.workload.finished and nemesis.idle and target.whole):  # noqa: ASYNC110 - time is cheap
        await asyncio.sleep(0.1)
    target.workload.calm = True
