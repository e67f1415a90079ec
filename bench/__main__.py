"""`./dev bench [quick|floors|growth|full|SCENARIO …] [--rounds N] [--seconds S] [--json FILE]`.

Measures, tells, draws, and fails on a missed bar.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from bench import tell
from bench.bars import BARS, Bar, judge
from bench.machine import busy, load, machine, versions
from bench.plot import svg
from bench.run import Run
from bench.scenarios import FINELY, LEAST_ROUNDS, SCENARIOS, SUITES

RESULTS: Final = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Run what was asked for; 1 if a bar was missed or a scenario failed."""
    arguments = _arguments()
    names, seconds, wanted = _chosen(arguments.what)
    run = Run(arguments.rounds, arguments.seconds or seconds)
    run.book.versions |= versions()
    if run.count < LEAST_ROUNDS:
        run.book.note(f"{run.count} rounds are no evidence: {LEAST_ROUNDS} are")
    about, others = machine(), busy()
    print(tell.about(about, busy=others), flush=True)
    for name in names:
        _measure(run.finely() if name in FINELY else run, name)
    about["load at the end"] = load()
    bars = wanted if SUITES.keys() >= set(arguments.what) else _judged(run, wanted)
    print(tell.facts(run.book))
    print(tell.verdicts(run.book, bars), flush=True)
    found = tell.document(run.book, bars, about, busy=others)
    _keep(run, found, arguments)
    return 0 if not run.book.failed and all(verdict.reached for verdict in judge(run.book, bars)) else 1


def _measure(run: Run, name: str) -> None:
    """Run a scenario, and tell what it added to the book; one that fails does not cost the others."""
    known, began = set(run.book.scenarios), time.perf_counter()
    try:
        asyncio.run(SCENARIOS[name](run))
    except Exception:
        traceback.print_exc()
        run.book.failed.append(name)
        for added in run.book.scenarios.keys() - known:
            del run.book.scenarios[added]
    print(f"\n== {name}, {run.count} rounds of {run.seconds:g} s, {time.perf_counter() - began:.0f} s in all")
    for scenario in run.book.scenarios.values():
        if scenario.name not in known:
            print(tell.table(scenario))
    print(flush=True)


def _chosen(what: list[str]) -> tuple[list[str], float, tuple[Bar, ...]]:
    """Scenarios in order, each once, the seconds of a round, and the bars that must be looked at."""
    suites = [SUITES[name] for name in what if name in SUITES]
    names = [part for name in what for part in (SUITES[name].scenarios if name in SUITES else [name])]
    bars = dict.fromkeys(bar for suite in suites for bar in suite.bars)
    return list(dict.fromkeys(names)), max([suite.seconds for suite in suites], default=1.0), tuple(bars)


def _judged(run: Run, wanted: tuple[Bar, ...]) -> tuple[Bar, ...]:
    """The bars of the suites that were asked for, and every other of which something was found."""
    found = (bar for bar in BARS if bar.found(run.book) is not None)
    return tuple(dict.fromkeys((*wanted, *found)))


def _keep(run: Run, found: dict[str, object], arguments: argparse.Namespace) -> None:
    RESULTS.mkdir(exist_ok=True)
    name = "-".join(arguments.what)
    picture = RESULTS / f"{name}.svg"
    picture.write_text(svg(list(run.book.scenarios.values())), encoding="utf-8")
    file = arguments.json or RESULTS / f"{name}.json"
    file.write_text(json.dumps(found, indent=1, allow_nan=False), encoding="utf-8")
    print(f"kept in {file} and {picture.relative_to(RESULTS.parents[1])}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="Measure Holdfast and its peers in turn."
    )
    known = [*SUITES, *(name for name in SCENARIOS if name not in SUITES)]
    parser.add_argument(
        "what", nargs="*", default=["quick"], help=f"any of {', '.join(known)}; quick if none"
    )
    parser.add_argument(
        "--rounds", type=int, default=LEAST_ROUNDS, help="5 if not given; fewer is no evidence"
    )
    parser.add_argument("--seconds", type=float, help="how long each side of a round takes")
    parser.add_argument("--json", type=Path, help="a file for everything that was measured")
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
