"""Something that was granted for a while: how long it still holds, and how to insist on having more of it.

Law: a lease is over at the latest when the storage says so. It counts from before the request that was
granted, by the store's clock or the machine's, whichever has gone further: the one may be set, and goes
slowly when it was ahead; the other stands still in a test.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from holdfast.errors import Defect, OutcomeUnknown, Transient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.pipeline.pipeline import Pipeline

GLANCE: Final = 0.25
"""Every how many seconds a wait looks at the store's clock, which may jump: no timer would tell."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
RENEW_AT: Final = 1 / 3
"""At which part of its time a lease is renewed: two more attempts fit before it is over."""
NOT_ANSWERED: Final = (Transient, OutcomeUnknown, Defect)
"""Errors after which the same call may yet succeed, or turn out to have succeeded."""

T = TypeVar("T")


class Mark(NamedTuple):
    """An instant by both clocks: milliseconds of the store's, seconds of the machine's."""

    store: int
    machine: float


class Lease:
    """A number of seconds that begins when this is made.

    Args:
        store: Whose clock counts.
        seconds: For how long it was asked.
    """

    def __init__(self, store: Pipeline, seconds: int) -> None:
        self._store = store
        self.seconds = seconds
        self._since = self.mark()

    def mark(self) -> Mark:
        """This instant."""
        return Mark(self._store.now(), asyncio.get_running_loop().time())

    def renewed(self, since: Mark) -> None:
        """Count anew, from before the request that was granted."""
        self._since = since

    @property
    def left(self) -> float:
        """How many seconds it still holds; nothing or less when it is over."""
        now = self.mark()
        elapsed = max((now.store - self._since.store) / 1000, now.machine - self._since.machine)
        return self.seconds - elapsed

    @property
    def due(self) -> float:
        """In how many seconds it should be renewed."""
        return self.left - self.seconds * (1 - RENEW_AT)

    async def until_due(self) -> None:
        """Wait until it should be renewed."""
        while (rest := self.due) > 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(min(rest, GLANCE))

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of a call that is repeated while nobody answers it, until the lease is over.

        Raises:
            HoldfastError: The call was refused, or nobody has answered it in time.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._within(call())
            except NOT_ANSWERED as error:
                await asyncio.sleep(min(pause, max(self.left, 0)))
                if self.left <= 0:
                    raise error
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _within(self, call: Awaitable[T]) -> T:
        """The result of a call, which is given up when the lease is over."""
        task = asyncio.ensure_future(call)
        try:
            while not task.done() and (left := self.left) > 0:
                await asyncio.wait({task}, timeout=min(left, GLANCE))
            if task.done():
                return task.result()
            raise OutcomeUnknown("no answer came before the lease was over")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            elif not task.cancelled():
                task.exception()  # a caller that is cancelled in this instant does not ask for it
