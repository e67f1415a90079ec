"""The estimate of what a load needs follows from the measured costs."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from typing import Any, Final

from tests.tools.front_door import ROOT

TOOL: Final = ROOT / "tools" / "capacity.py"
CAPACITY: Final[dict[str, Any]] = runpy.run_path(str(TOOL))


def needs(gets: float, sets: float) -> dict[str, Any]:
    """What each engine needs for a load."""
    load = CAPACITY["Load"](gets, sets, keys=1_000_000, bytes=200, plugins=100, audited=False)
    return {engine.name: CAPACITY["need"](engine, load) for engine in CAPACITY["ENGINES"]}


def test_a_small_load_needs_one_service() -> None:
    """What one process can do is not spread over several."""
    small = needs(50, 10)
    assert small["SQLite"].layout == "one store, 1 service"
    assert small["PostgreSQL"].layout == "one store, 1 service"


def test_a_large_load_is_spread_by_what_bounds_the_engine() -> None:
    """Services share the gets of a store and take turns with its sets, so more sets need more stores."""
    reading = needs(100_000, 500)
    assert reading["PostgreSQL"].stores == 1
    assert reading["PostgreSQL"].services > 10
    assert reading["SQLite"].stores > reading["cluster of three"].stores > 1
    writing = needs(500, 20_000)
    assert writing["PostgreSQL"].stores > 1
    assert writing["SQLite"].layout == "5 stores, each with some of the plugins and 1 service"


def test_a_cluster_has_three_nodes_however_little_there_is_to_do() -> None:
    """Three nodes are the fewest of which one may fail."""
    assert needs(1, 1)["cluster of three"].layout == "one store, 3 services"


def test_the_page_says_what_the_tool_says() -> None:
    """The figures of the page on sizing are those that the tool computes with."""
    page = (ROOT / "docs" / "explanation" / "sizing.md").read_text(encoding="utf-8")
    for engine in CAPACITY["ENGINES"][:2]:
        for verb in ("get", "set"):
            [cost] = re.findall(rf"^\| {verb}, {engine.name}, in the program \| (\d+) µs", page, re.MULTILINE)
            assert float(cost) == getattr(engine, verb)
    for what, cost in (
        ("a change in the journal", CAPACITY["CHANGE"]),
        ("an audit record", CAPACITY["AUDIT"]),
    ):
        assert f"| {what} | {cost} |" in page


def test_the_command_prints_each_engine_and_the_disk() -> None:
    """It runs without the package, and an audited store says what a year of records takes."""
    command = [sys.executable, str(TOOL), "--sets", "10", "--audited"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split("  ")[0] for line in printed.splitlines()] == [
        "SQLite",
        "PostgreSQL",
        "cluster of three",
        "disk",
    ]
    assert "216 GB of audit a year" in printed
