"""The A2A SDK's tests of its task stores, in memory and on SQLite, with ours in place of them.

The tests make their stores outside of any loop, so ours live in a thread of their own, and calls are handed
to its loop.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any, Final

import a2a.server.tasks
import a2a.server.tasks.database_task_store
import a2a.server.tasks.inmemory_task_store
import pytest

import holdfast
from holdfast.integrations.a2a import HoldfastTaskStore

_ROWS: Final = "about the tables of the SDK's own store"
LEFT_OUT: Final = {
    "test_initialize_creates_table": _ROWS,
    "test_get_0_3_task_detailed": _ROWS,
    "test_custom_conversion": _ROWS,
    "test_core_to_0_3_model_conversion": _ROWS,
    "test_inmemory_task_store_copying_behavior[False]": "a task in our store is always a copy",
}

_LOOP: Final = asyncio.new_event_loop()
_NUMBERS: Final = itertools.count()
_STORE: Final = holdfast.open("memory://")
threading.Thread(target=_LOOP.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(_STORE.start(), _LOOP).result()


class Store(HoldfastTaskStore):
    """Our store, made as theirs are, in a namespace of its own."""

    def __init__(self, engine: Any = None, **options: Any) -> None:
        self.engine = engine
        self.task_model = None
        resolver = {name: value for name, value in options.items() if name == "owner_resolver"}
        super().__init__(_STORE.kv(f"p{next(_NUMBERS)}"), **resolver)

    async def initialize(self) -> None:
        """Do nothing."""

    async def save(self, task: Any, context: Any) -> None:
        """Save a task, in the store's thread."""
        await _there(super().save(task, context))

    async def get(self, task_id: str, context: Any) -> Any:
        """Get a task, in the store's thread."""
        return await _there(super().get(task_id, context))

    async def list(self, params: Any, context: Any) -> Any:
        """List tasks, in the store's thread."""
        return await _there(super().list(params, context))

    async def delete(self, task_id: str, context: Any) -> None:
        """Remove a task, in the store's thread."""
        await _there(super().delete(task_id, context))


async def _there(call: Any) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _LOOP))


a2a.server.tasks.InMemoryTaskStore = Store  # type: ignore[misc, assignment]
a2a.server.tasks.DatabaseTaskStore = Store  # type: ignore[misc, assignment]
a2a.server.tasks.inmemory_task_store.InMemoryTaskStore = Store  # type: ignore[misc, assignment]
a2a.server.tasks.database_task_store.DatabaseTaskStore = Store  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(item.name, LEFT_OUT.get(getattr(item, "originalname", "")))
        if item.name.endswith(("-dGFzay0w]", "-dGFzay00]")):
            reason = "expects page tokens that the SDK has read but not written since 1.3"
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
