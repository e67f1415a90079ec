"""The clocks of Holdfast. They never stop and never go back.

Every storage operation takes `now` as a parameter, in milliseconds since 1970, and it comes from a clock of
this module. Nothing else in the library reads the machine's time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast import seams
from holdfast.errors import DatabaseError

NEVER: Final = float("-inf")
UNREMEMBERED: Final = 2_000
"""Milliseconds by which a time that was answered may be later than the time that was remembered, if the store
was not closed. It is remembered every second, and that may take a while."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = 1000 * 2**32
"""Limit in milliseconds below which a float holds seconds to the microsecond. Up to it, a datetime is faster.
"""


class Clock(Protocol):
    """The source of time that a store uses."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970. It is never less than the previous answer."""
        ...


class Reading(NamedTuple):
    """The time of another clock, in milliseconds since 1970, and the tick at which it was read."""

    time: float
    ticks: float


class KeptLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line of a clock, as a store keeps it while it is open.

    Attributes:
        machine: What the ticks belong to; see `SystemClock.machine`. None if that is not known.
        line: The clock's time at tick 0, in milliseconds since 1970.
        at: The clock's time when this was kept.
        open: False once the store was closed and had remembered its time.
        opened: The name of the processes that have the store open together and go by this line. None if the
            process that asked is not one of them.
    """

    machine: str | None
    line: float
    at: int
    open: bool = True
    opened: str | None = None

    def counts_for(self, clock: SystemClock) -> bool:
        """Return whether an open store has this line, by the ticks of a clock."""
        return self.open and self.machine is not None and self.machine == clock.machine

    def earliest(self, remembered: int, clock: SystemClock, ticks: float) -> float:
        """Return the earliest time that a clock may start from at a tick, in milliseconds since 1970.

        If the store was not closed, it may have answered with a later time than it remembered: with any time
        of its line up to now if the ticks are the same, otherwise with one that is a little later.
        """
        known = max(remembered, self.at)
        if self.counts_for(clock) and (now := ticks * 1000 + self.line) >= known:
            return now
        return known + UNREMEMBERED if self.open else known


class SystemClock:
    """A clock that starts from the wall clock and then follows the machine's monotonic clock.

    The wall clock is read once, at construction. Later changes to it have no effect. Any thread may read the
    time; only one store adjusts it (`holdfast.pipeline.timekeeper`).

    Args:
        wall: Returns the wall clock's time, in seconds since 1970.
        ticks: Returns the monotonic clock's time, in seconds since any instant.
        machine: What the ticks belong to, if they are not those of this machine.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] | None = None,
        ticks: Callable[[], float] | None = None,
        machine: str | None = None,
    ) -> None:
        self.wall = seams.wall if wall is None else wall
        self.ticks = seams.ticks if ticks is None else ticks
        self._machine = machine
        self._lines: tuple[float, float | None] = (0.0, None)
        self.start(self.look_at_wall())

    def now(self) -> int:
        """Return the time in milliseconds since 1970; see `Clock.now`."""
        tick = self.ticks() * 1000.0
        # The time is the higher of two lines. One rises with the ticks. The other rises half as fast: it
        # holds the time back for a clock that turned out to be behind. Both are replaced together, by lines
        # that are no lower at that instant. Reading the tick first therefore ensures that no thread sees time
        # go back.
        line, waiting = self._lines
        if waiting is None:
            return int(tick + line)
        return int(max(tick + line, tick * 0.5 + waiting))

    @property
    def machine(self) -> str | None:
        """Name of what the ticks belong to: equal if those of two clocks can be compared, None if unknown."""
        if self._machine is None and self.ticks is seams.ticks:
            return seams.this_machine()
        return self._machine

    def kept(self) -> KeptLine:
        """Return the line of this clock, for a store to keep."""
        tick = self.ticks()
        time = self.at(tick)
        return KeptLine(machine=self.machine, line=time - tick * 1000.0, at=int(time))

    def look_at_wall(self) -> Reading:
        """Read the wall clock."""
        return Reading(self.wall() * 1000, self.ticks())

    def at(self, ticks: float) -> float:
        """Return the time at a tick, to a fraction of a millisecond.

        Args:
            ticks: Seconds of the monotonic clock.

        Returns:
            Milliseconds since 1970.
        """
        line, waiting = self._lines
        tick = ticks * 1000.0
        return tick + line if waiting is None else max(tick + line, tick * 0.5 + waiting)

    def start(self, reading: Reading) -> None:
        """Start from a reading. Call this before the clock has been read.

        Args:
            reading: A reading of another clock.
        """
        self._lines = (reading.time - reading.ticks * 1000, None)

    def follow(self, reading: Reading) -> None:
        """Follow a reading: at once if it is ahead, and by running at half speed while it is behind.

        Args:
            reading: A reading of another clock.
        """
        tick = self.ticks()
        self._lines = (reading.time - reading.ticks * 1000, self.at(tick) - tick * 1000.0 * 0.5)


class ManualClock:
    """A clock that moves only when `advance` is called, for tests that depend on time.

    Args:
        start: Initial time in milliseconds since 1970.
    """

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        """Return the time in milliseconds since 1970; see `Clock.now`."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Args:
            seconds: Number of seconds, which may be a fraction.

        Raises:
            ValueError: The number is negative.

        Example:
            `holdfast.clock.ManualClock().advance(60)`
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        self._now += round(seconds * 1000)


@lru_cache(maxsize=1024)
def moment(ms: int) -> datetime:
    """Return the datetime of a stored time, given in milliseconds since 1970.

    The entries of a group have the same times, and entries that are read often are read again. Making the two
    datetimes of an entry took a fifth of the time of a get.

    Raises:
        DatabaseError: No date is so far away. Only another program can have stored that.
    """
    if -_EXACT < ms < _EXACT:
        return datetime.fromtimestamp(ms / 1000, UTC)
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise DatabaseError(f"a stored time, {ms} ms after 1970, is beyond all dates") from None


def instant(at: datetime | str) -> datetime:
    """Return a time from a reply as a datetime. A service sends it as ISO 8601 text."""
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def milliseconds(at: datetime) -> int:
    """Return a datetime as it is stored. A naive one is taken as UTC."""
    since = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - EPOCH
    return since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
