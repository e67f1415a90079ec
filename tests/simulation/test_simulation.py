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
SEEDS = {"sqlite": (8, 60), "processes": (5, 40), "cluster": (5, 24)}
"""How many seeds of each target, and the operations of each."""


def simulate(*arguments: str, expected: int = 0) -> str:
    """Run `./dev simulate` and return what it prints."""
    try:
        library()
    except NoDisk as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", SEEDS)
def test_the_promises_hold_in_every_world(target: str) -> None:
    """Whatever fails, no promise is broken, and a seed that runs twice takes the same way."""
    seeds, ops = SEEDS[target]
    said = simulate(str(seeds), "--target", target, "--ops", str(ops), "--again", "5")
    assert f"{seeds} seeds" in said
    assert "0 findings   1 replayed, 1 equal" in said
    assert "never reached" not in said  # faults beside the code that nobody meets are no test


@pytest.mark.timeout(600)
def test_a_planted_bug_is_found() -> None:
    """A simulation notices that a former holder of a lock can write."""
    said = simulate("3", "--ops", "120", "--bugs", "fences_are_not_checked")
    assert "1 of 1 bugs found" in said
