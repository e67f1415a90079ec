"""Requests wait here, each plugin's in a line of their own, and are begun in turns and at a rate.

Law: a line is bounded in number and bytes, and so is what one plugin and all together may have under way. So
a flood of one plugin fills its own line and nobody else's, and memory stays what it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.edges.calls import Verb
    from holdfast.edges.nats.discovery import Endpoint
    from holdfast.wire.subjects import Route

TURN: Final = 128
OWN_TURN: Final = 8
"""How many requests, and how many of one plugin, are begun before the loop gets to do something else.

What comes in and what goes out takes a few rounds of the loop. So a busy plugin's share in a round is what
the others wait for, several times.
"""
LARGE: Final = 13
"""A request counts as one more for every 8 KB (a power of two) of its payload: to decode a large one and do
what it asks takes as long as many small ones."""

IN_COMPANY: Final = 8
"""How many requests of one plugin may be under way while others ask for something too."""
COMPANY_SECONDS: Final = 0.25
"""For how long a plugin counts as asking after it did."""

IN_A_GROUP: Final = 64
"""How many writes share a commit at the most. Those who share one are answered together and ask again
together; if that were all, they would wait for the service, and then the service for them."""
TO_GATHER: Final = 6
"""For how many turns of the loop writes gather when they come in company: what was sent at once comes in
piece by piece, and so does what answers lead to."""


ALL_WAITING: Final = 65_536
"""How many requests may wait together: without payloads they would never reach the limit of bytes."""


class Request(msgspec.Struct, gc=False):
    """A message that asks for something. `received` is the store's time, `began` that of a stopwatch.

    `client` is the connection that it came over, and over which it is answered: a server may let the
    service answer over that one alone. `verb` is None if there is none of that name. `writes` says that
    what was asked before it must have been looked up before this is begun. `replayed` says that it was
    done before, and is answered as it was then. `user` is whose connection it came from, where the server
    tells.
    """

    line: str
    route: Route
    reply: str
    payload: bytes
    received: int
    began: float
    endpoint: Endpoint
    client: Connection
    verb: Verb | None = None
    writes: bool = False
    key: str = ""
    wait: float = 0.0
    replayed: bool = False
    user: str = ""
    warning: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait and be under way."""

    waiting: int = 4_096
    waiting_bytes: int = 16 * 1024 * 1024
    all_waiting_bytes: int = 64 * 1024 * 1024
    under_way: int = 128
    all_under_way: int = 1_024


class Line(msgspec.Struct, eq=False):
    """The requests of one plugin. What is begun in a turn and under way counts by size; see `LARGE`."""

    waiting: deque[Request] = msgspec.field(default_factory=deque)
    waiting_bytes: int = 0
    under_way: int = 0
    queued: bool = False
    reading: bool = False
    begun: int = 0


class Intake:
    """Takes requests in and begins them, a plugin at a time.

    Args:
        begin: Begins a request. Returns True if it is under way, and `done` will be called for it.
        over: Is called at the end of each turn.
        limits: What may wait and be under way.
    """

    def __init__(self, begin: Callable[[Request], bool], over: Callable[[], None], limits: Limits) -> None:
        self._begin = begin
        self._over = over
        self._limits = limits
        self._lines: dict[str, Line] = {}
        self._turns: deque[Line] = deque()
        self._bytes = 0
        self._waiting = 0
        self._under_way = 0
        self._scheduled = False
        self._latest = ""
        self._most = limits.under_way  # of one plugin, as things are
        self._company_until = 0.0
        self._idle: asyncio.Event | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._waiting

    def take(self, request: Request) -> bool:
        """Let a request wait for its turn; False if there is no room for it."""
        limits, size, owner = self._limits, len(request.payload), request.line
        line = self._lines.get(owner) or Line()
        if (
            len(line.waiting) >= limits.waiting
            or line.waiting_bytes + size > limits.waiting_bytes
            or self._bytes + size > limits.all_waiting_bytes
            or self._waiting >= ALL_WAITING
        ):
            return False
        self._lines[owner] = line
        if owner != self._latest:  # a plugin is in company when another one asked shortly before
            if self._latest:
                self._company_until = request.began + COMPANY_SECONDS
            self._latest = owner
        self._most = limits.under_way
        if request.began < self._company_until and self._most > IN_COMPANY:
            self._most = IN_COMPANY
        line.waiting.append(request)
        line.waiting_bytes += size
        self._bytes += size
        self._waiting += 1
        self._queue(line)
        return True

    def done(self, request: Request) -> None:
        """A request that was under way is not any more."""
        line = self._lines[request.line]
        line.under_way -= 1 + (len(request.payload) >> LARGE)
        self._under_way -= 1
        self._queue(line)
        if not line.waiting and not line.under_way:
            self._leave(request.line)

    def adopt(self, request: Request) -> None:
        """A request that was begun and taken for answered is under way after all."""
        line = self._lines.setdefault(request.line, Line())
        line.under_way += 1 + (len(request.payload) >> LARGE)
        self._under_way += 1

    async def drained(self) -> None:
        """Wait until nothing waits and nothing is under way."""
        while self._lines:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def _queue(self, line: Line) -> None:
        if line.waiting and not line.queued and line.under_way < self._most:
            line.queued = True
            self._turns.append(line)
        if self._turns and not self._scheduled and self._under_way < self._limits.all_under_way:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Begin what may be begun, one request of each plugin after the other.

        A read that becomes a task looks nothing up before the loop's next round. So a write that was sent
        after it is held back until then: the tasks are scheduled before the next pump is.
        """
        held: list[Line] = []
        begun: list[Line] = []
        turns, most, all_most = self._turns, self._most, self._limits.all_under_way
        for _ in range(TURN):
            if not turns or self._under_way >= all_most:
                break
            line = turns.popleft()
            if line.begun >= OWN_TURN or (line.reading and line.waiting[0].writes):
                held.append(line)
                continue
            begun.append(line)
            request = line.waiting.popleft()
            size = len(request.payload)
            weight = 1 + (size >> LARGE)
            line.begun += weight
            line.waiting_bytes -= size
            self._bytes -= size
            self._waiting -= 1
            if self._begin(request):
                line.under_way += weight
                self._under_way += 1
                line.reading = line.reading or not request.writes
            line.queued = bool(line.waiting) and line.under_way < most
            if line.queued:
                turns.append(line)
            elif not line.waiting and not line.under_way:
                self._leave(request.line)
        self._over()
        for line in begun:
            line.begun, line.reading = 0, False
        turns.extend(held)
        self._scheduled = False
        if turns and self._under_way < all_most:
            self._schedule()

    def _leave(self, owner: str) -> None:
        """Forget a plugin that waits for nothing."""
        self._lines.pop(owner, None)
        if self._idle is not None and not self._lines:
            self._idle.set()
            self._idle = None
