"""The page of commands says what each exit code means."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from holdfast.edges.cli.output import EXIT_CODES

pytestmark = pytest.mark.unmeasured

PAGE: Final = Path(__file__).resolve().parents[3] / "docs/reference/cli.md"


def test_the_reference_has_every_exit_code_and_error() -> None:
    """A script's author finds what each number means."""
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{code}`" in page for code in EXIT_CODES)
    assert all(f"\n| {number} | " in page for number in {*EXIT_CODES.values(), 0, 130, 141})
