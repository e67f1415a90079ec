"""How long a connection may take and how many there may be: nobody who sends slowly keeps others out.

Law: a newcomer is always let in. When there are too many connections, the one that has waited longest for its
client is ended; if all are being answered, the one that was asked first. Sending a little now and then gains
a client no time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 128
"""How many connections there may be together."""
REQUEST_SECONDS: Final = 5.0
"""For how many seconds a client may take to send the head of a request, the first or the next one."""
ANSWER_SECONDS: Final = 30.0
"""For how many seconds an answer may take, until the client has been given the last of it."""


class BoundedConnection(H11Protocol):
    """A connection that ends by itself if its client is too slow, and makes room when there are too many."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.standing = (False, 0.0)
        """Whether it is being answered, and since when it is or isn't: the least makes room for others."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let it in, and another go if there are too many."""
        super().connection_made(transport)
        self._allow(REQUEST_SECONDS)
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        if len(others) >= MOST:
            min(others, key=_standing).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting its time."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what has come. With the head of a request the time for its answer begins."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._allow(ANSWER_SECONDS, answering=True)

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be here already."""
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
