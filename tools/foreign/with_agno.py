"""agno's tests of sessions and memories on SQLite, with our database in place of theirs."""

from __future__ import annotations

import itertools
from typing import Any, Final
from unittest.mock import MagicMock

import agno.db.sqlite
import agno.db.sqlite.sqlite
import pytest

import holdfast.sync
from holdfast.integrations.agno import HoldfastDb

_NOT_READ: Final = "saves a session over one that it has not read, or that was deleted, which ours refuses"
LEFT_OUT: Final = {
    "test_upsert_sessions_update": _NOT_READ,
    "test_upsert_sessions_performance": _NOT_READ,
}

_NUMBERS: Final = itertools.count()
_STORE: Final = holdfast.sync.open("memory://")
_STORE.start()


class Database(HoldfastDb):
    """Our database, made as theirs is, in a namespace of its own."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(_STORE, plugin=f"p{next(_NUMBERS)}")
        self.Session = MagicMock()  # the tests empty their tables through it

    def _get_table(self, *_: Any, **__: Any) -> None:
        """Return no table."""


agno.db.sqlite.SqliteDb = Database  # type: ignore[misc, assignment]
agno.db.sqlite.sqlite.SqliteDb = Database  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
