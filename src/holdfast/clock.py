"""The time that Holdfast goes by: it never stops and never goes back.

Law: every storage operation takes `now` as a parameter, in milliseconds since 1970, and it comes from a clock
of this module. Nothing else in the library asks the machine what time it is.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

TICKS: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Seconds of a clock that nobody sets. Where it can, it also counts while the machine sleeps."""

NEVER: Final = float("-inf")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = 1000 * 2**32
"""Up to how many milliseconds a float tells seconds to the microsecond, and makes a datetime sooner."""


class Clock(Protocol):
    """A source of time, as a store needs one."""

    def now(self) -> int:
        """Get the time in milliseconds since 1970, which is never less than the answer before."""
        ...


class Reading(NamedTuple):
    """What another clock showed, in milliseconds since 1970, and where our ticks stood at that instant."""

    time: float
    ticks: float


class SystemClock:
    """Ticks with the machine's steady clock, from an instant that it was told.

    The wall clock is looked at once, when this is made. What happens to it later moves nothing. Any thread
    may ask for the time; one store sets it (`holdfast.pipeline.timekeeper`).

    Args:
        wall: Tells the wall clock's time, in seconds since 1970.
        ticks: Tells the steady clock's time, in seconds since any instant.
    """

    def __init__(self, *, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = TICKS) -> None:
        self.wall = wall
        self.ticks = ticks
        self._lines = (0.0, NEVER)
        self.start(self.look_at_wall())

    def now(self) -> int:
        """Get the time in milliseconds since 1970; see `Clock.now`."""
        tick = self.ticks()
        # Time is the higher of two lines. One goes with the ticks. The other rises half as fast: on it the
        # time waits for a clock that turned out to be behind. They are replaced together, by lines that are
        # no lower at that instant; so ask for the tick first, and no thread sees time go back.
        line, waiting = self._lines
        time = tick * 1000.0 + line
        slow = tick * 500.0 + waiting
        return int(time if time > slow else slow)

    def look_at_wall(self) -> Reading:
        """Read the wall clock."""
        return Reading(self.wall() * 1000, self.ticks())

    def at(self, ticks: float) -> float:
        """Get the time at a tick, to a fraction of a millisecond.

        Args:
            ticks: Seconds of the steady clock.

        Returns:
            Milliseconds since 1970.
        """
        line, waiting = self._lines
        return max(ticks * 1000 + line, ticks * 500 + waiting)

    def start(self, reading: Reading) -> None:
        """Start from a reading, before any time was given out.

        Args:
            reading: What another clock shows.
        """
        self._lines = (reading.time - reading.ticks * 1000, NEVER)

    def follow(self, reading: Reading) -> None:
        """Follow a reading: at once if it is ahead, and by running at half speed while it is behind.

        Args:
            reading: What another clock shows.
        """
        tick = self.ticks()
        self._lines = (reading.time - reading.ticks * 1000, self.at(tick) - tick * 500)


class ManualClock:
    """A clock that moves only when it is told to, for tests of what depends on time.

    Args:
        start: The time at which it stands, in milliseconds since 1970.
    """

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        """Get the time in milliseconds since 1970; see `Clock.now`."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Args:
            seconds: How much, which may be a fraction.

        Raises:
            ValueError: The number is negative.

        Example:
            `holdfast.clock.ManualClock().advance(60)`
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += round(seconds * 1000)


def moment(ms: int) -> datetime:
    """The instant of a stored time, which is milliseconds since 1970."""
    if -_EXACT < ms < _EXACT:
        return datetime.fromtimestamp(ms / 1000, UTC)
    return EPOCH + timedelta(milliseconds=ms)


def instant(at: datetime | str) -> datetime:
    """A time of an answer, which a service spells as ISO 8601."""
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def milliseconds(at: datetime) -> int:
    """A time as it is stored; a naive one is taken as UTC."""
    since = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - EPOCH
    return since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
