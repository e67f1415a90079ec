"""Runs seeds in children of this process, several at a time, and makes runs that found something smaller.

Every run has a process of its own, so that nothing of one is left for the next. The parent has imported the
library and has no threads, so that a child begins at once.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec

from tests.simulation.families import FAMILIES
from tests.simulation.keys import KEYS
from tests.simulation.simulation import Plan, Result, simulate
from tests.simulation.subject import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LONGEST: Final = 120
"""The seconds of CPU time after which a run is ended."""
MOST_TRIES: Final = 60
"""The runs that shrinking may take."""


class Job(NamedTuple):
    """A run to make.

    Attributes:
        before: Called in the child first, to plant a bug.
    """

    target: str
    seed: int
    plan: Plan = Plan()
    ops: int = 360
    tracing: bool = False
    stop_at: float = float("inf")
    before: Callable[[], object] = lambda: None


class Runner:
    """Makes runs, a few at a time.

    Args:
        jobs: How many at a time.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._jobs = jobs
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-simulation-")
        self._running: dict[int, Job] = {}
        gc.collect()
        gc.freeze()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._folder.cleanup()

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Result]]:
        """Make runs and yield what came of them, as they end."""
        for job in jobs:
            if len(self._running) == self._jobs:
                yield self._wait()
            self._start(job)
        while self._running:
            yield self._wait()

    def one(self, job: Job) -> Result:
        """Make one run."""
        [(_, result)] = self.run([job])
        return result

    def _start(self, job: Job) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _run(job, Path(self._folder.name))
        self._running[pid] = job

    def _wait(self) -> tuple[Job, Result]:
        pid, status = os.wait()
        job = self._running.pop(pid)
        file = Path(self._folder.name, str(pid))
        if status or not file.exists():
            code = os.waitstatus_to_exitcode(status)
            why = (
                f"was ended after {LONGEST} s of CPU time"
                if code == -signal.SIGPROF
                else f"died with code {code}"
            )
            return job, Result(job.seed, job.target, findings=[Finding("no result", f"the process {why}")])
        result = msgspec.json.decode(file.read_bytes(), type=Result)
        file.unlink()
        return job, result


def _run(job: Job, folder: Path) -> NoReturn:
    """Make a run in this process, and end it."""
    pid, code = os.getpid(), 1
    try:
        gc.disable()
        if job.stop_at == float("inf"):
            signal.setitimer(signal.ITIMER_PROF, LONGEST)
        job.before()
        try:
            result = simulate(
                job.target, job.seed, job.plan, ops=job.ops, tracing=job.tracing, stop_at=job.stop_at
            )
        except Exception:
            text = traceback.format_exc()
            result = Result(job.seed, job.target, findings=[Finding("the simulation failed", text)])
        (folder / str(pid)).write_bytes(msgspec.json.encode(result))
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


class Shrinker:
    """Makes a run that found something smaller, as long as it finds the same kind of thing.

    Args:
        runner: Makes the runs.
        job: The run that found something.
        result: What it found.
    """

    def __init__(self, runner: Runner, job: Job, result: Result) -> None:
        self._runner = runner
        self._job = job
        self._kind = result.findings[0].kind
        self.result = result
        self.plan = job.plan
        self.tries = 0

    def shrink(self) -> None:
        """Leave out subjects, operations, clients and keys, then faults: fewer strike a short run."""
        self._number("subjects", len(KEYS) + len(FAMILIES), 0)
        self._number("ops", self._job.ops, 8)
        self._number("clients", 3, 1)
        self._number("keys", 8, 1)
        self._faults(list(self.result.struck))

    def _fails(self, plan: Plan) -> bool:
        """Whether a smaller run finds the same. If so, it is the one to go on with."""
        if self.tries >= MOST_TRIES:
            return False
        self.tries += 1
        result = self._runner.one(self._job._replace(plan=plan))
        if not any(finding.kind == self._kind for finding in result.findings):
            return False
        self.plan, self.result = plan, result
        return True

    def _faults(self, faults: list[int]) -> None:
        """Leave out parts of the faults, then smaller parts (Zeller's ddmin)."""
        parts = 1
        while faults:
            size = -(-len(faults) // parts)
            for start in range(0, len(faults), size):
                fewer = faults[:start] + faults[start + size :]
                if self._fails(msgspec.structs.replace(self.plan, faults=tuple(fewer))):
                    faults, parts = fewer, max(parts - 1, 2)
                    break
            else:
                if parts >= len(faults):
                    return
                parts = min(parts * 2, len(faults))

    def _number(self, name: str, most: int, least: int) -> None:
        """Halve a number as often as possible."""
        while (half := max(least, most // 2)) < most:
            if not self._fails(msgspec.structs.replace(self.plan, **{name: half})):
                return
            most = half
