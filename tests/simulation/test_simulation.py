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
from tests.simulation.simulation import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 20
"""How many short seeds of each target are run, each of them twice."""


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
def test_the_promises_hold_in_every_world() -> None:
    """Whatever fails, no promise is broken, and a seed that runs twice takes the same way."""
    said = simulate(str(SEEDS), "--twice", "--ops", "16", "--plan", "clients=2", "subjects=1")
    assert said.count(f" {SEEDS} seeds ") == len(TARGETS)
    assert said.count(f" 0 findings   {SEEDS} replayed, {SEEDS} equal") == len(TARGETS)
    assert "never reached" not in said  # faults beside the code that nobody meets are no test


@pytest.mark.timeout(600)
def test_a_bug_that_was_found_once_does_not_come_back() -> None:
    """Runs that found a bug find nothing, take the same way twice, and find the bug if it is there again.

    Then they print a command that stops where it was found.
    """
    said = simulate("--cases").splitlines()
    assert sum(line.endswith(": nothing") for line in said) == len(said) / 2
    assert all("--stop-at" in line for line in said if line.startswith("  found if planted: ./dev simulate"))
    words = said[0].partition("./dev simulate ")[2].split()
    assert "(Pdb)" in simulate(*words, typed="q\n", expected=1)


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
