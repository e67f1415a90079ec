"""The line of those who wait for a lock: who comes next, and how to wait without asking again and again.

A waiter draws a ticket, which is a version of the namespace and so grows with every arrival, and puts an
entry with that ticket in its key below the lock's. The first of these keys is the next holder. Everybody else
looks at the one before them alone, so a lock that changes hands wakes one waiter, however many there are.
Waiters of one process draw and stand in groups: see `arrivals`.

Law: the line is about order, never about safety. Who holds the lock is decided by the batch that takes it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import milliseconds
from holdfast.errors import HoldfastError, KeyNotFound
from holdfast.handles.recipes.lease import FIRST_PAUSE, Lease
from holdfast.handles.recipes.lock_arrivals import arrivals_at
from holdfast.handles.recipes.lock_news import is_heard, news_of
from holdfast.handles.recipes.names import TICKET_DIGITS, WAITING
from holdfast.verbs.cursors import cursor_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.handles.keys import Keys
    from holdfast.model import Entry

REACH: Final = 64
"""How many tickets back a waiter looks at first for the one before it, and how many keys in one look."""
SPREAD: Final = 64
LATEST: Final = 1 / 6
"""Waiters with tickets in a row keep their places one after the other, over this part of the ttl."""
FURTHER: Final = 4
"""How many times as far it looks back when there was none."""


class Line:
    """One waiter's place in the line of a lock.

    Args:
        kv: The namespace's handle.
        lock: The lock's name.
        key: The key of the lock's entry.
        ttl: For how many seconds the place is kept for a waiter of whom nothing is heard.
        provenance: The writer of its entries, as the verbs take it.
    """

    def __init__(self, kv: Keys, lock: str, *, key: str, ttl: int, provenance: dict[str, Any]) -> None:
        self._kv = kv
        self._lock_key = key
        self._prefix = f"{key}/{WAITING}/"
        self._guard = f"{lock}/{WAITING}"
        self._ttl = ttl
        self._provenance = provenance
        self._ticket = 0
        self._ahead: str | None = None
        self.manner: object = (ttl, provenance.get("writer"))
        """How it joins the line; those who join in the same way do so together."""
        self.lease = self.patience()
        """For how long the place is kept."""
        self.place: str | None = None
        """The key of the waiter's entry, once it has drawn a ticket."""

    async def empty(self) -> bool:
        """Whether nobody waits."""
        return not (await self._kv.list(self._prefix, limit=1)).keys

    async def enter(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Take the last place, unless an attempt to do without one succeeds; whether it did.

        It is made if nobody else of this process waits or comes.
        """
        heard = is_heard(self._kv, self._lock_key)
        async with arrivals_at(self._kv, self._lock_key) as arrivals:
            first = arrivals.users == 1 and not heard
            if first and await arrivals.attempt(attempt):
                return True
            await arrivals.join(self, first=first, patient=first)
        return False

    async def _join(self) -> None:
        """Take the last place anew: an earlier one of this waiter is gone."""
        async with arrivals_at(self._kv, self._lock_key) as arrivals:
            await arrivals.join(self)

    def seat(self, ticket: int, *, ahead: str | None) -> None:
        """Have drawn this ticket; `ahead` is the place before it, if that is known."""
        self._ticket = ticket
        self.place = self._key_of(ticket)
        self._ahead = ahead

    async def leave(self) -> None:
        """Give the place up, if there is one; where that fails it is gone when its time is over."""
        if self.place is not None:
            with suppress(HoldfastError):
                await self._kv.delete(self.place, **self._provenance)

    async def until_my_turn(self) -> None:
        """Wait until the lock may be free for this waiter, and keep the place meanwhile."""
        async with news_of(self._kv, self._lock_key, since=self._ticket) as news:
            while True:
                before, self._ahead = self._ahead, None
                if before is None:
                    before = await self.patience().insist(self._before)
                left = news.leaving(before)
                try:
                    entry = await self.patience().insist(partial(self._kv.get, before))
                    if entry is not None:
                        await self._until_gone(entry, left)
                    elif before == self._lock_key:
                        return
                finally:
                    left.cancel()

    async def _until_gone(self, entry: Entry, left: asyncio.Future[None]) -> None:
        """Wait until an entry may be gone, by a change or by its deadline."""
        while not left.done():
            if self._due <= 0 and not await self._kept():
                return
            if (rest := self._seconds_to(entry)) <= 0:
                found = await self.patience().insist(partial(self._kv.get, entry.key))
                if found is None:
                    return
                entry, rest = found, max(self._seconds_to(found), FIRST_PAUSE)
            await asyncio.wait({left}, timeout=min(rest, max(self._due, 0)))
        left.result()

    @property
    def _due(self) -> float:
        """In how many seconds the place is to be kept for longer: not all of a crowd at once."""
        return self.lease.due + self._ticket % SPREAD / SPREAD * LATEST * self._ttl

    def patience(self) -> Lease:
        """For how long a waiter puts up with storage that is away: as long as its place is kept."""
        return Lease(self._kv.store, self._ttl)

    async def draw(self, count: int) -> list[int]:
        """Tickets: versions of the namespace, in a row and greater than all that were drawn before."""
        batch = await self._kv.batch(writes=[{"guard": self._guard}] * count, **self._provenance)
        return [ticket for ticket in batch.versions if ticket is not None]

    async def stand(self, places: Sequence[str | None]) -> None:
        """Put an entry at each of these places."""
        entry = {"value": None, "ttl": self._ttl, "semantics": {"purpose": "lock"}}
        if writes := [{"key": place, **entry} for place in places]:
            await self._kv.batch(writes=writes, **self._provenance)

    async def _kept(self) -> bool:
        """Keep the place for longer; if it is gone, whoever came meanwhile is before."""
        assert self.place is not None
        lease = self.patience()
        try:
            await lease.insist(partial(self._kv.set_ttl, self.place, self._ttl, **self._provenance))
        except KeyNotFound:
            await self._join()
            return False
        self.lease = lease
        return True

    async def _before(self) -> str:
        """The key before this waiter's in the line; the first in it has the lock's before."""
        while self._ahead is None:
            first = await self._kv.list(self._prefix, limit=1)
            if first.keys == [self.place]:
                return self._lock_key
            if (before := await self._neighbour()) is not None:
                return before
            await self._join()
        return self._ahead

    async def _neighbour(self) -> str | None:
        """The last key before this waiter's; None if it stands in the line no more.

        It is looked for among the last tickets before this waiter's, and then further and further back, so
        that a look costs the same however long the line is.
        """
        reach = REACH
        while True:
            before = await self._last_since(self._ticket - reach)
            if before != self.place or reach >= self._ticket:
                return self._lock_key if before == self.place else before
            reach *= FURTHER

    async def _last_since(self, ticket: int) -> str | None:
        """The last key after this ticket's and before this waiter's, or this waiter's if there is none."""
        assert self.place is not None
        before = self.place
        cursor = cursor_after(self._key_of(ticket)) if ticket > 0 else None
        while True:
            page = await self._kv.list(self._prefix, cursor=cursor, limit=REACH)
            for key in page.keys:
                if key >= self.place:
                    return before if key == self.place else None
                before = key
            if (cursor := page.cursor) is None:
                return None

    def _key_of(self, ticket: int) -> str:
        return f"{self._prefix}{ticket:0{TICKET_DIGITS}x}"

    def _seconds_to(self, entry: Entry) -> float:
        """How long an entry still has by the store's clock."""
        if entry.expires_at is None:
            return inf
        return (milliseconds(entry.expires_at) - self._kv.store.now()) / 1000
