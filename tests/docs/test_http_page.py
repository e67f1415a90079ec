"""The reference page about HTTP: its limits are those of the code."""

from __future__ import annotations

from pathlib import Path

from holdfast.edges.http import watches
from holdfast.edges.http.connections import HttpLimits

ROOT = Path(__file__).parents[2]


def read() -> str:
    """The page."""
    return (ROOT / "docs/reference/http.md").read_text()


def test_limits_are_true() -> None:
    """The limits on the page are those of the code."""
    text = read()
    limits = HttpLimits()
    for number in (limits.body_bytes, limits.head_bytes, limits.connections):
        assert f"{number:,}" in text
    seconds = (limits.request_seconds, limits.idle_seconds, limits.answer_seconds)
    assert "{:g}; {:g}; {:g} seconds".format(*seconds) in text
    assert f"{limits.watches} and {limits.watches_of_one}" in text
    assert f"| {watches.READ_SECONDS:g} seconds |" in text
    assert f"{watches.BEAT_SECONDS:g} seconds of silence" in text
