"""A lock shared by tasks, processes and machines, with a token that fences off a holder that lost it.

Only the batch that takes the lock, and the versions of its entry, decide who holds it. Clocks and queues only
make it prompt and fair. An interrupted caller leaves at most an entry that expires.

A waiter draws a ticket, which is a version of the namespace and so grows with every arrival. It writes an
entry below the lock's key, with the ticket in its own key. The first of these keys is the next holder. Every
other waiter follows only the entry before its own, so a lock that changes hands wakes one waiter, however
many there are.

The waiters of one process join in groups (`Arrivals`) and share one watch (`SharedWatch`), because a crowd
needs both. Measured with 3,000 waiters on a SQLite file, on a machine with two cores that had much else to
do: in two runs all had joined after 10 and 16 s (1.1 and 1.4 s of CPU time), and the median hand-over took 28
and 38 ms. With a watch and a group for each waiter, 1,464 had joined after 186 s and 2,488 after 269 s (19
and 22 s of CPU time). With one watch but a group for each, in one run, all had joined after 140 s (13 s of
CPU time), and one hand-over happened in the two minutes after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from math import ceil, inf
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeGuard
from weakref import WeakKeyDictionary

from holdfast import rules, seams
from holdfast.clock import milliseconds
from holdfast.cursors import cursor_after
from holdfast.errors import (
    Busy,
    HoldfastError,
    KeyNotFound,
    LockLost,
    OutcomeUnknown,
    Transient,
    Unavailable,
    ValidationError,
    VersionConflict,
)
from holdfast.handles.kv import KV
from holdfast.handles.recipes.lease import FIRST_PAUSE, GLANCE, NOT_ANSWERED, Lease
from holdfast.handles.recipes.names import TICKET_DIGITS, WAITING, lock_key
from holdfast.model import BatchResult, Entry
from holdfast.pipeline.caller import Caller
from holdfast.pipeline.watch import Bell, watch

RELEASE_PAUSES: Final = (0.05, 0.2, 0.5, 1.0)
"""Seconds that a release waits before each further attempt."""

_log = logging.getLogger("holdfast.lock")


REACH: Final = 64
"""Number of tickets back that a waiter searches first for the one before it, and of keys per page."""
SPREAD: Final = 64
LATEST: Final = 1 / 6
"""Fraction of the ttl over which waiters with consecutive tickets spread their renewals."""
FURTHER: Final = 4
"""Factor by which the search is extended when it found nothing."""
JUMP: Final = 0.05
"""Seconds by which the store's clock may gain on the machine's before waiters are woken."""
GROUP: Final = 32
"""Largest number of waiters that join in one group; their batch takes a few milliseconds."""
_ARRIVALS: Final[WeakKeyDictionary[Caller, dict[tuple[str, str], Arrivals]]] = WeakKeyDictionary()
"""The arrivals, by store, namespace and the lock's key."""
_NEWS: Final[WeakKeyDictionary[Caller, dict[tuple[str, str], SharedWatch]]] = WeakKeyDictionary()
"""The news in use, by store, namespace and prefix."""


class Lock:
    """A lock of a namespace. Get one from `KV.lock`; it can be taken again after it was released.

    As a context manager it is held and renewed for the duration of the block. If the lease is lost anyway,
    the task that holds it is cancelled, and the block raises `LockLost`.

    A holder that does not run can't be stopped. So a write that must not happen after the lock was lost
    carries the `fence`: it is refused as soon as another holder has taken the lock.

    Example:
        `async with kv.lock("import") as lock: await kv.set("total", 7, fence=lock.fence)`
    """

    def __init__(
        self, kv: KV, name: str, *, ttl: float = 30, timeout: float | None = None, owner: str | None = None
    ) -> None:
        self.name = name
        self._key = lock_key(kv, name)
        self._kv = kv
        self._ttl = rules.lock_ttl(ttl)
        self._timeout = _checked(timeout)
        self._provenance: dict[str, Any] = {} if owner is None else {"writer": owner}
        self._semantics = {"purpose": "lock", "producer": owner}
        self._holder = ""
        self._token: int | None = None
        self._version = 0
        self._lease: Lease | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._lost: LockLost | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    @property
    def token(self) -> int:
        """The number of this holding, which is greater than that of every earlier holding of this lock.

        Raises:
            RuntimeError: The lock has not been acquired.
        """
        if self._token is None:
            raise RuntimeError(f"lock {self.name!r} has not been acquired")
        return self._token

    @property
    def fence(self) -> dict[str, Any]:
        """The `fence` for a write that must be refused once another holder has taken the lock.

        Raises:
            RuntimeError: The lock has not been acquired.
        """
        return {"lock": self.name, "token": self.token}

    @property
    def held(self) -> bool:
        """True if the lock is held as far as is known: acquired, not released, and the lease not over."""
        return self._lease is not None and self._lost is None and self._lease.left > 0

    async def acquire(self, *, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - 0 is: no wait
        """Take the lock. It is renewed from then on, until `release`.

        Waiters are served in the order of their arrival. Nothing is cancelled if the lease is lost: check
        `held`, and write with the `fence`.

        Args:
            timeout: Longest time to wait, in seconds; None waits forever, 0 tries without waiting.

        Returns:
            True if the lock was taken.

        Raises:
            RuntimeError: This object holds the lock already.
            ValidationError: The timeout is not a number of seconds.
            Transient: The storage can't be reached.

        Example:
            `taken = await lock.acquire(timeout=5)`
        """
        timeout = _checked(timeout)
        if self._lease is not None:
            raise RuntimeError(f"lock {self.name!r} is held by this very object")
        patience = ceil(self._ttl)  # a place in the queue has whole seconds, as other entries do
        line = QueuePlace(self._kv, self.name, key=self._key, ttl=patience, provenance=self._provenance)
        if timeout == 0:
            return await self._try(line)
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(line)
        except TimeoutError:
            return False

    async def release(self) -> bool:
        """Release the lock. A lock that another holder has taken stays as it is.

        If the storage can't be reached, the lock is left to expire and a warning is logged.

        Returns:
            True if the lock was held until now.

        Raises:
            RuntimeError: This object does not hold the lock.
        """
        if self._lease is None or self._keeper is None:
            raise RuntimeError(f"lock {self.name!r} is not held by this object")
        keeper, self._lease, self._keeper = self._keeper, None, None
        keeper.cancel()
        await asyncio.wait({keeper})
        return self._lost is None and await self._delete()

    async def __aenter__(self) -> Self:
        if not await self.acquire(timeout=self._timeout):
            raise Busy(f"lock {self.name!r} was not free within {self._timeout:g} s")
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        ours = self._lost is not None and task.uncancel() <= self._cancelling
        kept = await self.release()
        if self._lost is not None and ours and kind in (asyncio.CancelledError, None):
            raise self._lost
        if not kept and kind is None:
            raise LockLost(f"lock {self.name!r} was lost before it was released")

    async def _try(self, line: QueuePlace) -> bool:
        """Take the lock if it is free and has no waiters."""
        held, empty = await asyncio.gather(self._kv.get(self._key), line.empty())
        return held is None and empty and await self._take(None)

    async def _wait(self, line: QueuePlace) -> bool:
        """Take the lock when it is this waiter's turn; at once if no waiter is ahead."""
        try:
            if await line.enter(partial(self._try, line)):
                return True
            while True:
                await line.until_my_turn()
                if await self._take(line.place):
                    return True
        except BaseException:
            await line.leave()
            raise

    async def _take(self, place: str | None) -> bool:
        """Take the lock unless another holder has it. The place in the queue is given up with it."""
        self._holder = seams.token(8)
        lease = Lease(self._kv.store, self._ttl)
        try:
            try:
                result = await self._claim(place)
            except OutcomeUnknown:
                result = await lease.insist(lambda: self._claim(place))
        except VersionConflict:
            return False
        except BaseException:
            await self._undo()
            raise
        if lease.left <= 0:
            return False
        version, token, *_ = result.versions
        assert version is not None
        self._version, self._token, self._lost, self._lease = version, token, None, lease
        self._keeper = asyncio.create_task(self._keep(lease), name=f"holdfast keeps {self._key}")
        return True

    async def _claim(self, place: str | None) -> BatchResult:
        """Execute the batch that takes the lock. It can be repeated: its request id names the holder."""
        lock = {"key": self._key, **self._entry}
        leave = [] if place is None else [{"key": place, "delete": True}]
        return await self._kv.batch(
            checks=[{"key": self._key, "version": 0}],
            writes=[lock, {"guard": self.name}, *leave],
            request_id=f"lock-{self._holder}",
            **self._provenance,
        )

    @property
    def _entry(self) -> dict[str, Any]:
        """What is stored of the lock while it is held."""
        return {"value": {"holder": self._holder}, "ttl": self._ttl, "semantics": self._semantics}

    async def _undo(self) -> None:
        """Release what an interrupted call may have taken."""
        with suppress(HoldfastError):
            entry = await self._kv.get(self._key)
            if self._mine(entry):
                await self._kv.delete(self._key, expected_version=entry.version, **self._provenance)

    async def _keep(self, lease: Lease) -> None:
        """Renew the lease until it is released or lost."""
        try:
            while True:
                await lease.until_due()
                await lease.insist(lambda: self._renew(lease))
        except Exception as error:
            self._lose(error)

    async def _renew(self, lease: Lease) -> None:
        since = lease.mark()
        while True:
            try:
                entry = await self._extended()
            except VersionConflict as conflict:
                if not self._mine(conflict.current):
                    raise
                # One of our own calls made this version, but its answer did not reach us.
                self._version = conflict.current.version
            else:
                self._version = entry.version
                lease.renewed(since)
                return

    def _extended(self) -> Awaitable[Entry]:
        """Store the lock again for as long as it is taken. Only a set takes a fraction of a second."""
        if isinstance(self._ttl, int):
            return self._kv.set_ttl(self._key, self._ttl, expected_version=self._version, **self._provenance)
        return self._kv.set(self._key, **self._entry, expected_version=self._version, **self._provenance)

    def _lose(self, error: Exception) -> None:
        _log.warning("lock %r of %s was lost: %s", self.name, self._kv.namespace, error)
        self._lost = LockLost(f"lock {self.name!r} was lost while it was held: {error}")
        self._lost.__cause__ = error
        if self._task is not None:
            self._task.cancel()

    async def _delete(self) -> bool:
        """Remove our entry. Returns True if it was there until now."""
        unknown = False
        for pause in RELEASE_PAUSES:
            try:
                return await self._kv.delete(self._key, expected_version=self._version, **self._provenance)
            except VersionConflict as conflict:
                if not self._mine(conflict.current):
                    return unknown
                self._version = conflict.current.version
            except NOT_ANSWERED:
                unknown = True
                await asyncio.sleep(pause)
        _log.warning("lock %r of %s was not released and will expire", self.name, self._kv.namespace)
        return True

    def _mine(self, entry: Entry | None) -> TypeGuard[Entry]:
        return entry is not None and entry.value == {"holder": self._holder}


def _checked(timeout: float | None) -> float | None:
    if timeout is not None and (type(timeout) not in (int, float) or not timeout >= 0):
        raise ValidationError("timeout must be a number of seconds from 0, or left out", field="timeout")
    return timeout


class QueuePlace:
    """One waiter's place in the queue of a lock.

    Args:
        kv: The namespace's handle.
        lock: The lock's name.
        key: The key of the lock's entry.
        ttl: Seconds for which the place is kept for a waiter that no longer renews it.
        provenance: The writer of its entries, as the verbs take it.
    """

    def __init__(self, kv: KV, lock: str, *, key: str, ttl: int, provenance: dict[str, Any]) -> None:
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
            renews = self._due <= 0
            if renews and not await self._kept():
                return
            # A waiter that renews its place also looks itself, lest it wait out a holder whose end it missed.
            if (rest := self._seconds_to(entry)) <= 0 or renews:
                current = await self.patience().insist(partial(self._kv.get, entry.key))
                if current is None:
                    return
                entry, rest = current, max(self._seconds_to(current), FIRST_PAUSE)
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


class _Arrival(NamedTuple):
    """A waiter that is joining; `seated` is done when it has its place.

    A patient waiter is one that the storage has answered before. Any other gets an error at once if the
    storage is unavailable.
    """

    waiter: QueuePlace
    patient: bool
    seated: asyncio.Future[None]

    @property
    def manner(self) -> object:
        """The value that waiters must share to join together."""
        return self.waiter.manner, self.patient


class Arrivals:
    """The waiters of this process that join the queue of one lock, in groups.

    The storage executes requests in order. If a thousand waiters joined one by one at the same time, each
    step of a hand-over would wait behind a thousand of their steps. A group is one batch that draws tickets
    and one that takes places, and there is one group at a time. A waiter that gives up either has no place,
    or knows the place to remove. `users` also counts those that may not need to join.
    """

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

    async def join(self, waiter: QueuePlace, *, first: bool = False, patient: bool = True) -> None:
        """Get a place in the queue, which is passed to `seat`. The first arrival also joins first."""
        arrival = _Arrival(waiter, patient, asyncio.get_running_loop().create_future())
        if first:
            self._waiting.appendleft(arrival)
        else:
            self._waiting.append(arrival)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve(), name="holdfast joins the queue of a lock")
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
        while self._waiting and len(group) < GROUP and self._waiting[0].manner == group[0].manner:
            group.append(self._waiting.popleft())
        return group


async def _seat(group: list[_Arrival]) -> None:
    """Draw tickets, and take places for all waiters that are still there."""
    waiter = group[0].waiter
    tickets = await _drawn(waiter, len(group), patient=group[0].patient)
    ahead: str | None = None
    for arrival, ticket in zip(group, tickets, strict=True):
        if not arrival.seated.done():
            arrival.waiter.seat(ticket, ahead=ahead)
            ahead = arrival.waiter.place
    lease = waiter.patience()
    await lease.insist(lambda: waiter.stand([arrival.waiter.place for arrival in _still_here(group)]))
    for arrival in _still_here(group):
        arrival.waiter.lease = lease
        arrival.seated.set_result(None)


async def _drawn(waiter: QueuePlace, count: int, *, patient: bool) -> list[int]:
    try:
        return await waiter.draw(count)
    except NOT_ANSWERED as error:
        if not patient and isinstance(error, Transient):
            raise
    return await waiter.patience().insist(partial(waiter.draw, count))


def _still_here(group: list[_Arrival]) -> list[_Arrival]:
    return [arrival for arrival in group if not arrival.seated.done()]


@asynccontextmanager
async def arrivals_at(kv: KV, key: str) -> AsyncIterator[Arrivals]:
    """Yield the arrivals at the queue of a lock."""
    known = _ARRIVALS.setdefault(kv.store, {})
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


class SharedWatch:
    """A watch of the keys that begin with a prefix, shared by any number of listeners.

    A waiter registers the key it waits for before it reads whether the key exists. So no change is missed:
    the watch may wake it too often, but never too late. Each waiter has a timer for its deadlines, and one
    shared task checks the clock for all of them.
    """

    def __init__(self, kv: KV, prefix: str, *, since: int) -> None:
        self.listeners = 0
        self._error: Exception | None = None
        self._bell: Bell | None = None
        self._awaited: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._task = asyncio.create_task(
            self._follow(kv, prefix, since), name=f"holdfast listens below {prefix}"
        )
        self._glancing = asyncio.create_task(
            self._glance(kv.store), name=f"holdfast looks at the clock for {prefix}"
        )

    @property
    def ended(self) -> bool:
        """True if no more changes will be reported."""
        return self._error is not None

    def leaving(self, key: str) -> asyncio.Future[None]:
        """Return a future that is done when the key may have been removed. It fails if the watch has ended.

        Cancel it when it is no longer needed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._error is not None:
            future.set_exception(self._error)
        else:
            self._awaited[key].add(future)
            future.add_done_callback(lambda _: self._forget(key, future))
            if self._bell is not None:
                self._bell.hurry()
        return future

    async def end(self) -> None:
        """Stop the watch."""
        self._task.cancel()
        self._glancing.cancel()
        await asyncio.gather(self._task, self._glancing, return_exceptions=True)

    async def _follow(self, kv: KV, prefix: str, since: int) -> None:
        error: Exception = Unavailable("the store was closed")
        try:
            self._bell = bell = kv.store.bell(kv.namespace)
            bell.hurry()
            below = kv.verbs.prefix(prefix)
            async with aclosing(watch(kv.store, kv.namespace, below, since, bell=bell)) as changes:
                async for change in changes:
                    if change.op == "gap":
                        self._tell(*self._awaited)
                    elif change.op in ("deleted", "expired"):
                        self._tell(change.key)
        except Exception as failure:
            error = failure
            _log.warning("following changes of %s has stopped: %s", kv.namespace, error)
        self._error = error
        for future in [future for waiting in self._awaited.values() for future in waiting]:
            if not future.done():
                future.set_exception(error)
                future.exception()  # a waiter that no longer reads it must not cause a warning

    async def _glance(self, store: Caller) -> None:
        """Wake all waiters when the store's clock has advanced further than their timers could know."""
        loop = asyncio.get_running_loop()
        least = store.now() / 1000 - loop.time()
        while True:
            await asyncio.sleep(GLANCE)
            ahead = store.now() / 1000 - loop.time()
            least = min(least, ahead)
            if ahead > least + JUMP:
                least = ahead
                self._tell(*self._awaited)

    def _tell(self, *keys: str) -> None:
        for key in keys:
            for future in self._awaited.get(key, ()):
                if not future.done():
                    future.set_result(None)

    def _forget(self, key: str, future: asyncio.Future[None]) -> None:
        self._awaited[key].discard(future)
        if not self._awaited[key]:
            del self._awaited[key]


def is_heard(kv: KV, prefix: str) -> bool:
    """Return True if a waiter in this process follows the news of a prefix."""
    return (kv.namespace, prefix) in _NEWS.get(kv.store, {})


@asynccontextmanager
async def news_of(kv: KV, prefix: str, *, since: int) -> AsyncIterator[SharedWatch]:
    """Yield the news of a prefix, from version `since` at the latest."""
    known = _NEWS.setdefault(kv.store, {})
    name = (kv.namespace, prefix)
    news = known.get(name)
    if news is None or news.ended:
        news = known[name] = SharedWatch(kv, prefix, since=since)
    news.listeners += 1
    try:
        yield news
    finally:
        news.listeners -= 1
        if not news.listeners:
            if known.get(name) is news:
                del known[name]
            await news.end()
