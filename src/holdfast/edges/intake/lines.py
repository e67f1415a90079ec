"""Queues of pending requests, one for each plugin, served in turns.

Law: each queue is bounded in number and bytes, and so are the requests under way of one plugin and of all
together. So a flood from one plugin fills only its own queue, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.pace import COMPANY_SECONDS, IN_COMPANY, OWN_STARTED, STARTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.edges.calls import Verb
    from holdfast.edges.intake.endpoint import Endpoint
    from holdfast.errors import HoldfastError
    from holdfast.wire.subjects import Route

LARGE: Final = 13
"""A request counts as one more for every 8 KB (a power of two) of its payload, because decoding and executing
a large one takes as long as many small ones."""

LARGE_IN_COMPANY: Final = 11
"""The same for what a plugin starts in a turn while others send requests too: one more for every 2 KB."""

ALL_WAITING: Final = 65_536
"""Maximum number of pending requests in total. Without payloads they would never reach the limit of bytes."""


class Request(msgspec.Struct, gc=False):
    """A message that asks for something. `received` is the store's time, `began` a monotonic time.

    `client` is the connection that the request came over and is answered over; a server may permit the reply
    on that connection alone. `verb` is None if no verb has that name. `writes` means that earlier requests
    must have done their lookups before this one starts. `replayed` means that the request was executed before
    and gets the same answer again. `user` is the user of the caller's connection, if the server reports it.
    `back` takes the answer instead of the connection if the request came in at another door. `head` are the
    headers, kept where fields may be in them.
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
    back: Callable[[dict[str, Any], HoldfastError | None], None] | None = None
    head: bytes = b""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on pending requests and on requests under way."""

    waiting: int = 4_096
    waiting_bytes: int = 16 * 1024 * 1024
    all_waiting_bytes: int = 64 * 1024 * 1024
    under_way: int = 128
    all_under_way: int = 1_024


class Line(msgspec.Struct, eq=False):
    """The requests of one plugin. `begun` and `under_way` are weighted by size; see `LARGE`.

    `begun` counts what was started in turn `turn`, and what is left of large requests before it.
    """

    waiting: deque[Request] = msgspec.field(default_factory=deque)
    waiting_bytes: int = 0
    under_way: int = 0
    queued: bool = False
    reading: bool = False
    begun: int = 0
    turn: int = 0


class Intake:
    """Queues requests and starts them, taking turns between plugins.

    Args:
        begin: Starts a request. Returns True if it is under way; `done` is then called for it later.
        over: Called at the end of each turn.
        limits: Limits on pending requests and on requests under way.
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
        self._turn = 0
        self._latest = ""
        self._most = limits.under_way  # current limit for one plugin
        self._company_until = 0.0
        self._idle: asyncio.Event | None = None

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return self._waiting

    def take(self, request: Request) -> bool:
        """Queue a request. Returns False if there is no room for it."""
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
        if owner != self._latest:  # two plugins compete when both asked recently
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
        """Record the end of a request that was under way."""
        line = self._lines[request.line]
        line.under_way -= 1 + (len(request.payload) >> LARGE)
        self._under_way -= 1
        self._queue(line)
        if not line.waiting and not line.under_way:
            self._leave(request.line)

    def adopt(self, request: Request) -> None:
        """Count a request as under way that was started and expected to be answered at once."""
        line = self._lines.setdefault(request.line, Line())
        line.under_way += 1 + (len(request.payload) >> LARGE)
        self._under_way += 1

    def withdraw(self) -> list[Request]:
        """Remove and return every pending request. Those under way go on."""
        withdrawn = [request for line in self._lines.values() for request in line.waiting]
        self._turns.clear()
        self._waiting = self._bytes = 0
        for owner, line in list(self._lines.items()):
            line.waiting.clear()
            line.waiting_bytes, line.queued = 0, False
            if not line.under_way:
                self._leave(owner)
        return withdrawn

    async def drained(self) -> None:
        """Wait until no request is pending or under way."""
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
        """Start requests within the limits, one of each plugin in turn.

        A request that weighs more than a plugin may start in a turn takes up the next turns too.

        A read that becomes a task looks nothing up before the loop's next round. So a write that was sent
        after it is held back until then: the tasks are scheduled before the next pump is.
        """
        held: list[Line] = []
        self._turn = turn = self._turn + 1
        turns, most, all_most = self._turns, self._most, self._limits.all_under_way
        large = LARGE if most > IN_COMPANY else LARGE_IN_COMPANY
        for _ in range(STARTED):
            if not turns or self._under_way >= all_most:
                break
            line = turns.popleft()
            if line.turn != turn:
                if line.begun:
                    line.begun = max(0, line.begun - OWN_STARTED * (turn - line.turn))
                line.turn, line.reading = turn, False
            if line.begun >= OWN_STARTED or (line.reading and line.waiting[0].writes):
                held.append(line)
                continue
            request = line.waiting.popleft()
            size = len(request.payload)
            weight = 1 + (size >> LARGE)
            line.begun += 1 + (size >> large)
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
        turns.extend(held)
        self._scheduled = False
        if turns and self._under_way < all_most:
            self._schedule()

    def _leave(self, owner: str) -> None:
        """Forget a plugin that has no requests left."""
        self._lines.pop(owner, None)
        if self._idle is not None and not self._lines:
            self._idle.set()
            self._idle = None
