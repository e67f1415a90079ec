"""Holds measured coverage to what is required, and lists the lines and branches that no test reaches.

    python -m tools.coverage_gate REPORT

It writes coverage's report of the file .coverage as JSON to REPORT. See `./dev cover`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from coverage import Coverage
from coverage.exceptions import NoDataError

LEAST: Final = 90.0
"""Per cent of the lines, and of the branches, that tests have to reach."""
WHOLE: Final = ("decide", "rules", "errors", "engines/sql/orm")
"""What they have to reach whole."""


def unreached(report: dict[str, Any]) -> list[str]:
    """Return one line for every file that is not covered whole: its share, and what is missing of it."""
    rows = []
    for name, file in sorted(report["files"].items()):
        lines = set(file["missing_lines"])
        branches = [f"{start}->{end}" for start, end in file["missing_branches"] if not {start, end} & lines]
        if lines or branches:
            missing = ", ".join([*ranges(sorted(lines)), *branches])
            rows.append(f"{file['summary']['percent_covered_display']:>3} %  {name}: {missing}")
    return rows


def ranges(numbers: list[int]) -> list[str]:
    """Return numbers as text, with neighbours joined, such as 3-5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def shares(report: dict[str, Any]) -> dict[str, float]:
    """Return the per cent of lines and of branches that were reached."""
    totals = report["totals"]
    counts = {
        "line": (totals["covered_lines"], totals["num_statements"]),
        "branch": (totals["covered_branches"], totals["num_branches"]),
    }
    return {kind: 100.0 * covered / known if known else 100.0 for kind, (covered, known) in counts.items()}


def gaps(report: dict[str, Any]) -> list[str]:
    """Return one sentence for every way in which a report falls short."""
    sentences = [
        f"{kind} coverage is below {LEAST:.0f} %" for kind, share in shares(report).items() if share < LEAST
    ]
    for part in WHOLE:
        stem = f"src/holdfast/{part}"
        files = {
            name: file
            for name, file in report["files"].items()
            if name == f"{stem}.py" or name.startswith(f"{stem}/")
        }
        if not files:
            sentences.append(f"{stem} must be covered whole, but the report does not know it")
        for name, file in files.items():
            lines, branches = file["missing_lines"], file["missing_branches"]
            if lines or branches:
                sentences.append(
                    f"{name} must be covered whole, but misses lines {lines}, branches {branches}"
                )
    return sentences


def main(place: Path) -> int:
    """Write the report and judge it."""
    measured = Coverage()
    measured.load()
    place.parent.mkdir(exist_ok=True)
    try:
        measured.json_report(outfile=str(place))
    except NoDataError:
        sys.exit("coverage: nothing was measured")
    report = json.loads(place.read_text())
    for row in unreached(report):
        print(row)
    for kind, share in shares(report).items():
        print(f"coverage: {share:.1f} % of {kind}{'es' if kind == 'branch' else 's'}")
    sentences = gaps(report)
    for sentence in sentences or ["what is required is reached"]:
        print(f"coverage: {sentence}")
    return bool(sentences)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
