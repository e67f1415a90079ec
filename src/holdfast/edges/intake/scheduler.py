"""Queues of pending requests, one for each plugin, served in turns.

Each queue is bounded in number and bytes, and so are the requests under way of one plugin and of all
together. So a flood from one plugin fills only its own queue, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.pace import COMPANY_SECONDS, IN_COMPANY, OWN_STARTED, STARTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.intake.requests import Request

LARGE: Final = 13
"""A request counts as one more for every 8 KB (a power of two) of its payload, because decoding and executing
a large one takes as long as many small ones."""

LARGE_IN_COMPANY: Final = 11
"""The same for what a plugin starts in a turn while others send requests too: one more for every 2 KB."""

ALL_WAITING: Final = 65_536
"""Maximum number of pending requests in total. Without payloads they would never reach the limit of bytes."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on pending requests and on requests under way."""

    waiting: int = 4_096
    waiting_bytes: int = 16 * 1024 * 1024
    all_waiting_bytes: int = 64 * 1024 * 1024
    under_way: int = 128
    all_under_way: int = 1_024


class PluginQueue(msgspec.Struct, eq=False):
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


class RequestScheduler:
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
        self._queues: dict[str, PluginQueue] = {}
        self._turns: deque[PluginQueue] = deque()
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

    @property
    def under_way(self) -> int:
        """The number of requests that were started and are not answered yet."""
        return self._under_way

    def take(self, request: Request) -> bool:
        """Queue a request. Returns False if there is no room for it."""
        limits, size, owner = self._limits, len(request.payload), request.queue
        queue = self._queues.get(owner) or PluginQueue()
        if (
            len(queue.waiting) >= limits.waiting
            or queue.waiting_bytes + size > limits.waiting_bytes
            or self._bytes + size > limits.all_waiting_bytes
            or self._waiting >= ALL_WAITING
        ):
            return False
        self._queues[owner] = queue
        if owner != self._latest:  # two plugins compete when both asked recently
            if self._latest:
                self._company_until = request.began + COMPANY_SECONDS
            self._latest = owner
        self._most = limits.under_way
        if request.began < self._company_until and self._most > IN_COMPANY:
            self._most = IN_COMPANY
        queue.waiting.append(request)
        queue.waiting_bytes += size
        self._bytes += size
        self._waiting += 1
        self._enqueue(queue)
        return True

    def done(self, request: Request) -> None:
        """Record the end of a request that was under way."""
        queue = self._queues[request.queue]
        queue.under_way -= 1 + (len(request.payload) >> LARGE)
        self._under_way -= 1
        self._enqueue(queue)
        if not queue.waiting and not queue.under_way:
            self._leave(request.queue)

    def adopt(self, request: Request) -> None:
        """Count a request as under way that was started and expected to be answered at once."""
        queue = self._queues.setdefault(request.queue, PluginQueue())
        queue.under_way += 1 + (len(request.payload) >> LARGE)
        self._under_way += 1

    def withdraw(self) -> list[Request]:
        """Remove and return every pending request. Those under way go on."""
        withdrawn = [request for queue in self._queues.values() for request in queue.waiting]
        self._turns.clear()
        self._waiting = self._bytes = 0
        for owner, queue in list(self._queues.items()):
            queue.waiting.clear()
            queue.waiting_bytes, queue.queued = 0, False
            if not queue.under_way:
                self._leave(owner)
        return withdrawn

    async def drained(self) -> None:
        """Wait until no request is pending or under way."""
        while self._queues:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def _enqueue(self, queue: PluginQueue) -> None:
        if queue.waiting and not queue.queued and queue.under_way < self._most:
            queue.queued = True
            self._turns.append(queue)
        if self._turns and not self._scheduled and self._under_way < self._limits.all_under_way:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Start requests within the limits, one of each plugin in turn.

        A request that weighs more than a plugin may start in a turn takes up the next turns too.

        A read that becomes a task looks nothing up before the loop's next round. So a write that was sent
        after it is held back until then: the tasks are scheduled before the next pump is.
        """
        held: list[PluginQueue] = []
        self._turn = turn = self._turn + 1
        turns, most, all_most = self._turns, self._most, self._limits.all_under_way
        large = LARGE if most > IN_COMPANY else LARGE_IN_COMPANY
        for _ in range(STARTED):
            if not turns or self._under_way >= all_most:
                break
            queue = turns.popleft()
            if queue.turn != turn:
                if queue.begun:
                    queue.begun = max(0, queue.begun - OWN_STARTED * (turn - queue.turn))
                queue.turn, queue.reading = turn, False
            if queue.begun >= OWN_STARTED or (queue.reading and queue.waiting[0].writes):
                held.append(queue)
                continue
            request = queue.waiting.popleft()
            size = len(request.payload)
            weight = 1 + (size >> LARGE)
            queue.begun += 1 + (size >> large)
            queue.waiting_bytes -= size
            self._bytes -= size
            self._waiting -= 1
            if self._begin(request):
                queue.under_way += weight
                self._under_way += 1
                queue.reading = queue.reading or not request.writes
            queue.queued = bool(queue.waiting) and queue.under_way < most
            if queue.queued:
                turns.append(queue)
            elif not queue.waiting and not queue.under_way:
                self._leave(request.queue)
        self._over()
        turns.extend(held)
        self._scheduled = bool(turns) and self._under_way < all_most
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._pump)

    def _leave(self, owner: str) -> None:
        """Forget a plugin that has no requests left."""
        self._queues.pop(owner, None)
        if self._idle is not None and not self._queues:
            self._idle.set()
            self._idle = None
