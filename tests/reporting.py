"""The report on coverage, made by several processes, since it is made when no test is left to run beside it.

Law: it has what `./dev test` reads, in the form of coverage's own report as JSON: the files with what is
missing of each, and the totals. What counts as covered is coverage's to say.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from coverage import Coverage


def parts_of(files: list[str], count: int) -> list[list[str]]:
    """Divide files into parts that take about as long to look through; none of them is empty."""
    by_size = sorted(files, key=lambda file: Path(file).stat().st_size)
    return [part for part in (by_size[number::count] for number in range(count)) if part]


def together(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the reports on different files together."""
    counted = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return {
        "files": {name: file for report in reports for name, file in report["files"].items()},
        "totals": {name: sum(report["totals"][name] for report in reports) for name in counted},
    }


def reported(part: list[str]) -> dict[str, Any]:
    """The report of coverage on some files."""
    measured = Coverage()
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "part.json"
        measured.json_report(morfs=part, outfile=str(place))
        report: dict[str, Any] = json.loads(place.read_text())
    return report


def main(place: Path) -> None:
    """Write the report on what the file .coverage holds."""
    measured = Coverage()
    measured.load()
    processes = os.cpu_count() or 2
    parts = parts_of(sorted(measured.get_data().measured_files()), processes)
    if not parts:
        sys.exit("coverage has measured nothing")
    with get_context("fork").Pool(processes) as pool:
        place.write_text(json.dumps(together(pool.map(reported, parts))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
