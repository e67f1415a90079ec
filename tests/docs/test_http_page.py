"""The reference page about HTTP: its tables are those of the catalogue and of the table of codes."""

from __future__ import annotations

from pathlib import Path

from holdfast.edges.http import watching
from holdfast.edges.http.limits import HttpLimits
from holdfast.edges.http.pages import page

ROOT = Path(__file__).parents[2]


def read() -> str:
    """The page."""
    return (ROOT / "docs/reference/http.md").read_text()


def test_tables_are_made_from_the_code() -> None:
    """The tables of verbs, headers and statuses are as `python -m holdfast.edges.http.pages` makes them."""
    assert page(read()) == read()
    assert page(read().replace("`VERSION_CONFLICT`", "`CONFLICT`")) == read()


def test_limits_are_true() -> None:
    """The limits on the page are those of the code."""
    text = read()
    limits = HttpLimits()
    for number in (limits.body_bytes, limits.head_bytes, limits.connections):
        assert f"{number:,}" in text
    seconds = (limits.request_seconds, limits.idle_seconds, limits.answer_seconds)
    assert "{:g}; {:g}; {:g} seconds".format(*seconds) in text
    assert f"{limits.watches} and {limits.watches_of_one}" in text
    assert f"| {watching.READ_SECONDS:g} seconds |" in text
    assert f"{watching.BEAT_SECONDS:g} seconds of silence" in text
