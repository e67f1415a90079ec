"""A run from its arguments to its exit code, with scenarios that take no time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import __main__ as program
from bench.bars import Bar
from bench.scenarios import Suite

if TYPE_CHECKING:
    from pathlib import Path

    from bench.run import Run


async def even(run: Run) -> None:
    """Both sides the same."""
    for _ in run.rounds():
        for side in ("holdfast", "peer"):
            run.book.add("even", side, run.seconds, unit="s")


async def broken(run: Run) -> None:
    """Fails after it has measured one side."""
    run.book.add("broken", "holdfast", 1, unit="s")
    raise RuntimeError("no")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The program with scenarios of ours."""
    bars = tuple(Bar(group="1", scenario="even", over="peer", at_least=least) for least in (1.0, 1.5))
    suites = {
        "easy": Suite(("even",), seconds=2.0, bars=bars[:1]),
        "hard": Suite(("even",), seconds=2.0, bars=bars[1:]),
        "both": Suite(("broken", "even"), seconds=2.0, bars=bars[:1]),
    }
    monkeypatch.setattr(program, "SCENARIOS", {"even": even, "broken": broken})
    monkeypatch.setattr(program, "SUITES", suites)
    monkeypatch.setattr(program, "RESULTS", tmp_path / "bench" / "results")
    (tmp_path / "bench").mkdir()
    return monkeypatch


@pytest.mark.parametrize(("suite", "code"), [("easy", 0), ("hard", 1)])
def test_a_missed_bar_is_the_exit_code(bench: pytest.MonkeyPatch, suite: str, code: int) -> None:
    """A build that runs it fails when a bar is missed, and only then."""
    bench.setattr("sys.argv", ["bench", suite])
    assert program.main() == code


def test_a_file_and_a_picture_are_kept(bench: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rounds, seconds and the file are as asked; the picture is beside."""
    bench.setattr(
        "sys.argv", ["bench", "even", "--rounds", "3", "--seconds", "7", "--json", str(tmp_path / "x")]
    )
    assert program.main() == 0
    [found] = json.loads((tmp_path / "x").read_text())["scenarios"]
    assert found["sides"]["peer"]["values"] == [7, 7, 7]
    assert (tmp_path / "bench" / "results" / "even.svg").exists()


def test_a_scenario_that_fails_does_not_cost_the_others(
    bench: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest is measured and told; half a scenario is not told, and the run has failed."""
    bench.setattr("sys.argv", ["bench", "both"])
    assert program.main() == 1
    told = capsys.readouterr().out
    assert "FAILED: broken" in told
    assert "even (s, less is better)" in told
    assert "broken (s" not in told


def test_an_unknown_scenario_is_refused(bench: pytest.MonkeyPatch) -> None:
    """A misspelt scenario does not run something else."""
    bench.setattr("sys.argv", ["bench", "evn"])
    with pytest.raises(SystemExit):
        program.main()
