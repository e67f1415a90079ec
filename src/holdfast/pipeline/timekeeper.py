"""Keeping a store's clock right: setting it at opening, comparing it, and storing it.

Deadlines are judged by the store's time. On PostgreSQL that is the database's clock, which is measured
regularly. Elsewhere it is the wall clock as it was at opening. The store's time never goes back, even across
a restart: the storage remembers the latest time used in a reply, and a process that opens the store starts no
earlier. Where the store's time is that of one machine, the storage also keeps the line of its clock against
the machine's ticks, which is exact even if the process before was killed.

A clock's time is accepted at once only if it is close to the expected time. Until a larger difference has
persisted, the store is unsure of its time: it removes nothing and answers nothing that depends on time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.clock import NEVER, UNREMEMBERED, Clock, Reading, SystemClock
from holdfast.engine import DurableStorage, Engine, LineKeeper, SharedStorage
from holdfast.errors import HoldfastError, Unsupported

BEAT: Final = 1.0
"""Interval in seconds at which the clocks are checked and, at most, the time is stored."""
INTERVAL: Final = 30.0
"""Interval in seconds at which the storage's clock is measured in normal operation."""
LASTS: Final = 5.0
"""Seconds for which the storage's clock has to be consistent before it is accepted."""
TOLERANCE: Final = 2_000.0
"""Largest difference of the storage's clock from the expected time, in milliseconds, to accept at once."""
JUMP: Final = 3_000.0
"""Smallest step of the wall clock, in milliseconds, that counts as a jump."""
STALE: Final = 300.0
"""Seconds for which a measurement is valid."""

UNSURE: Final = (
    "this instance is not sure of the time and is measuring the database's clock again: "
    "try again in a few seconds"
)

_log = logging.getLogger("holdfast.clock")


class Doubt(NamedTuple):
    """A clock that is not where it was expected: its offset from our ticks, and since when."""

    line: float
    since: float


class Timekeeper:
    """Keeps the clock of one store. A clock that is moved by hand is right by definition and is left alone.

    Args:
        clock: The clock to keep right.
        engine: The storage whose clock is followed and that remembers the time.
        refuse: Called with the reason why the store may not answer, or with None once it may.
    """

    def __init__(self, clock: Clock, engine: Engine, refuse: Callable[[str | None], None]) -> None:
        self._clock = clock if isinstance(clock, SystemClock) else None
        self._durable = engine if isinstance(engine, DurableStorage) else None
        self._lines = engine if isinstance(engine, LineKeeper) else None
        self._shared = engine if isinstance(engine, SharedStorage) else None
        self._refuse = refuse
        self._drift = 0.0
        self._begun = self._line_kept = False
        self._measured: float | None = None
        self._settled_at = NEVER
        self._doubt: Doubt | None = None
        self._failed: set[str] = set()
        self.sure: bool = True
        """True if the time is known. While it is not, the store answers nothing."""
        self.answered: bool = False
        """True if a request has been answered since the time was last stored."""
        self.ahead: float = 0.0
        """Milliseconds by which the store's time is ahead of the clock that it follows."""
        self.jumps: dict[str, int] = {"wall": 0, "database": 0}
        """Number of jumps seen, by clock."""

    @property
    def steady(self) -> bool:
        """True if overdue entries may be removed in the background."""
        return self.sure and (self._clock is None or self._clock.ticks() >= self._settled_at)

    async def open(self) -> None:
        """Set the clock from the storage or the wall, but no earlier than the remembered time."""
        clock = self._clock
        if clock is None:
            return
        self._drift = _drift(clock)
        await self._begin(clock, opening=True)

    async def run(self) -> None:
        """Check the clocks every second, until cancelled."""
        while True:
            await asyncio.sleep(BEAT)
            try:
                await self.beat()
            except Exception as defect:  # otherwise an unchecked clock would be trusted forever
                _log.error("reading the clocks failed", exc_info=defect)

    async def beat(self) -> None:
        """Check the clocks, and store the time if a request was answered since it last was."""
        clock = self._clock
        if clock is None:
            return
        jumped = self._look_for_jump(clock)
        if not self._begun:
            await self._begin(clock)
        elif self._measured is not None:
            await self._measure(clock, self._measured, at_once=jumped)
        if self._begun and not self._line_kept:
            try:
                await self._agree(clock)
            except HoldfastError as error:
                self._complain("the store's time could not be remembered", error)
        if self.sure and (self.answered or self.ahead):  # other processes learn from this that it is ahead
            await self._remember(clock)

    async def close(self) -> None:
        """Store the time if a request was answered since it last was, and that there will be no more."""
        if self._clock is None:
            return
        if self.answered:
            await self._remember(self._clock)
        if self._lines is not None and self._begun and not self.answered:
            try:
                await self._lines.close_line(self._clock)
            except HoldfastError as error:
                self._complain("the store's time could not be remembered", error)
        self._begun = self._line_kept = False

    async def _read_clock(self, clock: SystemClock) -> Reading | None:
        """Read the storage's own clock, if it has one."""
        return None if self._shared is None else await self._shared.clock(clock.ticks)

    async def _begin(self, clock: SystemClock, *, opening: bool = False) -> None:
        try:
            await self._start(clock)
        except HoldfastError as error:
            if opening and isinstance(error, Unsupported):
                raise
            self._complain("the store's time is not known", error)
            self._doubt_time(f"the store's time is not known: {error.message}")
        else:
            self._failed.discard("the store's time is not known")
            self._begun = True
            self._trust_time()

    async def _start(self, clock: SystemClock) -> None:
        """Start the clock, and agree on its line with the other processes before anything is answered."""
        remembered = 0 if self._durable is None else await self._durable.remembered()
        kept = None if self._lines is None else await self._lines.kept_line()
        measured = await self._read_clock(clock)
        reading = clock.look_at_wall() if measured is None else measured
        earliest: float = remembered
        if kept is not None:
            earliest = kept.earliest(remembered, clock, reading.ticks)
        elif self._lines is not None and remembered:  # it was last open with a version that kept no line
            earliest = remembered + UNREMEMBERED
        clock.start(Reading(max(reading.time, earliest), reading.ticks))
        await self._agree(clock)
        if measured is not None:
            self._measured, self._settled_at = measured.ticks, measured.ticks + LASTS
        if earliest - reading.time > TOLERANCE:
            self.ahead = earliest - reading.time
            _log.warning(
                "the store's time is %.1f s ahead of %s and stays ahead: an earlier process answered with "
                "that time, and time does not go back. A ttl lasts as long as it says; times that are shown "
                "are ahead. If that is too much, stop every process and run holdfast migrate --reset-clock",
                self.ahead / 1000,
                self._reference,
            )

    async def _agree(self, clock: SystemClock) -> None:
        """Go by the line of those who have the store open, or let them go by the one of this clock."""
        if self._lines is None:
            self._line_kept = True
            return
        line = await self._lines.agree_on_line(clock)
        if line is None:
            return
        tick = clock.ticks()
        agreed = Reading(tick * 1000 + line.line, tick)
        if not self._begun:
            clock.start(agreed)
        else:  # it could not be read or kept earlier, and other processes go by it
            clock.follow(agreed)
        self._line_kept = line.opened is not None

    def _look_for_jump(self, clock: SystemClock) -> bool:
        """Return True if the wall clock has jumped against the ticks since the last check."""
        before, self._drift = self._drift, _drift(clock)
        jump = self._drift - before
        if abs(jump) < JUMP:
            return False
        self.jumps["wall"] += 1
        until = "" if self._measured is not None else " until it is opened again"
        _log.warning(
            "the wall clock of this machine jumped by %+.1f s: the store's time goes on evenly%s, so that no "
            "deadline moves; look after the machine's time service",
            jump / 1000,
            until,
        )
        return True

    async def _measure(self, clock: SystemClock, before: float, *, at_once: bool) -> None:
        """Measure the database's clock if it is due, or if the time is in doubt."""
        age = clock.ticks() - before
        if self.steady and not at_once and age < INTERVAL:
            return
        try:
            reading = await self._read_clock(clock)
        except HoldfastError as error:
            self._complain("the database's clock could not be measured", error)
            if age > STALE:
                self._doubt_time(UNSURE)
            return
        self._failed.discard("the database's clock could not be measured")
        if reading is not None:
            self._measured = reading.ticks
            self._weigh(clock, reading)

    def _weigh(self, clock: SystemClock, reading: Reading) -> None:
        """Follow the database's clock if it is close to the expected time, else once it has stayed."""
        expected = clock.at(reading.ticks)
        off = reading.time + self.ahead - expected
        line = reading.time - reading.ticks * 1000
        if abs(off) <= TOLERANCE:
            clock.follow(Reading(reading.time + self.ahead, reading.ticks))
            self._trust_time()
        elif self._doubt is None or abs(line - self._doubt.line) > TOLERANCE:
            self._doubt = Doubt(line, reading.ticks)
            self.jumps["database"] += 1
            _log.warning(
                "the database's clock is %+.1f s from where it was expected: nothing is answered or removed "
                "until it is back or has stayed there for %g s",
                off / 1000,
                LASTS,
            )
            self._doubt_time(UNSURE)
        elif reading.ticks - self._doubt.since >= LASTS:
            self._adopt(clock, reading, expected)

    def _adopt(self, clock: SystemClock, reading: Reading, expected: float) -> None:
        """Accept a database's clock that has jumped and stays there. The store's time does not go back."""
        self.ahead = max(0.0, expected - reading.time)
        if reading.time > expected:
            clock.follow(reading)
            change = f"the store's time follows it, {(reading.time - expected) / 1000:.1f} s ahead"
        else:
            change = f"the store's time goes on {self.ahead / 1000:.1f} s ahead of it"
        _log.warning("the database's clock stays where it is: %s", change)
        self._trust_time()

    async def _remember(self, clock: SystemClock) -> None:
        self.answered = False
        if self._durable is None:
            return
        try:
            latest = await self._durable.remember(clock.now())
        except HoldfastError as error:
            self.answered = True
            self._complain("the store's time could not be remembered", error)
            return
        self._failed.discard("the store's time could not be remembered")
        tick = clock.ticks()
        behind = latest - clock.at(tick)
        if behind > TOLERANCE:
            self.ahead += behind
            clock.follow(Reading(latest, tick))
            _log.warning(
                "another process answered with a time %.1f s later; continuing from that time", behind / 1000
            )

    def _trust_time(self) -> None:
        self._doubt = None
        if not self.sure:
            self.sure = True
            self._refuse(None)
            _log.warning("this instance is sure again of the time")

    def _doubt_time(self, refusal: str) -> None:
        self._refuse(refusal)
        if self.sure:
            self.sure = False
            _log.warning("this instance is not sure of the time")

    def _complain(self, what: str, error: HoldfastError) -> None:
        """Log a failure once, until the same step has succeeded again."""
        if what not in self._failed:
            self._failed.add(what)
            _log.warning("%s: %s", what, error.message)

    @property
    def _reference(self) -> str:
        return "the wall clock" if self._measured is None else "the database's clock"


def _drift(clock: SystemClock) -> float:
    """Return how far the wall clock is from the ticks, in milliseconds."""
    time, ticks = clock.look_at_wall()
    return time - ticks * 1000
