"""Copies of a store that somebody beyond a bus asks for, who can't wait for an answer as long as they take.

Law: a copy goes on whether or not anybody waits for it, and ends with the store. What it came to is kept
until the next one begins, for whoever asks late.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import Busy, HoldfastError, ValidationError
from holdfast.model import Rescued

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WAIT: Final = 0.4
"""For how many seconds a caller waits for the end before it is told to ask again."""

_log = logging.getLogger("holdfast")


class RescuePart(msgspec.Struct, frozen=True, kw_only=True):
    """How far a copy is: its number, to ask again with, and what it came to once it is complete."""

    number: int
    complete: bool
    rescued: Rescued | None = None


class Rescues:
    """Makes copies, one at a time.

    Args:
        rescue: Makes one.
        own: Is given every task that makes one, to end it with the store.
    """

    def __init__(
        self, rescue: Callable[[str], Awaitable[Rescued]], own: Callable[[asyncio.Task[None]], None]
    ) -> None:
        self._rescue = rescue
        self._own = own
        self._number = secrets.randbits(
            32
        )  # that of an earlier life of the service must not be taken for ours
        self._task: asyncio.Task[None] | None = None
        self._end: Rescued | HoldfastError | None = None

    async def begin(self, path: str) -> RescuePart:
        """Begin a copy, and wait a moment for its end.

        Raises:
            Busy: One is under way.
            HoldfastError: It could not be made.
        """
        if self._task is not None and not self._task.done():
            raise Busy("another copy of the store is under way: wait for its end")
        self._number += 1
        self._end = None
        self._task = asyncio.create_task(self._make(path), name="holdfast rescue")
        self._own(self._task)
        return await self.part(self._number)

    async def part(self, number: int) -> RescuePart:
        """Wait a moment for the end of a copy.

        Raises:
            ValidationError: There is none with this number, or not any more.
            HoldfastError: It could not be made.
        """
        if self._task is None or number != self._number:
            raise ValidationError("no copy has this number: begin one with a path", field="number")
        await asyncio.wait([self._task], timeout=WAIT)
        if isinstance(self._end, HoldfastError):
            raise self._end
        return RescuePart(number=number, complete=self._end is not None, rescued=self._end)

    async def _make(self, path: str) -> None:
        _log.info("copying the store to %s", path)
        try:
            self._end = await self._rescue(path)
        except HoldfastError as error:
            self._end = error
            _log.error("copying the store to %s failed: %s", path, error.message)
        else:
            _log.info("copied the store to %s: %d bytes", self._end.path, self._end.bytes)
