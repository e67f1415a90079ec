"""A lock shared by tasks, processes and machines, with a token that fences off a holder that lost it.

Law: only the batch that takes the lock, and the versions of its entry, decide who holds it. Clocks and queues
only make it prompt and fair. An interrupted caller leaves at most an entry that expires.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from holdfast import rules
from holdfast.errors import Busy, HoldfastError, LockLost, OutcomeUnknown, ValidationError, VersionConflict
from holdfast.handles.recipes.lease import NOT_ANSWERED, Lease
from holdfast.handles.recipes.lock_queue import QueuePlace
from holdfast.handles.recipes.names import lock_key

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from holdfast.handles.keys import Keys
    from holdfast.model import BatchResult, Entry

RELEASE_PAUSES: Final = (0.05, 0.2, 0.5, 1.0)
"""Seconds that a release waits before each further attempt."""

_log = logging.getLogger("holdfast.lock")


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
        self, kv: Keys, name: str, *, ttl: int = 30, timeout: float | None = None, owner: str | None = None
    ) -> None:
        self.name = name
        self._key = lock_key(kv, name)
        self._kv = kv
        self._ttl = rules.required_ttl(ttl)
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
        line = QueuePlace(self._kv, self.name, key=self._key, ttl=self._ttl, provenance=self._provenance)
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
        self._holder = secrets.token_hex(8)
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
        lock = {
            "key": self._key,
            "value": {"holder": self._holder},
            "ttl": self._ttl,
            "semantics": self._semantics,
        }
        leave = [] if place is None else [{"key": place, "delete": True}]
        return await self._kv.batch(
            checks=[{"key": self._key, "version": 0}],
            writes=[lock, {"guard": self.name}, *leave],
            request_id=f"lock-{self._holder}",
            **self._provenance,
        )

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
                entry = await self._kv.set_ttl(
                    self._key, self._ttl, expected_version=self._version, **self._provenance
                )
            except VersionConflict as conflict:
                if not self._mine(conflict.current):
                    raise
                # One of our own calls made this version, but its answer did not reach us.
                self._version = conflict.current.version
            else:
                self._version = entry.version
                lease.renewed(since)
                return

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
