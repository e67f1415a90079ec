"""Plants the bugs of `./dev mutate` in simulated worlds and counts the seeds until each is found.

The count is the yardstick of workload and faults. A bug that no seed finds names something that the workload
does not do, or that the judge does not look at.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from tests.mutate.planting import Patches, all_bugs
from tests.simulation.runs import Job, Runner
from tests.simulation.simulation import TARGETS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from tests.mutate.planting import Bug

SEEDS: Final = 20
"""The seeds in which a bug is looked for, if nothing is said."""
WHERE: Final = {"verbs": "sqlite", "groups": "sqlite", "storage": "sqlite", "cluster": "cluster"}
"""The target in which the bugs of a module are looked for. Those of other modules are not simulated."""


def look_for_bugs(arguments: argparse.Namespace, ops: Mapping[str, int]) -> int:
    """Plant bugs and print the seeds until each is found; 1 if one is not found."""
    bugs = all_bugs()
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
