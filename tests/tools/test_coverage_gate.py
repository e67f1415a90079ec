"""`./dev cover` says which lines and branches no test reaches, and fails where too much is missing."""

from __future__ import annotations

from typing import Any

from tools.coverage_gate import LEAST, WHOLE, gaps, unreached


def _file(percent: str, lines: list[int], branches: list[list[int]]) -> dict[str, Any]:
    summary = {"percent_covered_display": percent}
    return {"missing_lines": lines, "missing_branches": branches, "summary": summary}


def _report(lines: int = 95, branches: int = 95, **missing: list[int]) -> dict[str, Any]:
    """A report on a hundred lines and a hundred branches, and on what must be covered whole."""
    totals = {
        "covered_lines": lines,
        "num_statements": 100,
        "covered_branches": branches,
        "num_branches": 100,
    }
    files = {f"src/holdfast/{part}.py": _file("99", missing.get(part, []), []) for part in WHOLE}
    return {"totals": totals, "files": files}


def test_missing_lines_are_listed_by_file() -> None:
    """A file has one line; neighbouring lines are joined, and branches of a missing line are left out."""
    files = {
        "b.py": _file("97", [3, 4, 5, 9], [[2, 3], [9, 10], [20, 22], [30, -28]]),
        "a.py": _file("100", [], []),
        "c.py": _file("99", [], [[7, 9]]),
    }
    assert unreached({"files": files}) == [
        " 97 %  b.py: 3-5, 9, 20->22, 30->-28",
        " 99 %  c.py: 7->9",
    ]


def test_the_gate() -> None:
    """Nine tenths of the lines and of the branches must be reached, and the kernel whole."""
    assert LEAST == 90
    assert gaps(_report(lines=90, branches=90)) == []
    assert gaps(_report(lines=89)) == ["line coverage is below 90 %"]
    assert gaps(_report(branches=89)) == ["branch coverage is below 90 %"]
    [sentence] = gaps(_report(rules=[7]))
    assert sentence.startswith("src/holdfast/rules.py must be covered whole, but misses lines [7]")
    missing = _report()
    del missing["files"]["src/holdfast/errors.py"]
    [sentence] = gaps(missing)
    assert "the report does not know it" in sentence
