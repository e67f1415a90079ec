"""The report on coverage, made by several processes, since it is made when no test is left to run beside it.

Law: it has what `./dev test` reads, in the form of coverage's own report as JSON: the files with what is
missing of each, and the totals. What counts as covered is coverage's to say. Its own report is not asked for:
it also has functions and classes, which take a third of the time.
"""

from __future__ import annotations

import json
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coverage import Coverage
from coverage.report_core import get_analysis_to_report

if TYPE_CHECKING:
    from coverage.results import Analysis


def parts_of(files: list[str], count: int) -> list[list[str]]:
    """Divide files into parts that take about as long to look through; none of them is empty."""
    by_size = sorted(files, key=lambda file: Path(file).stat().st_size)
    return [part for part in (by_size[number::count] for number in range(count)) if part]


def reported(part: list[str]) -> dict[str, dict[str, Any]]:
    """Return what coverage finds in some files, by their names."""
    measured = Coverage()
    measured.load()
    found = get_analysis_to_report(measured, part)
    return {reporter.relative_filename(): about(analysis) for reporter, analysis in found}


def about(file: Analysis) -> dict[str, Any]:
    """Return what the report says about a file."""
    numbers = file.numbers
    return {
        "missing_lines": sorted(file.missing),
        "missing_branches": [
            (line, end) for line, ends in file.missing_branch_arcs().items() for end in ends
        ],
        "summary": {
            "percent_covered_display": numbers.pc_covered_str,
            "covered_lines": numbers.n_executed,
            "num_statements": numbers.n_statements,
            "covered_branches": numbers.n_executed_branches,
            "num_branches": numbers.n_branches,
        },
    }


def together(parts: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Put what was found in the parts together."""
    files = {name: file for part in parts for name, file in part.items()}
    counted = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    totals = {name: sum(file["summary"][name] for file in files.values()) for name in counted}
    return {"files": files, "totals": totals}


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
