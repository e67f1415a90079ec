"""The time that Holdfast goes by: it never stops and never goes back.

Law: every storage operation takes `now` as a parameter, in milliseconds since 1970, and it comes from a clock
of this module. Nothing else in the library asks the machine what time it is.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """What a store needs of a clock."""

    def now(self) -> int:
        """Milliseconds since 1970; never less than the answer before."""
        ...

    def steer(self, offset: float) -> None:
        """Take the wall clock to be wrong by `offset` milliseconds: the storage's clock is ahead by that."""
        ...


class SystemClock:
    """Ticks with the monotonic clock and follows the wall clock.

    A wall clock that jumped forward is adopted at once. One that fell behind is waited for at half speed, so
    that deadlines come later than they would but time goes on.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._ticks = ticks
        self._offset = 0.0
        self._last_tick = ticks()
        self._last = wall() * 1000

    def now(self) -> int:
        """See `Clock.now`."""
        tick = self._ticks()
        slow = self._last + (tick - self._last_tick) * 500
        wall = self._wall() * 1000 + self._offset
        self._last_tick = tick
        self._last = now = wall if wall > slow else slow
        return int(now)

    def steer(self, offset: float) -> None:
        """See `Clock.steer`."""
        self._offset = offset


class ManualClock:
    """A clock that moves when it is told to: for tests of whatever depends on time."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        """See `Clock.now`."""
        return self._now

    def steer(self, offset: float) -> None:
        """A manual clock is right by definition: the offset is of no interest."""

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += round(seconds * 1000)
