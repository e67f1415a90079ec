"""The report on coverage is made by several processes: see `tests.reporting`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.reporting import parts_of

ROOT = Path(__file__).parents[2]

MODULE = """
def used(given):
    if given:
        return 1
    return 2

def unused():
    return 3
"""


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    command = [sys.executable, "-m", *arguments]
    environment = quiet | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_parts_together_are_the_whole_report(tmp_path: Path) -> None:
    """The report has what coverage's own has of every file, and the sums over all of them."""
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "main.py").write_text("import one, two, three\none.used(True)\ntwo.used(False)\n")
    (tmp_path / ".coveragerc").write_text("[run]\nbranch = true\nrelative_files = true\n")
    assert _python(tmp_path, "coverage", "run", "main.py").returncode == 0
    assert _python(tmp_path, "coverage", "json", "-o", "whole.json").returncode == 0
    done = _python(tmp_path, "tests.reporting", "parts.json")
    assert done.returncode == 0, done.stderr
    whole, parts = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "parts"))
    assert parts["files"].keys() == whole["files"].keys()
    for name, file in parts["files"].items():
        summary = file.pop("summary")
        assert file.items() <= whole["files"][name].items()
        assert summary.items() <= whole["files"][name]["summary"].items()
    assert parts["totals"].items() <= whole["totals"].items()
    assert parts["totals"]["num_branches"] == 6


def test_nothing_to_report_on_is_an_error(tmp_path: Path) -> None:
    """Without measurements there is no report that could pass a gate."""
    done = _python(tmp_path, "tests.reporting", "parts.json")
    assert done.returncode == 1
    assert "coverage has measured nothing" in done.stderr
    assert not (tmp_path / "parts.json").exists()


def test_no_part_is_empty(tmp_path: Path) -> None:
    """Fewer files than processes make fewer parts."""
    for name in "abc":
        (tmp_path / name).write_text(name)
    files = [str(tmp_path / name) for name in "abc"]
    assert parts_of(files, 2) == [[files[0], files[2]], [files[1]]]
    assert parts_of(files[:1], 2) == [files[:1]]
