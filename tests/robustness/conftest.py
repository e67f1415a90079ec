"""Storage that keeps what was acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.postgres_pair import Pair, pair_of_servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, on each engine that is durable."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    url: str = request.getfixturevalue("pg_store_url")
    return url


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary and a synchronous standby, which the tests of a file share."""
    with pair_of_servers() as pair:
        yield pair
