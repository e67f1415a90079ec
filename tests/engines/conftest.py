"""Engines on empty storage, for rules that hold on each of them.

Law: only fixtures that tests of several files here need.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from holdfast.audit.keyring import Keyring
from holdfast.engine import Engine
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SqliteEngine
from holdfast.testing import AUDIT_KEY
from tests.postgres import Server

KEYS: Final = Keyring([AUDIT_KEY.encode()])


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path, pg_server: Server) -> Callable[[], Engine]:
    """Makes an engine on empty storage."""
    made = iter(range(9))

    def engine() -> Engine:
        if request.param == "memory":
            return MemoryEngine(KEYS)
        if request.param == "sqlite":
            return SqliteEngine(tmp_path / f"{next(made)}.db", KEYS)
        return PostgresEngine(pg_server.create_database(), connections=3, keys=KEYS)

    return engine
