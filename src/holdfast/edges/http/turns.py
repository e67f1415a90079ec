"""Turns of requests and of connections.

Law: requests of a connection are answered in the order in which they were sent. Connections that have sent
much take turns, so that no request waits until all of it is parsed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.clock import TICKS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

READING_SECONDS: Final = 0.001
"""Seconds for which pieces of what has arrived on all connections are parsed in a turn of the event loop."""


class ParsesInTurn(Protocol):
    """A connection that has received more than it may parse at once."""

    def parse_piece(self) -> None:
        """Parse the next piece."""
        ...


class InTurn:
    """The turn of a request that the application answers while earlier ones are being answered.

    `held` is the number of bytes of its body that are counted.

    Args:
        cycle: The request, as uvicorn has it.
    """

    def __init__(self, cycle: Any) -> None:
        self.cycle = cycle
        self.held = 0
        self._come: asyncio.Future[None] | None = None

    def await_in(self, app: ASGIApp) -> ASGIApp:
        """Return an application that begins at once, and waits for its turn before it answers."""
        come = self._come = asyncio.get_running_loop().create_future()

        async def in_turn(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_in_turn(message: Any) -> None:
                if not come.done():
                    await come
                await send(message)

            await app(scope, receive, send_in_turn)

        return in_turn

    def come(self) -> None:
        """Let the application answer."""
        if self._come is not None and not self._come.done():
            self._come.set_result(None)


class ReadingTurns:
    """Turns of connections that have sent much, so that no request waits until all of it is parsed."""

    def __init__(self) -> None:
        self._waiting: dict[ParsesInTurn, None] = {}
        self._scheduled = False

    def wait(self, connection: ParsesInTurn) -> None:
        """Let a connection parse a piece when its turn comes."""
        self._waiting[connection] = None
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        until = TICKS() + READING_SECONDS
        while self._waiting:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.parse_piece()
            if TICKS() > until:
                break
        self._scheduled = False
        if self._waiting:
            self.wait(next(iter(self._waiting)))
