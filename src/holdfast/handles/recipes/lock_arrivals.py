"""Those of a process who join the line of a lock: they draw their tickets and take their places in groups.

The storage serves in order. If a thousand joined one by one at the same time, each step of a hand-over would
wait behind a thousand steps of theirs.

Law: a group is one batch that draws and one that stands, and there is one group at a time. A waiter who goes
away has no place, or knows the place to give up.
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
"""How many join in one group: their batch takes a few milliseconds."""


class Joining(Protocol):
    """A waiter who joins a line. `manner` is alike for those who can join together.

    `place` is the key of its entry once it has drawn a ticket, and `lease` says for how long that is kept.
    """

    manner: object
    place: str | None
    lease: Lease

    def patience(self) -> Lease:
        """For how long it puts up with storage that is away."""
        ...

    async def draw(self, count: int) -> list[int]:
        """Tickets in a row."""
        ...

    def seat(self, ticket: int, *, ahead: str | None) -> None:
        """Have drawn a ticket, and know the place ahead if it is that of one in the same group."""
        ...

    async def stand(self, places: Sequence[str | None]) -> None:
        """Put an entry at each of these places."""
        ...


class _Arrival(NamedTuple):
    """A waiter who has come; `seated` is done when it has its place.

    It is patient if the storage has answered it before; otherwise it is told at once if the storage is away.
    """

    line: Joining
    patient: bool
    seated: asyncio.Future[None]

    @property
    def manner(self) -> object:
        """Those in whom this is alike join together."""
        return self.line.manner, self.patient


class Arrivals:
    """Those who join the line of one lock; `users` are here, or find out whether they have to be."""

    def __init__(self) -> None:
        self.users = 0
        self._waiting: deque[_Arrival] = deque()
        self._task: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[None] | None = None

    async def attempt(self, call: Callable[[], Awaitable[bool]]) -> bool:
        """Have the first who comes try to do without a place; those who come after it wait for that."""
        self._attempt = asyncio.get_running_loop().create_future()
        try:
            return await call()
        finally:
            self._attempt.set_result(None)
            self._attempt = None

    async def join(self, line: Joining, *, first: bool = False, patient: bool = True) -> None:
        """Have a place in the line, which `seat` tells; the first who came also joins first."""
        arrival = _Arrival(line, patient, asyncio.get_running_loop().create_future())
        if first:
            self._waiting.appendleft(arrival)
        else:
            self._waiting.append(arrival)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="holdfast joins the line of a lock")
        await arrival.seated

    def end(self) -> None:
        """Stop: nobody waits for a place any more."""
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
        """Those at the front who join in the same way."""
        group = [self._waiting.popleft()]
        while self._waiting and len(group) < MOST and self._waiting[0].manner == group[0].manner:
            group.append(self._waiting.popleft())
        return group


async def _seat(group: list[_Arrival]) -> None:
    """Draw tickets, and have everybody stand who is still there."""
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
    """The arrivals at the line of a lock, for the length of a block."""
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
