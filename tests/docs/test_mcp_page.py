"""The reference page about MCP: its tables and limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.edges.http.connections import HttpLimits
from holdfast.edges.http.watches import READ_SECONDS
from holdfast.edges.intake.requests import LONG, MOST_SINGLE
from holdfast.edges.mcp import bypass, door, resources, sessions, tools
from holdfast.edges.mcp.tools import PAGE, TOOLS

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    """A page."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_tool_has_a_section() -> None:
    """A reader finds each tool by its name."""
    text = read("reference/mcp.md")
    assert all(f"### {name}\n" in text for name in TOOLS)


def test_limits_are_true() -> None:
    """The limits on the page are those of the code."""
    text = read("reference/mcp.md")
    assert f"| {HttpLimits().body_bytes:,} bytes |" in text
    assert f"| {MOST_SINGLE:,} and {tools.MOST_STEPS:,} bytes |" in text
    assert f"besides the arguments of a tool | {bypass.MOST_ENVELOPE:,} bytes |" in text
    assert f"| {door.MOST_OWNERS:,}; one without sessions" in text
    assert (
        f"| {sessions.AT_ONCE}, of which {sessions.LARGE_AT_ONCE} are larger than {LONG // 1024} KB" in text
    )
    assert f"| {sessions.MOST_SESSIONS}; one ends after {sessions.IDLE_SECONDS:g} seconds" in text
    assert f"| {resources.MOST_STREAMS} and {resources.MOST_URIS:,} |" in text
    assert f"cut off after {READ_SECONDS:g} seconds |" in text
    assert door.LOOK_SECONDS < 1
    assert f"the first {PAGE} keys" in text
    assert "Seventeen of more than forty verbs" in read("adr/0045-agents-get-tools-made-of-verbs.md")
    assert len(TOOLS) == 17


def test_the_results_of_the_conformance_tests_add_up() -> None:
    """Every scenario is named once, and counts as a pass only where the page names it as one that passes."""
    text = read("reference/mcp.md").partition("## Conformance")[2]
    summary, passes, warned, fails = re.split(r"^\*\*These.*?:\*\*", text, flags=re.MULTILINE)
    revisions = ("2025-11-25", "2026-07-28")
    counts = {
        title: tuple(map(int, numbers))
        for title, *numbers in re.findall(r"^\| ([\w ]+) \| (\d+) \| (\d+) \|$", summary, re.MULTILINE)
    }
    named = {"pass": _by_revision(passes), "fail": _by_revision(fails)}
    for result, scenarios in named.items():
        assert tuple(len(scenarios[one]) for one in revisions) == counts[result], result
    warnings = {
        revision: re.findall(r"`([a-z0-9-]+)`", clause)
        for clause, revision in re.findall(r"(.*?)\((20[\d-]+)\)", warned, re.DOTALL)
    }
    assert tuple(len(warnings[one]) for one in revisions) == counts["pass with a warning"]
    for one in revisions:
        everything = named["pass"][one] + named["fail"][one] + warnings[one]
        assert len(set(everything)) == len(everything)
    assert tuple(map(sum, zip(*counts.values(), strict=True))) == (33, 40)


def _by_revision(table: str) -> dict[str, list[str]]:
    """The scenarios of a table, by revision."""
    found: dict[str, list[str]] = {"2025-11-25": [], "2026-07-28": []}
    for scenarios, revision in re.findall(r"^\| (`.+?`) \| (both|20[\d-]+) \|", table, re.MULTILINE):
        for one in found if revision == "both" else [revision]:
            found[one] += re.findall(r"`([a-z0-9-]+)`", scenarios)
    return found
