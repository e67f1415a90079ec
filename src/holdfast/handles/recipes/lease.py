"""A lease: the time for which something was granted, and the retries that extend it.

A lease ends no later than the storage says. It counts from before the request that was granted, by the
store's clock or the machine's, whichever has advanced further. The store's clock may be set, and runs slowly
after it was ahead. The machine's clock does not move in a test that uses a fake clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from holdfast.errors import Defect, OutcomeUnknown, Transient
from holdfast.pipeline.caller import Caller

GLANCE: Final = 0.25
"""Interval in seconds at which a wait reads the store's clock. The clock may jump, which a timer misses."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
RENEW_AT: Final = 1 / 3
"""Fraction of its time at which a lease is renewed. Two more attempts fit before it ends."""
NOT_ANSWERED: Final = (Transient, OutcomeUnknown, Defect)
"""Errors after which the same call may still succeed, or may turn out to have succeeded."""

T = TypeVar("T")


class Instant(NamedTuple):
    """An instant by both clocks: milliseconds of the store's, seconds of the machine's."""

    store: int
    machine: float


class Lease:
    """A lease that begins when it is created.

    Args:
        store: The store whose clock is used.
        seconds: The length of the lease.
    """

    def __init__(self, store: Caller, seconds: float) -> None:
        self._store = store
        self.seconds = seconds
        self._since = self.mark()

    def mark(self) -> Instant:
        """Return the current instant."""
        return Instant(self._store.now(), asyncio.get_running_loop().time())

    def renewed(self, since: Instant) -> None:
        """Restart the lease, counting from before the request that was granted."""
        self._since = since

    @property
    def left(self) -> float:
        """Seconds until the lease ends; 0 or negative once it is over."""
        now = self.mark()
        elapsed = max((now.store - self._since.store) / 1000, now.machine - self._since.machine)
        return self.seconds - elapsed

    @property
    def due(self) -> float:
        """Seconds until the lease should be renewed."""
        return self.left - self.seconds * (1 - RENEW_AT)

    async def until_due(self) -> None:
        """Wait until the lease should be renewed."""
        while (rest := self.due) > 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(min(rest, GLANCE))

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while it gets no answer, until the lease is over. Returns its result.

        Raises:
            HoldfastError: The call was refused, or got no answer in time.
            OutcomeUnknown: The lease was over before the first attempt, which was not made.
        """
        if self.left <= 0:
            raise OutcomeUnknown(
                f"the lease of {self.seconds:g} s was over before the attempt: this process was stopped, its "
                "event loop was blocked, or the store's clock was set forward"
            )
        pause, before = FIRST_PAUSE, ""
        while True:
            try:
                return await self._within(call(), before)
            except NOT_ANSWERED as error:
                await asyncio.sleep(min(pause, max(self.left, 0)))
                if self.left <= 0:
                    raise error
                before = f"; the attempt before failed: {error}"
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _within(self, call: Awaitable[T], before: str) -> T:
        """Return the result of a call, which is cancelled when the lease is over.

        Args:
            call: What is awaited.
            before: How the attempt before it ended, for the error of a call that gets no reply.
        """
        task = asyncio.ensure_future(call)
        try:
            while not task.done() and (left := self.left) > 0:
                await asyncio.wait({task}, timeout=min(left, GLANCE))
            if task.done():
                return task.result()
            raise OutcomeUnknown(f"no reply came before the lease ended{before}")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            elif not task.cancelled():
                task.exception()  # a caller that is cancelled at this moment does not retrieve it
