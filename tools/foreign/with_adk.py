"""ADK's tests of session services, with ours in place of the one on a database."""

from __future__ import annotations

import asyncio
import itertools
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


async def _there(call: Any) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _LOOP))


google.adk.sessions.DatabaseSessionService = Service  # type: ignore[misc, assignment]
google.adk.sessions.database_session_service.DatabaseSessionService = Service  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
