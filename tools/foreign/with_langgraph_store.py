"""LangGraph's tests of stores, with ours in place of those in memory and on SQLite, on both sides."""

from __future__ import annotations

import itertools
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import langgraph.store.memory
import pytest

import holdfast
import holdfast.sync
from holdfast.integrations.langgraph import HoldfastGraphStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

THEIR_SQL: Final = "about the SQL of the store on SQLite"
LEFT_OUT: Final = {
    "test_no_running_loop": "blocking the loop raises our Unsupported, not asyncio's InvalidStateError",
    "test_cannot_put_empty_namespace": "searches with a query, which theirs ignore without embeddings",
    "test_ttl_refresh": "counts what a sweep by hand removes, which ours needs not; there is an async one",
    "test_ttl_override_default": "expects that reading does not refresh; LangGraph documents that it does",
    "test_sql_injection_vulnerability": "expects that a strange filter key is refused; ours may be any",
    "test_vector_store_initialization[sqlite]": "looks for a table of vectors; the async one runs",
    "test_nonnull_migrations": THEIR_SQL,
    "test_escape_glob_literal": THEIR_SQL,
    "test_namespace_match_pattern": THEIR_SQL,
    "test_list_namespaces_prefix_uses_indexable_condition": THEIR_SQL,
}

numbers: Final = itertools.count()
opened: Final = holdfast.sync.open("sqlite://")
opened.start()


def index_of(theirs: dict[str, Any] | None) -> Any:
    """Return an index as it is documented; their tests on SQLite give the fields another name."""
    if theirs is None:
        return None
    known = {name: theirs[name] for name in ("dims", "embed")}
    return known | {"fields": theirs.get("fields") or theirs.get("text_fields")}


class MemoryStore(HoldfastGraphStore):
    """Our store, made as theirs in memory is."""

    def __init__(self, *, index: Any = None) -> None:
        super().__init__(opened, f"p{next(numbers)}", index=index)


class Store(HoldfastGraphStore):
    """Our store, made as theirs on SQLite is. It needs no set-up, and nothing to remove what has expired."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, _: str, *, ttl: Any = None, index: Any = None) -> Iterator[Store]:
        """Make one in a namespace of its own."""
        yield cls(opened, f"p{next(numbers)}", index=index_of(index), ttl=ttl)

    def setup(self) -> None:
        """Do nothing."""

    sweep_ttl = start_ttl_sweeper = stop_ttl_sweeper = setup


class AsyncStore(HoldfastGraphStore):
    """Our store for callers with await, made likewise."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls, _: str, *, ttl: Any = None, index: Any = None
    ) -> AsyncIterator[AsyncStore]:
        """Make one on a store that the test's loop serves."""
        async with holdfast.open("sqlite://") as store:
            yield cls(store, index=index_of(index), ttl=ttl)

    async def setup(self) -> None:
        """Do nothing."""

    sweep_ttl = start_ttl_sweeper = stop_ttl_sweeper = setup


langgraph.store.memory.InMemoryStore = MemoryStore  # type: ignore[misc, assignment]
sys.modules["langgraph.store.sqlite"] = MagicMock(SqliteStore=Store, AsyncSqliteStore=AsyncStore)
sys.modules["langgraph.store.sqlite.aio"] = MagicMock(AsyncSqliteStore=AsyncStore)
sys.modules["langgraph.store.sqlite.base"] = MagicMock()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        name = getattr(item, "originalname", "")
        side = "[sqlite]" if hasattr(getattr(item, "module", None), "SqliteStore") else ""
        reason = LEFT_OUT.get(name) or LEFT_OUT.get(name + side)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
