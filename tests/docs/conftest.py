"""What the tests of the documentation share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parsing import quick_parser

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def parser() -> Iterator[None]:
    """Have the library that parses commands do less."""
    with quick_parser():
        yield
