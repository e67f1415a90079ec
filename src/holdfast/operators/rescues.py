"""Copies of a store for remote callers, which cannot wait for a reply as long as a copy takes.

A copy continues whether or not a caller waits for it, and ends with the store. Its result is kept until the
next copy begins, so that a caller can ask late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from holdfast import seams
from holdfast.errors import Busy, HoldfastError, ValidationError
from holdfast.model import Rescued
from holdfast.pipeline.caller import Service

WAIT: Final = 0.4
"""Seconds that a call waits for the result before it returns and the caller has to ask again."""

_log = logging.getLogger("holdfast")


class RescuePart(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a copy: its number, for asking again, and its result once it is complete."""

    number: int
    complete: bool
    rescued: Rescued | None = None


async def rescue_at(service: Service, path: str) -> Rescued:
    """Have a service copy its store into a new file of its own machine, and wait until that has ended."""
    part = await service.operator("rescue", {"path": path}, writes=True)
    while not part["complete"]:
        part = await service.operator("rescue", {"number": part["number"]}, writes=True)
    return msgspec.convert(part["rescued"], Rescued)


class Rescues:
    """Makes copies, one at a time.

    Args:
        rescue: Makes a copy.
        own: Takes charge of each copying task, to end it with the store.
    """

    def __init__(
        self, rescue: Callable[[str], Awaitable[Rescued]], own: Callable[[asyncio.Task[None]], None]
    ) -> None:
        self._rescue = rescue
        self._own = own
        # A number from an earlier run of the service must not match.
        self._number = int.from_bytes(seams.entropy(4), "big")
        self._task: asyncio.Task[None] | None = None
        self._end: Rescued | HoldfastError | None = None

    async def begin(self, path: str) -> RescuePart:
        """Begin a copy, and wait a moment for its result.

        Raises:
            Busy: Another copy is running.
            HoldfastError: The copy failed.
        """
        if self._task is not None and not self._task.done():
            raise Busy("another copy of the store is under way: wait until it ends")
        self._number += 1
        self._end = None
        self._task = asyncio.create_task(self._make(path), name="holdfast rescue")
        self._own(self._task)
        return await self.part(self._number)

    async def part(self, number: int) -> RescuePart:
        """Wait a moment for the result of a copy.

        Raises:
            ValidationError: No copy has this number, or a newer one has replaced it.
            HoldfastError: The copy failed.
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
