"""The product keeps its promises in simulated worlds, and a seed always takes the same way.

Each test runs in a process of its own, since a simulation replaces clocks, threads and files of the whole
process. `./dev simulate` runs more seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.disk import NoDisk, library

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 20
"""How many short seeds of each target are run, each of them twice."""
CASES = {
    "a large call runs beside a group of its namespace": "sqlite 1 ops=8 keys=1 subjects=9",
    "a node without NATS spins": "cluster 6 ops=8 clients=1 keys=1 subjects=2",
    "a restore onto a full disk": "processes 19 faults=1,3,7 ops=60 keys=4 subjects=9",
}
"""Runs that find a bug if it is planted again: the target, the seed and the plan."""


def simulate(*arguments: str, expected: int = 0, typed: str = "") -> str:
    """Run `./dev simulate` and return what it prints. `typed` is what a debugger gets."""
    try:
        library()
    except NoDisk as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        input=typed,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["sqlite", "processes", "cluster"])
def test_the_promises_hold_in_every_world(target: str) -> None:
    """Whatever fails, no promise is broken, and a seed that runs twice takes the same way."""
    short = ("--ops", "16", "--plan", "clients=2", "subjects=1")
    said = simulate(str(SEEDS), "--target", target, "--twice", *short)
    assert f" {SEEDS} seeds " in said
    assert f" 0 findings   {SEEDS} replayed, {SEEDS} equal" in said
    if target != "processes":  # its clients make no calls that are large enough for all of them
        assert "never reached" not in said  # faults beside the code that nobody meets are no test


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_a_bug_that_was_found_once_does_not_come_back(case: str) -> None:
    """A run that found a bug before it was mended finds nothing, and takes the same way twice."""
    target, seed, *plan = CASES[case].split()
    arguments = ("--target", target, "--seed", seed, *(("--plan", *plan) if plan else ()))
    assert "a second run took the same way" in simulate("--twice", *arguments)


@pytest.mark.timeout(600)
def test_a_run_stops_in_the_debugger() -> None:
    """`--stop-at` stops a run before the first turn at or after a time, where the world can be looked at."""
    arguments = ("--target", "sqlite", "--seed", "1", "--ops", "8", "--plan", "clients=1", "subjects=0")
    typed = "p 'stopped', 0.5 <= self.now < 1.0, machine.name\nq\n"
    said = simulate(*arguments, "--stop-at", "0.5", typed=typed, expected=1)
    assert "(Pdb) ('stopped', True, '" in said


@pytest.mark.timeout(600)
def test_a_planted_bug_is_found() -> None:
    """A simulation notices that a former holder of a lock can write."""
    said = simulate("3", "--ops", "40", "--bugs", "fences_are_not_checked")
    assert "1 of 1 bugs found" in said
