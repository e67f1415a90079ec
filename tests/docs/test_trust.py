"""The page about trust names tests and planted bugs that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "trust.md").read_text(encoding="utf-8")


def test_every_test_on_the_page_is_there() -> None:
    """A reader who follows a bug to the test that holds it finds that test."""
    paths = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_planted_bug_on_the_page_is_there() -> None:
    """A bug that the page says can be planted again is known to `./dev mutate` or `./dev simulate --bugs`."""
    files = [*(ROOT / "tests" / "mutate").glob("*.py"), ROOT / "tests" / "simulation" / "bugs.py"]
    plants = "".join(file.read_text(encoding="utf-8") for file in files)
    names = re.findall(r"`([a-z]+(?:_[a-z]+){3,})`", PAGE)
    assert names
    assert [name for name in names if f"def {name}(" not in plants] == []
