"""Engines on empty storage, for rules that hold on each of them.

Only fixtures that tests of several files here need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from holdfast.audit.keyring import Keyring
from holdfast.engine import Engine
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SqliteEngine
from holdfast.testing import AUDIT_KEY
from tests.postgres_stores import Stores

KEYS: Final = Keyring([AUDIT_KEY.encode()])


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path, pg_stores: Stores) -> Iterator[Callable[[], Engine]]:
    """Makes an engine on empty storage."""
    made = iter(range(9))
    taken: list[str] = []

    def engine() -> Engine:
        if request.param == "memory":
            return MemoryEngine(KEYS)
        if request.param == "sqlite":
            return SqliteEngine(tmp_path / f"{next(made)}.db", KEYS)
        taken.append(pg_stores.take())
        return PostgresEngine(taken[-1], connections=3, keys=KEYS)

    yield engine
    for url in taken:
        pg_stores.give_back(url)
