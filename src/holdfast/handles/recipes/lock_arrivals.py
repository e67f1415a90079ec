"""Joining the queue of a lock: waiters of one process draw tickets and take their places in groups.

The storage executes requests in order. If a thousand waiters joined one by one at the same time, each step of
a hand-over would wait behind a thousand of their steps.

Law: a group is one batch that draws tickets and one that takes places, and there is one group at a time. A
waiter that gives up either has no place, or knows the place to remove.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from holdfast.errors import Transient
from holdfast.handles.recipes.lease import NOT_ANSWERED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from holdfast.handles.keys import Keys
    from holdfast.handles.recipes.lease import Lease
    from holdfast.pipeline.pipeline import Pipeline

MOST: Final = 32
"""Largest number of waiters that join in one group; their batch takes a few milliseconds."""


class Joining(Protocol):
    """A waiter that joins a queue. Waiters with an equal `manner` can join together.

    `place` is the key of its entry once it has drawn a ticket. `lease` is the time for which that entry is
    kept.
    """

    manner: object
    place: str | None
    lease: Lease

    def patience(self) -> Lease:
        """Return a lease for the time that the waiter tolerates unavailable storage."""
        ...

    async def draw(self, count: int) -> list[int]:
        """Draw consecutive tickets."""
        ...

    def seat(self, ticket: int, *, ahead: str | None) -> None:
        """Accept a ticket. `ahead` is the place before it, if that belongs to the same group."""
        ...

    async def stand(self, places: Sequence[str | None]) -> None:
        """Write an entry at each of these places."""
        ...


class _Arrival(NamedTuple):
    """A waiter that is joining; `seated` is done when it has its place.

    A patient waiter is one that the storage has answered before. Any other gets an error at once if the
    storage is unavailable.
    """

    line: Joining
    patient: bool
    seated: asyncio.Future[None]

    @property
    def manner(self) -> object:
        """The value that waiters must share to join together."""
        return self.line.manner, self.patient


class Arrivals:
    """The waiters joining the queue of one lock. `users` also counts those that may not need to join."""

    def __init__(self) -> None:
        self.users = 0
        self._waiting: deque[_Arrival] = deque()
        self._task: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[None] | None = None

    async def attempt(self, call: Callable[[], Awaitable[bool]]) -> bool:
        """Let the first arrival try to take the lock without a place. Later arrivals wait for the attempt."""
        self._attempt = asyncio.get_running_loop().create_future()
        try:
            return await call()
        finally:
            self._attempt.set_result(None)
            self._attempt = None

    async def join(self, line: Joining, *, first: bool = False, patient: bool = True) -> None:
        """Get a place in the queue, which is passed to `seat`. The first arrival also joins first."""
        arrival = _Arrival(line, patient, asyncio.get_running_loop().create_future())
        if first:
            self._waiting.appendleft(arrival)
        else:
            self._waiting.append(arrival)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="holdfast joins the line of a lock")
        await arrival.seated

    def end(self) -> None:
        """Stop, because no waiter is joining any more."""
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        while self._waiting:
            if self._attempt is not None:
                await asyncio.wait({self._attempt})
            group = self._next()
            try:
                await _seat(group)
            except Exception as error:
                for arrival in _still_here(group):
                    arrival.seated.set_exception(error)

    def _next(self) -> list[_Arrival]:
        """Remove and return the waiters at the front that can join together."""
        group = [self._waiting.popleft()]
        while self._waiting and len(group) < MOST and self._waiting[0].manner == group[0].manner:
            group.append(self._waiting.popleft())
        return group


async def _seat(group: list[_Arrival]) -> None:
    """Draw tickets, and take places for all waiters that are still there."""
    line = group[0].line
    tickets = await _drawn(line, len(group), patient=group[0].patient)
    ahead: str | None = None
    for arrival, ticket in zip(group, tickets, strict=True):
        if not arrival.seated.done():
            arrival.line.seat(ticket, ahead=ahead)
            ahead = arrival.line.place
    lease = line.patience()
    await lease.insist(lambda: line.stand([arrival.line.place for arrival in _still_here(group)]))
    for arrival in _still_here(group):
        arrival.line.lease = lease
        arrival.seated.set_result(None)


async def _drawn(line: Joining, count: int, *, patient: bool) -> list[int]:
    try:
        return await line.draw(count)
    except NOT_ANSWERED as error:
        if not patient and isinstance(error, Transient):
            raise
    return await line.patience().insist(partial(line.draw, count))


def _still_here(group: list[_Arrival]) -> list[_Arrival]:
    return [arrival for arrival in group if not arrival.seated.done()]


_SHARED: Final[WeakKeyDictionary[Pipeline, dict[tuple[str, str], Arrivals]]] = WeakKeyDictionary()
"""The arrivals, by store, namespace and the lock's key."""


@asynccontextmanager
async def arrivals_at(kv: Keys, key: str) -> AsyncIterator[Arrivals]:
    """Yield the arrivals at the queue of a lock."""
    known = _SHARED.setdefault(kv.store, {})
    name = (kv.namespace, key)
    arrivals = known.setdefault(name, Arrivals())
    arrivals.users += 1
    try:
        yield arrivals
    finally:
        arrivals.users -= 1
        if not arrivals.users:
            del known[name]
            arrivals.end()
