"""The MCP SDK's tests of streams that are resumed, with our event store in place of those in its tests.

The tests name events by numbers from one on, so our ids are numbered here in the order in which they come.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from typing import Any, Final
from unittest.mock import MagicMock

import anyio
import pytest
from mcp.server.streamable_http import EventMessage

import holdfast
from holdfast.integrations.mcp import HoldfastEventStore

_LIST: Final = "looks at the list inside of their store"
LEFT_OUT: Final = {
    "test_initialize_with_unknown_protocol_version_gets_no_priming_event": _LIST,
    "test_the_priming_row_is_stored_before_any_handler_output_for_that_stream": _LIST,
    "test_a_pre_2025_11_25_reconnect_replays_without_minting_a_priming_event": _LIST,
}

_LOOP: Final = asyncio.new_event_loop()
_NUMBERS: Final = itertools.count()
_STORE: Final = holdfast.open("memory://")
threading.Thread(target=_LOOP.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(_STORE.start(), _LOOP).result()


# They watch the SDK's own code, and its other tests.
for _name in ("blockbuster", "logfire", "logfire.testing"):
    sys.modules[_name] = MagicMock()


class Store(HoldfastEventStore):
    """Our store, made as theirs are, for a session of its own. Calls are handed to the loop of the store."""

    def __init__(self) -> None:
        super().__init__(_STORE.kv("mcp"), f"session {next(_NUMBERS)}")
        self._ids: list[str] = []
        self._stored = anyio.Event()

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store an event and return its number."""
        self._ids.append(await _there(super().store_event(stream_id, message)))
        stored, self._stored = self._stored, anyio.Event()
        stored.set()
        return str(len(self._ids))

    async def wait_until_stored(self, count: int) -> None:
        """Wait until there are so many events."""
        while len(self._ids) < count:
            await self._stored.wait()

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Replay events, with their numbers."""
        sent: list[EventMessage] = []

        async def collect(event: EventMessage) -> None:
            sent.append(event)

        known = last_event_id.isdecimal() and 0 < int(last_event_id) <= len(self._ids)
        after = self._ids[int(last_event_id) - 1] if known else last_event_id
        stream: str | None = await _there(super().replay_events_after(after, collect))
        for event in sent:
            number = self._ids.index(str(event.event_id)) + 1
            await send_callback(EventMessage(event.message, str(number)))
        return stream


async def _there(call: Any) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, _LOOP))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put our store in place of theirs, and skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
        module: Any = getattr(item, "module", None)
        for name in ("SequencedEventStore", "SimpleEventStore"):
            if hasattr(module, name):
                setattr(module, name, Store)
