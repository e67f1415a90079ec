"""Limits on the time and number of connections, so that slow clients cannot keep others out.

Law: a new connection is always accepted. When there are too many, the one that has waited longest for its
client is closed; if all are being answered, the one with the oldest request. Sending a few bytes now and then
gains a client no time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 128
"""Maximum number of connections."""
REQUEST_SECONDS: Final = 5.0
"""Seconds that a client may take to send the head of a request, the first or the next one."""
ANSWER_SECONDS: Final = 30.0
"""Seconds that a response may take until the client has received all of it."""


class BoundedConnection(H11Protocol):
    """A connection that is closed if its client is too slow or if there are too many connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.standing = (False, 0.0)
        """True while a request is answered, and the time of the last change. The least is closed first."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, and close another if there are too many."""
        super().connection_made(transport)
        self._allow(REQUEST_SECONDS)
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        if len(others) >= MOST:
            min(others, key=_standing).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle received data. The time limit for the response starts with the head of a request."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._allow(ANSWER_SECONDS, answering=True)

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have arrived already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._allow(REQUEST_SECONDS)

    def _allow(self, seconds: float, *, answering: bool = False) -> None:
        self._stop_timer()
        self.standing = (answering, self.loop.time())
        # Not close(): that would wait for a client that does not read.
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _standing(connection: Any) -> tuple[bool, float]:
    standing: tuple[bool, float] = connection.standing
    return standing
