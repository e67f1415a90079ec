"""`./dev simulate`: runs the product in simulated worlds, seed after seed, and shows what was found."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets must not differ between processes
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])

from tests.simulation import seams
from tests.simulation.page import page
from tests.simulation.runs import Job, Runner, Shrinker
from tests.simulation.simulation import PLAN, TARGETS, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.simulation import Result
    from tests.simulation.subject import Finding

USUAL: Final = 20
"""The seeds of each target, if none are asked for."""
EVERY: Final = 50
"""Of so many seeds one is run again, to see whether it takes the same way."""
MOST_SHRUNK: Final = 10
"""The seeds with findings that are made smaller."""
OPS: Final = {"sqlite": 360, "processes": 300, "cluster": 150}
CASES: Final = {
    "a_large_call_runs_beside_a_group_of_its_namespace": (
        "sqlite 1 ops=8 clients=1 keys=1 subjects=1 only=bursts"
    ),
    "readers_ask_without_a_pause": "cluster 3 ops=40",
    "a_service_that_stops_denies": "sqlite 3 ops=24 clients=2 keys=1",
    "a_node_starts_with_an_error_of_sqlite": "cluster 9 ops=24 clients=1 keys=1 subjects=1",
    "a_transaction_that_an_error_has_ended_is_committed": "processes 1 ops=24 clients=2 keys=1",
}
"""The bugs that the simulation found, and runs that find them again if planted: target, seed, plan."""
RECORDS: Final = Path(".dev/simulation")
KEPT: Final = Path("tests/simulation/nights.jsonl")
"""The runs that docs/explanation/trust.md shows."""


class Tally:
    """What the seeds of a target have come to."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.virtual = self.cpu = 0.0
        self.watches = 0
        """The milliseconds that the slowest watch took in the end."""
        self.hashes: dict[int, str] = {}

    def add(self, result: Result) -> None:
        """Count a run. The second run of a seed must have the hash of the first."""
        self.cpu += result.cpu
        if result.seed in self.hashes:
            self.counts["replayed"] += 1
            self.counts["equal"] += result.hash == self.hashes[result.seed]
            if result.hash != self.hashes[result.seed]:
                print(f"  seed {result.seed}: a second run took another way")
            return
        self.hashes[result.seed] = result.hash
        self.counts["seeds"] += 1
        self.counts["ops"] += result.operations
        self.counts["findings"] += bool(result.findings)
        self.watches = max(self.watches, result.figures.get("watches waited ms", 0))
        self.faults.update(result.faults)
        self.outcomes.update(result.outcomes)
        self.points.update(result.points)
        self.virtual += result.virtual

    def __str__(self) -> str:
        counts, faults = self.counts, self.faults.total()
        share = 1000 * faults / max(1, counts["ops"])
        again = f"   {counts['replayed']} replayed, {counts['equal']} equal" if counts["replayed"] else ""
        return (
            f"{self.target:<9} {counts['seeds']:,} seeds   {counts['ops']:,} ops   {faults:,} faults "
            f"({share:.0f} per 1,000)   {self.virtual:,.0f} virtual s   {self.cpu:.0f} CPU s   "
            f"{counts['findings']} findings{again}"
        )

    def record(self) -> dict[str, object]:
        """What is kept of it."""
        return {
            **{"target": self.target, **self.counts, "virtual": round(self.virtual), "cpu": round(self.cpu)},
            "watches_waited_ms": self.watches,
            **{"faults": dict(self.faults), "outcomes": dict(self.outcomes)},
        }


def main() -> int:
    """Run what was asked for; 1 if anything was found."""
    arguments = _arguments()
    seams.prepare()
    for name in ("sqlalchemy", "alembic.command"):  # what a migration needs
        importlib.import_module(name)
    targets = [arguments.target] if arguments.target else list(TARGETS)
    if arguments.bugs is not None:
        # late: the bugs import most of the library and pytest
        from tests.simulation.bugs import look_for_bugs

        return look_for_bugs(arguments, OPS)
    with Runner(arguments.jobs) as runner:
        if arguments.cases:
            return _run_cases(runner)
        if arguments.seed is not None:
            return _replay(runner, arguments, targets[0])
        tallies = [Tally(target) for target in targets]
        failed = max(_campaign(runner, arguments, tally) for tally in tallies)
    others = tuple(f"{target}." for target in TARGETS if target not in targets)
    own = {point for point in seams.all_points() if not point.startswith(others)}
    if missed := own.difference(*(tally.points for tally in tallies)):
        print(f"never reached: {', '.join(sorted(missed))}")
    return failed


def _campaign(runner: Runner, arguments: argparse.Namespace, tally: Tally) -> int:
    target, found = tally.target, []
    for job, result in runner.run(_jobs(arguments, target)):
        first = result.seed not in tally.hashes
        tally.add(result)
        if result.findings and first:
            found.append((job, result))
            finding = result.findings[0]
            print(f"  seed {job.seed}: {finding.kind}: {finding.text.strip()[:150]}", flush=True)
    print(tally, flush=True)
    RECORDS.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **tally.record()}) + "\n"
    for path in (RECORDS / "nights.jsonl", *([KEPT] if arguments.record else ())):
        with path.open("a") as file:
            file.write(line)
    for job, result in found[: arguments.shrink]:
        _explain(runner, job, result)
    return int(tally.counts["findings"] > 0 or tally.counts["equal"] < tally.counts["replayed"])


def _jobs(arguments: argparse.Namespace, target: str) -> Iterator[Job]:
    began, number = seams.real_time(), 0
    plan, ops = Plan.parse(arguments.plan or []), arguments.ops or OPS[target]
    while True:
        over = arguments.minutes is not None and seams.real_time() - began > 60 * arguments.minutes
        if over or (arguments.minutes is None and number >= (arguments.seeds or USUAL)):
            return
        job = Job(target, arguments.first + number, plan, ops)
        yield job
        every = 1 if arguments.twice else arguments.again
        if number % every == every - 1:
            yield job
        number += 1


def _explain(runner: Runner, job: Job, result: Result) -> None:
    """Make the run smaller, and print what it found and how to see it."""
    shrinker = Shrinker(runner, job, result)
    shrinker.shrink()
    plan, finding = shrinker.plan, shrinker.result.findings[0]
    faults = len(plan.faults) if plan.faults is not None else len(result.struck)
    print(f"  seed {job.seed}: {finding.kind}: {finding.text}")
    print(f"    shrunk to {faults} faults, {plan.ops or job.ops} operations in {shrinker.tries} runs")
    print(f"    replay: {_replaying(job, plan, finding)}", flush=True)


def _replaying(job: Job, plan: Plan, finding: Finding) -> str:
    """The command that runs a seed again and stops in the debugger before the turn of a finding."""
    words = [f"./dev simulate --target {job.target} --seed {job.seed} --ops {job.ops}"]
    words += [f"--plan {plan}"] if str(plan) else []
    words += [] if finding.at is None else [f"--stop-at {math.floor(finding.at * 1e6) / 1e6:.6f}"]
    return " ".join(words)


def _run_cases(runner: Runner) -> int:
    """Run what has found a bug before it was mended; 1 if anything is wrong."""
    # late: the bugs import most of the library and pytest
    from tests.simulation.bugs import planted

    wrong = 0
    for case, way in CASES.items():
        trouble = _repeated(runner, planted(case), way)
        print(f"{case}: {trouble or 'nothing'}", flush=True)
        wrong += bool(trouble)
    return int(wrong > 0)


def _repeated(runner: Runner, plant: Callable[[], None], way: str) -> str:
    """Run a case twice and then with its bug; what is wrong with it, if it does not find the bug alone."""
    target, seed, *plan = way.split()
    job = Job(target, int(seed), Plan.parse(plan), OPS[target])
    one, other = runner.one(job), runner.one(job)
    if one.findings:
        return str(one.findings[0])
    if one.hash != other.hash:
        return "a second run took another way"
    planted = runner.one(job._replace(before=plant))
    if not planted.findings:
        return "the bug is not found any more"
    print(f"  found if planted: {_replaying(job, job.plan, planted.findings[0])}")
    return ""


def _replay(runner: Runner, arguments: argparse.Namespace, target: str) -> int:
    plan = Plan.parse(arguments.plan or [])
    ops = arguments.ops or OPS[target]
    job = Job(target, arguments.seed, plan, ops, tracing=True, stop_at=arguments.stop_at)
    result = runner.one(job)
    RECORDS.mkdir(parents=True, exist_ok=True)
    file = RECORDS / f"{target}-{job.seed}.txt"
    file.write_text("\n".join(f"{note.time:.6f} {note.machine} {note.text}" for note in result.notes))
    if result.findings:
        print(page(result))
        print()
    for finding in result.findings:
        print(f"seed {job.seed}: {finding.kind}: {finding.text}")
    print(f"{result.operations} ops, {result.virtual:.2f} virtual s, hash {result.hash}, trace in {file}")
    if not arguments.twice:
        return int(bool(result.findings))
    again = runner.one(job)
    print("a second run took the same way" if again.hash == result.hash else f"second hash {again.hash}")
    return int(bool(result.findings) or again.hash != result.hash)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev simulate", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("seeds", nargs="?", type=int, help=f"how many seeds of each target; {USUAL} if nothing is said")
    add("--minutes", type=float, help="run for so long instead")
    add("--first", type=int, default=1, help="the first seed")
    add("--jobs", type=int, default=1, help="how many at a time")
    add("--target", choices=list(TARGETS), help="all if none is named")
    add("--ops", type=int, help="the operations of a seed")
    add("--seed", type=int, help="run this seed with a trace, and show what happened")
    add("--plan", nargs="+", metavar="NAME=VALUE", help=f"run only this of a seed: {PLAN}")
    add("--stop-at", type=float, default=float("inf"), help="stop that seed in the debugger at this second")
    add("--record", action="store_true", help=f"add what the run came to to {KEPT}, or hunts.jsonl")
    add("--cases", action="store_true", help="run what once found a bug twice, and then with that bug")
    add("--twice", action="store_true", help="run every seed twice and compare")
    add("--again", type=int, default=EVERY, metavar="N", help=f"run one seed of N twice; {EVERY}")
    add(
        "--shrink",
        type=int,
        default=MOST_SHRUNK,
        metavar="N",
        help=f"make N runs with findings smaller; {MOST_SHRUNK}",
    )
    add("--bugs", nargs="*", metavar="NAME", help="plant bugs of ./dev mutate and count the seeds to each")
    arguments = parser.parse_args()
    if arguments.plan:
        try:
            Plan.parse(arguments.plan)
        except ValueError as error:
            parser.error(str(error))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
