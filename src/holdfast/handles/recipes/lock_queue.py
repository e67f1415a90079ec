"""The queue of a lock's waiters: the order in which they take it, and waiting without polling.

A waiter draws a ticket, which is a version of the namespace and so grows with every arrival. It writes an
entry below the lock's key, with the ticket in its own key. The first of these keys is the next holder. Every
other waiter follows only the entry before its own, so a lock that changes hands wakes one waiter, however
many there are. Waiters of one process draw tickets and take places in groups: see `lock_arrivals`.

Law: the queue is about order, never about safety. The batch that takes the lock decides who holds it.
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
"""Number of tickets back that a waiter searches first for the one before it, and of keys per page."""
SPREAD: Final = 64
LATEST: Final = 1 / 6
"""Fraction of the ttl over which waiters with consecutive tickets spread their renewals."""
FURTHER: Final = 4
"""Factor by which the search is extended when it found nothing."""


class QueuePlace:
    """One waiter's place in the queue of a lock.

    Args:
        kv: The namespace's handle.
        lock: The lock's name.
        key: The key of the lock's entry.
        ttl: Seconds for which the place is kept for a waiter that no longer renews it.
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
        """The waiter's settings for joining. Waiters with equal settings join together."""
        self.lease: Lease = self.patience()
        """The time for which the place is kept."""
        self.place: str | None = None
        """The key of the waiter's entry, once it has drawn a ticket."""

    async def empty(self) -> bool:
        """Return True if the lock has no waiters."""
        return not (await self._kv.list(self._prefix, limit=1)).keys

    async def enter(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Take the last place, unless an attempt to do without one succeeds. Returns True if it did.

        The attempt is made only if no other waiter of this process waits or joins.
        """
        heard = is_heard(self._kv, self._lock_key)
        async with arrivals_at(self._kv, self._lock_key) as arrivals:
            first = arrivals.users == 1 and not heard
            if first and await arrivals.attempt(attempt):
                return True
            await arrivals.join(self, first=first, patient=first)
        return False

    async def _join(self) -> None:
        """Take the last place again, after an earlier place of this waiter was lost."""
        async with arrivals_at(self._kv, self._lock_key) as arrivals:
            await arrivals.join(self)

    def seat(self, ticket: int, *, ahead: str | None) -> None:
        """Accept a ticket. `ahead` is the place before it, if that is known."""
        self._ticket = ticket
        self.place = self._key_of(ticket)
        self._ahead = ahead

    async def leave(self) -> None:
        """Remove the place, if there is one. If that fails, the place expires."""
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
        """Seconds until the place must be renewed, spread so that not all waiters renew at once."""
        return self.lease.due + self._ticket % SPREAD / SPREAD * LATEST * self._ttl

    def patience(self) -> Lease:
        """Return a lease for the time that a waiter tolerates unavailable storage: that of its place."""
        return Lease(self._kv.store, self._ttl)

    async def draw(self, count: int) -> list[int]:
        """Draw tickets: consecutive versions of the namespace, greater than all drawn before."""
        batch = await self._kv.batch(writes=[{"guard": self._guard}] * count, **self._provenance)
        return [ticket for ticket in batch.versions if ticket is not None]

    async def stand(self, places: Sequence[str | None]) -> None:
        """Write an entry at each of these places."""
        entry = {"value": None, "ttl": self._ttl, "semantics": {"purpose": "lock"}}
        if writes := [{"key": place, **entry} for place in places]:
            await self._kv.batch(writes=writes, **self._provenance)

    async def _kept(self) -> bool:
        """Renew the place. Returns False if it was gone and the waiter had to join again at the end."""
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
        """Return the key before this waiter's in the queue. For the first waiter, that is the lock's key."""
        while self._ahead is None:
            first = await self._kv.list(self._prefix, limit=1)
            if first.keys == [self.place]:
                return self._lock_key
            if (before := await self._neighbour()) is not None:
                return before
            await self._join()
        return self._ahead

    async def _neighbour(self) -> str | None:
        """Return the last key before this waiter's, or None if the waiter is no longer in the queue.

        The search starts among the last tickets before this waiter's and is extended further back each time.
        So its cost does not depend on the length of the queue.
        """
        reach = REACH
        while True:
            before = await self._last_since(self._ticket - reach)
            if before != self.place or reach >= self._ticket:
                return self._lock_key if before == self.place else before
            reach *= FURTHER

    async def _last_since(self, ticket: int) -> str | None:
        """Return the last key between this ticket's and this waiter's, or else this waiter's own.

        Returns None if the waiter is no longer in the queue.
        """
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
        """Return the seconds until an entry expires by the store's clock."""
        if entry.expires_at is None:
            return inf
        return (milliseconds(entry.expires_at) - self._kv.store.now()) / 1000
