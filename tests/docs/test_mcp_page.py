"""The reference page about MCP: its tables and limits are those of the code."""

from __future__ import annotations

from pathlib import Path

from holdfast.edges.http.watching import READ_SECONDS
from holdfast.edges.mcp import door, server, sessions, subscriptions
from holdfast.edges.mcp.pages import page
from holdfast.edges.mcp.tools import PAGE, TOOLS

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    """A page."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_tables_are_made_from_the_code() -> None:
    """The tables of tools and prompts are as `python -m holdfast.edges.mcp.pages` makes them."""
    text = read("reference/mcp.md")
    assert page(text) == text
    assert page(text.replace("| `expected_version` |", "| `version` |")) == text
    assert all(f"### {name}\n" in text for name in TOOLS)


def test_limits_are_true() -> None:
    """The limits on the page are those of the code."""
    text = read("reference/mcp.md")
    assert f"{server.MOST_ARGUMENTS:,} bytes" in text
    assert f"| {sessions.MOST_SESSIONS}; one ends after {sessions.IDLE_SECONDS:g} seconds" in text
    assert f"| {subscriptions.MOST_STREAMS} and {subscriptions.MOST_URIS:,} |" in text
    assert f"cut off after {READ_SECONDS:g} seconds and {door.LOOK_SECONDS:g} second |" in text
    assert f"the first {PAGE} keys" in text
    assert "Sixteen of more than forty verbs" in read("adr/0045-agents-get-tools-made-of-verbs.md")
    assert len(TOOLS) == 16
