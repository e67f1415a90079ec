"""Plants the bugs of `./dev mutate` in simulated worlds and counts the seeds until each is found.

The count is the yardstick of workload and faults. A bug that no seed finds names something that the workload
does not do, or that the judge does not look at.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast.decide import decision
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite import engine as sqlite_engine
from holdfast.engines.sqlite import setup as sqlite_setup
from holdfast.engines.sqlite.writer import WriteInterrupted, Writer
from tests.mutate.planting import Bug, Patches, all_bugs
from tests.simulation.runs import Job, Runner
from tests.simulation.simulation import TARGETS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

SEEDS: Final = 20
"""The seeds in which a bug is looked for, if nothing is said."""
WHERE: Final = {
    "verbs": "sqlite",
    "groups": "sqlite",
    "storage": "sqlite",
    "cluster": "cluster",
    "bugs": "sqlite",
}
"""The target in which the bugs of a module are looked for. Those of other modules are not simulated."""


# Bugs that no test of the suite could find without power cuts, many clients, or a clock that is watched


def commits_are_not_synced(patch: Patches) -> None:
    """A write is acknowledged once the disk has it."""
    patch.set(sqlite_setup, "prepare", _with(sqlite_setup.prepare, sync="OFF"))
    patch.set(sqlite_engine, "prepare", sqlite_setup.prepare)


def requests_are_not_remembered(patch: Patches) -> None:
    """A request that is sent again has one effect."""
    patch.set(decision, "once", lambda draft, command, apply: apply(draft, command))


def fences_are_not_checked(patch: Patches) -> None:
    """A former holder of a lock writes nothing."""
    patch.set(decision, "_check_fence", lambda draft, fence: None)


def the_loop_waits_by_reading_the_clock(patch: Patches) -> None:
    """No callback keeps the event loop for long."""

    def wrong(attempt: Any, engine: SqliteEngine, *args: Any, **fields: Any) -> Any:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return attempt(engine, *args, **fields)

    patch.wrap(SqliteEngine, "save", wrong)


def a_long_commit_that_gave_way_counts_as_done(patch: Patches) -> None:
    """A large write that gives way to small ones is made after them."""

    def wrong(commit: Any, writer: Writer, *args: Any, **fields: Any) -> None:
        try:
            commit(writer, *args, **fields)
        except WriteInterrupted:
            return

    patch.wrap(Writer, "commit", wrong)


def the_disk_has_half_of_a_batch(patch: Patches) -> None:
    """A batch is written whole or not at all."""

    def wrong(attempt: Any, writer: Writer, plan: Any, *args: Any) -> None:
        middle = len(plan) // 2
        attempt(writer, plan[:middle], *args)
        attempt(writer, plan[middle:], *args)

    patch.wrap(Writer, "_attempt", wrong)


OWN: Final = (
    commits_are_not_synced,
    requests_are_not_remembered,
    fences_are_not_checked,
    the_loop_waits_by_reading_the_clock,
    a_long_commit_that_gave_way_counts_as_done,
    the_disk_has_half_of_a_batch,
)


def _with(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda *args, **fields: function(*args, **{**fields, **fixed})


def look_for_bugs(arguments: argparse.Namespace, ops: Mapping[str, int]) -> int:
    """Plant bugs and print the seeds until each is found; 1 if one is not found."""
    own = {plant.__name__: Bug(plant.__name__, plant.__doc__ or "", plant, ()) for plant in OWN}
    bugs = {**own, **all_bugs()}
    if unknown := set(arguments.bugs) - set(bugs):
        print(f"unknown bugs: {', '.join(sorted(unknown))}")
        return 2
    counts, missed = [], []
    for bug, target in _chosen(arguments, bugs):
        seeds = arguments.seeds or SEEDS
        jobs = (
            Job(target, arguments.first + number, ops=arguments.ops or ops[target], before=_planted(bug))
            for number in range(seeds)
        )
        with Runner(arguments.jobs) as runner:
            for tried, (job, result) in enumerate(runner.run(jobs), 1):
                if result.findings:
                    counts.append(tried)
                    finding = result.findings[0]
                    text = finding.text.strip().splitlines()[0][:90]
                    print(f"found in seed {job.seed:<4} {bug.name}: {finding.kind}: {text}", flush=True)
                    break
            else:
                missed.append(bug)
                print(f"not in {seeds} seeds  {bug.name}", flush=True)
    median = statistics.median(counts) if counts else 0
    print(f"{len(counts)} of {len(counts) + len(missed)} bugs found, the median in seed {median:g}")
    return int(bool(missed))


def _chosen(arguments: argparse.Namespace, bugs: Mapping[str, Bug]) -> Iterator[tuple[Bug, str]]:
    for bug in bugs.values():
        target = WHERE.get(bug.plant.__module__.rpartition(".")[2])
        if arguments.bugs and bug.name not in arguments.bugs:
            continue
        if target in TARGETS and arguments.target in {None, target}:
            yield bug, target
        elif arguments.bugs:
            print(f"not simulated   {bug.name}")


def _planted(bug: Bug) -> Callable[[], None]:
    return lambda: bug.plant(Patches())
