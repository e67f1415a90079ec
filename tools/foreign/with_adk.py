"""ADK's tests of session services, with ours in place of the one on a database."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from typing import Any, Final

import google.adk.sessions
import google.adk.sessions.database_session_service
import pytest

import holdfast
from holdfast.integrations.adk import HoldfastSessionService

_TEMPORARY: Final = "expects that `temp:` state is dropped, which ADK keeps in memory since 2.0"
LEFT_OUT: Final = {
    "test_session_state": _TEMPORARY,
    "test_create_new_session_will_merge_states": _TEMPORARY,
    "test_get_session_orders_tied_timestamps_by_id": "our events have the order in which they were appended",
}

_LOOP: Final = asyncio.new_event_loop()
_NUMBERS: Final = itertools.count()
_STORE: Final = holdfast.open("memory://")
threading.Thread(target=_LOOP.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(_STORE.start(), _LOOP).result()


class Service(HoldfastSessionService):
    """Our service, made as theirs is, in a namespace of its own. Calls are handed to the store's loop."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(_STORE.kv(f"p{next(_NUMBERS)}"))

    async def close(self) -> None:
        """Do nothing."""

    async def create_session(self, **fields: Any) -> Any:
        """Create a session, in the store's thread."""
        return await _there(super().create_session(**fields))

    async def get_session(self, **fields: Any) -> Any:
        """Get a session, in the store's thread."""
        here = asyncio.get_running_loop() is _LOOP
        call = super().get_session(**fields)
        return await (call if here else _there(call))

    async def list_sessions(self, **fields: Any) -> Any:
        """List sessions, in the store's thread."""
        return await _there(super().list_sessions(**fields))

    async def delete_session(self, **fields: Any) -> None:
        """Remove a session, in the store's thread."""
        await _there(super().delete_session(**fields))

    async def append_event(self, session: Any, event: Any) -> Any:
        """Append an event, in the store's thread."""
        return await _there(super().append_event(session, event))

    async def get_user_state(self, **fields: Any) -> Any:
        """Get the state of a user, in the store's thread."""
        return await _there(super().get_user_state(**fields))


async def _there(call: Any) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _LOOP))


google.adk.sessions.DatabaseSessionService = Service  # type: ignore[misc, assignment]
google.adk.sessions.database_session_service.DatabaseSessionService = Service  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of the service on a database, and skip what is left out, with the reason."""
    others = [item for item in items if not _is_of_a_database(item)]
    items[:] = [item for item in items if _is_of_a_database(item)]
    config.hook.pytest_deselected(items=others)
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
        # Where ADK's own service on a database fails a test of the contract, ours must not.
        registry = getattr(sys.modules[item.module.__name__], "_conformance", None)  # type: ignore[attr-defined]
        for backend in getattr(registry, "BACKENDS", ()):
            object.__setattr__(backend, "divergences", {})


def _is_of_a_database(item: pytest.Item) -> bool:
    """Return whether ADK runs a test with several services, and this is the one on a database."""
    chosen = getattr(item, "callspec", None)
    services = (
        [] if chosen is None else [chosen.params.get(one) for one in ("session_service", "service_type")]
    )
    return any(str(getattr(one, "name", "")).upper() == "DATABASE" for one in services)
