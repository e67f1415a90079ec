"""A round: services, clients that use them together, faults meanwhile, and a verdict on what the clients saw.

A round is bounded in operations and in time, and uses a store that is its own and empty.
"""

from __future__ import annotations

import asyncio
import collections
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import holdfast
from tests.linear.checker import Verdict, judge
from tests.linear.faults import FAULTS, Fault, Services
from tests.linear.history import Operation, load, save
from tests.linear.load import Plan, launch
from tests.linear.speakers import Own
from tests.nats import nats_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.forking import ForkedProcess

F_contra = TypeVar("F_contra", contravariant=True)
T = TypeVar("T")

PROCESSES: Final = 2
TIMEOUT: Final = 0.5
"""After how many seconds a client gives up."""
SLACK: Final = 250_000_000
"""By how many nanoseconds an effect may come after its deadline before it counts as late: a service reads its
clock a little before the commit, and what it knows of a client's clock is not exact."""
STALL_SECONDS: Final = 60.0
"""For how long no operation may end before a round is given up."""


class Target(Protocol[F_contra]):
    """What the faults of a round strike."""

    async def strike(self, fault: F_contra, chance: random.Random) -> None:
        """Do something bad, and mend it."""
        ...


class Round(NamedTuple):
    """What a round was, and what came of it."""

    name: str
    history: list[Operation]
    faults: collections.Counter[str]
    seconds: float
    verdict: Verdict

    def figures(self) -> collections.Counter[str]:
        """How many there were of everything."""
        found = collections.Counter(operation.outcome for operation in self.history)
        counted: collections.Counter[str] = collections.Counter()
        counted["operations"] = len(self.history) - found["refused"]
        counted.update({outcome: found[outcome] for outcome in ("ok", "conflict", "unknown", "refused")})
        counted["TIMEOUT"] = sum(operation.code == "TIMEOUT" for operation in self.history)
        counted.update({fault: self.faults[fault] for fault in FAULTS})
        counted["late"] = len(self.verdict.late)
        counted["violations"] = len(self.verdict.violations)
        return counted

    def codes(self) -> collections.Counter[str]:
        """How often each code was told that refuses a request."""
        return collections.Counter(one.code for one in self.history if one.outcome == "refused" and one.code)

    def explain(self) -> str:
        """What is wrong, and where the histories are kept that show it."""
        if not self.verdict.violations:
            return ""
        folder = Path(tempfile.mkdtemp(prefix="holdfast-linear-"))
        lines = []
        for number, violation in enumerate(self.verdict.violations):
            path = folder / f"{number}.jsonl"
            save(path, violation.history)
            lines.append(f"{violation}\nto judge it again: python -m tests.linear.checker {path}")
        save(folder / "all.jsonl", self.history)
        return "\n\n".join(lines)


async def play(
    storage: str,
    *,
    operations: int,
    seed: int,
    services: int = 1,
    faults: Sequence[Fault] = FAULTS,
    pause: tuple[float, float] = (0.3, 3.0),
) -> Round:
    """Play a round on an empty store.

    Args:
        storage: The address of the store.
        operations: How many operations the clients make in all, apart from those that are refused.
        seed: What decides which faults come when, and what the clients ask for.
        services: How many services share the store.
        faults: What is done to them, in an order that the seed decides.
        pause: For how many seconds a service is stopped, at the least and at the most.
    """
    chance, began = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-round-") as name:
        folder = Path(name)
        async with (
            nats_server() as server,
            Services.running(server, storage, folder, number=services, pause=pause) as target,
        ):
            load_ = Load(server.url, folder, operations, seed)
            await load_.run(target, chance.sample(list(faults), len(faults)), chance)
            history = load_.history()
            async with asyncio.timeout(STALL_SECONDS):
                history += await last_look(server.url, history)
    seconds = time.monotonic() - began
    verdict = await asyncio.to_thread(judge, history, slack=SLACK)
    name = f"{storage.partition(':')[0] if '://' in storage else 'sqlite'}/{services}"
    return Round(name, history, collections.Counter(faults), seconds, verdict)


class Load:
    """The processes with the clients, and how far they are."""

    def __init__(
        self, url: str, folder: Path, operations: int, seed: int, *, timeout: float = TIMEOUT
    ) -> None:
        share, start = operations // PROCESSES, time.monotonic_ns()
        self._operations = share * PROCESSES
        self._plans = [
            Plan(
                url=url,
                path=str(folder / f"{number}.jsonl"),
                number=number,
                seed=seed,
                operations=share,
                start=start,
                timeout=timeout,
            )
            for number in range(1, PROCESSES + 1)
        ]
        self._ended = dict.fromkeys(range(PROCESSES), 0)
        self._moved = asyncio.Condition()

    async def run(self, target: Target[T], faults: Sequence[T], chance: random.Random) -> None:
        """Have all operations made, with the faults at instants spread over them."""
        processes = [await launch(plan) for plan in self._plans]
        try:
            async with asyncio.TaskGroup() as group:
                for number, process in enumerate(processes):
                    group.create_task(self._follow(number, process))
                for position, fault in enumerate(faults):
                    part = (position + chance.uniform(0.2, 0.9)) / (len(faults) + 0.2)
                    await self._reached(int(part * self._operations))
                    await target.strike(fault, chance)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def _follow(self, number: int, process: ForkedProcess) -> None:
        """Take note of how far a process is, until it is done."""
        while True:
            async with asyncio.timeout(STALL_SECONDS):
                line = await process.stdout.readline()
            if not line:
                break
            async with self._moved:
                self._ended[number] = int(line)
                self._moved.notify_all()
        assert await process.wait() == 0, "a process with clients has failed"

    async def _reached(self, operations: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: sum(self._ended.values()) >= operations)

    def history(self) -> list[Operation]:
        """All that the clients saw."""
        return [operation for plan in self._plans for operation in load(Path(plan.path))]


async def last_look(url: str, history: Sequence[Operation]) -> list[Operation]:
    """Read every key once more when all is quiet, so that a write that was lost is missed by somebody."""
    seen = []
    async with holdfast.open(f"{url}?timeout=10") as store:
        speaker = Own(store, 10.0)
        for namespace, key in sorted({(one.namespace, one.key) for one in history}):
            while True:
                call = time.monotonic_ns()
                asked: dict[str, Any] = {"namespace": namespace, "key": key, "verb": "get"}
                told = await speaker.ask(asked)
                if told["outcome"] == "ok":
                    break
                await asyncio.sleep(0.05)
            seen.append(Operation(client=0, call=call, end=time.monotonic_ns(), **asked, **told))
    return seen
