"""LangGraph's tests of graphs, with our checkpointer in place of the one on SQLite and our store in memory's.

Tests with other checkpointers, and those that use neither a checkpointer nor a store, are not run.
"""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import langgraph.store.memory
import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import holdfast
import holdfast.sync
from holdfast.integrations.langgraph import HoldfastGraphStore, HoldfastSaver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LEFT_OUT: Final[dict[str, str]] = {}
OURS: Final = {
    "sync_checkpointer": {"sqlite"},
    "async_checkpointer": {"sqlite_aio"},
    "sync_store": {"in_memory"},
    "async_store": {"in_memory"},
}
"""The parameters of the fixtures that give ours."""

os.environ["NO_DOCKER"] = "true"
numbers: Final = itertools.count()
opened: Final = holdfast.sync.open("sqlite://")
opened.start()


class Saver:
    """Makes our checkpointers as theirs are made, each in a namespace of its own."""

    @staticmethod
    @contextmanager
    def from_conn_string(_: str) -> Iterator[HoldfastSaver]:
        """Make one for graphs that run without await."""
        yield HoldfastSaver(opened, f"p{next(numbers)}", serde=JsonPlusSerializer())


class AsyncSaver:
    """Makes our checkpointers for graphs that run with await."""

    @staticmethod
    @asynccontextmanager
    async def from_conn_string(_: str) -> AsyncIterator[HoldfastSaver]:
        """Make one on a store that the test's loop serves."""
        async with holdfast.open("sqlite://") as store:
            yield HoldfastSaver(store, serde=JsonPlusSerializer())


class Store(HoldfastGraphStore):
    """Our store, made as theirs is."""

    def __init__(self, **_: Any) -> None:
        super().__init__(opened, f"p{next(numbers)}")


langgraph.store.memory.InMemoryStore = Store  # type: ignore[misc, assignment]

# Clients of servers that are not there, which the tests import for their other checkpointers.
for name in (
    *("psycopg", "psycopg_pool", "langgraph.checkpoint.postgres", "langgraph.checkpoint.postgres.aio"),
    *("langgraph.store.postgres", "langgraph.store.postgres.aio", "langgraph.checkpoint.postgres.base"),
):
    sys.modules[name] = MagicMock()
sys.modules["langgraph.checkpoint.sqlite"] = MagicMock(SqliteSaver=Saver)
sys.modules["langgraph.checkpoint.sqlite.aio"] = MagicMock(AsyncSqliteSaver=AsyncSaver)
sys.modules["langgraph.cache.sqlite"] = MagicMock(SqliteCache=lambda path: InMemoryCache())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that use ours, and skip what is left out, with the reason."""
    gone = [item for item in items if not _is_ours(item)]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if _is_ours(item)]
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _is_ours(item: pytest.Item) -> bool:
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    used = {name: params[name] for name in OURS if name in params}
    return bool(used) and all(value in OURS[name] for name, value in used.items())
