"""The OpenAI Agents SDK's tests of sessions, with our session in place of the one on SQLite.

A test may use a session from several event loops, one after the other or at once, so the stores live in a
thread of their own and calls are handed to its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any, Final

import agents
import agents.memory
import agents.memory.sqlite_session
import pytest

import holdfast
from holdfast.integrations.openai_agents import HoldfastSession

_INNER: Final = "tests the connections, threads and locks inside the SDK's own session"
_ROWS: Final = "breaks rows or transactions of the SDK's own tables"
LEFT_OUT: Final = {
    "test_await_mutation_cancellation_hides_later_failure_without_loop_error": _INNER,
    "test_sqlite_session_close_closes_worker_thread_connections": _INNER,
    "test_sqlite_session_reaps_connections_from_exited_worker_threads": _INNER,
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation": _INNER,
    "test_sqlite_session_keeps_connections_of_live_worker_threads": _INNER,
    "test_sqlite_session_file_lock_is_shared_across_instances": _INNER,
    "test_sqlite_session_rollback_failure_evicts_connection": _INNER,
    "test_sqlite_session_close_retries_quarantined_connection": _INNER,
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome": _INNER,
    "test_sqlite_session_pop_item_skips_corrupt_most_recent": _ROWS,
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": _ROWS,
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": _ROWS,
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": _ROWS,
    "test_sqlite_session_failed_add_items_releases_write_lock": _ROWS,
    "test_sqlite_session_failed_clear_session_rolls_back": _ROWS,
    "test_sqlite_session_failed_pop_item_releases_write_lock": _ROWS,
    "test_sqlite_session_closed_rejects_empty_add_items": "our session is not closed; its store is",
}

_LOOP: Final = asyncio.new_event_loop()
_STORES: Final[dict[str, holdfast.Store]] = {}
threading.Thread(target=_LOOP.run_forever, daemon=True).start()


class Session(HoldfastSession):
    """Our session, made as theirs is: from the path of a file, or in memory."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        self._place = f"memory:{id(self)}" if str(db_path) == ":memory:" else f"{db_path}.holdfast"
        url = "memory://" if self._place.startswith("memory:") else self._place
        if self._place not in _STORES:
            _STORES[self._place] = asyncio.run_coroutine_threadsafe(_opened(url), _LOOP).result()
        kv = _STORES[self._place].kv(f"{sessions_table}-{messages_table}")
        super().__init__(session_id, kv, session_settings=session_settings)

    async def get_items(self, limit: int | None = None) -> Any:
        """Get items, in the stores' thread."""
        return await _there(super().get_items(limit))

    async def add_items(self, items: Any, *, request_id: str | None = None) -> None:
        """Add items, in the stores' thread."""
        await _there(super().add_items(items, request_id=request_id))

    async def pop_item(self) -> Any:
        """Remove the latest item, in the stores' thread."""
        return await _there(super().pop_item())

    async def clear_session(self) -> None:
        """Remove all items, in the stores' thread."""
        await _there(super().clear_session())

    def close(self) -> None:
        """Close the store, which the SDK's session does with its connection."""
        store = _STORES.pop(self._place, None)
        if store is not None:
            asyncio.run_coroutine_threadsafe(store.aclose(), _LOOP).result()


async def _opened(url: str) -> holdfast.Store:
    return await contextlib.AsyncExitStack().enter_async_context(holdfast.open(url))


async def _there(call: Any) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _LOOP))


for module in (agents, agents.memory, agents.memory.sqlite_session):
    module.SQLiteSession = Session  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
