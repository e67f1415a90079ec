"""`./dev test` says which lines and branches no test reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.tools.front_door import front_door

if TYPE_CHECKING:
    from pathlib import Path


def _file(percent: str, lines: list[int], branches: list[list[int]]) -> dict[str, Any]:
    summary = {"percent_covered_display": percent}
    return {"missing_lines": lines, "missing_branches": branches, "summary": summary}


def test_what_is_missing_is_listed_by_file(tmp_path: Path) -> None:
    """A file has one line; neighbouring lines are joined, and branches of a missing line are left out."""
    files = {
        "b.py": _file("97", [3, 4, 5, 9], [[2, 3], [9, 10], [20, 22], [30, -28]]),
        "a.py": _file("100", [], []),
        "c.py": _file("99", [], [[7, 9]]),
    }
    assert front_door(tmp_path).uncovered({"files": files}) == [
        " 97 %  b.py: 3-5, 9, 20->22, 30->-28",
        " 99 %  c.py: 7->9",
    ]
