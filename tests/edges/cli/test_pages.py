"""The page of commands is made from the commands.

Law: a page never promises what the program does not do. The examples of all pages are run by `tests/docs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from holdfast.edges.cli.exit_codes import EXIT_CODES
from holdfast.edges.cli.reference import reference

pytestmark = pytest.mark.unmeasured

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
MADE_BY: Final = "python -m holdfast.edges.cli.reference > docs/reference/cli.md"


def test_the_reference_is_up_to_date() -> None:
    """The page of commands is what the commands say; it is written anew by the line in the message."""
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), f"run: {MADE_BY}"


def test_the_reference_has_every_exit_code_and_error() -> None:
    """A script's author finds what each number means."""
    page = reference()
    assert all(f"`{code}`" in page for code in EXIT_CODES)
    assert all(f"\n| {number} | " in page for number in {*EXIT_CODES.values(), 0, 130, 141})
