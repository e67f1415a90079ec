"""The clock: it goes with the ticks, is moved by nobody's wall clock, and never goes back.

Wall and ticks are moved by hand; nothing here waits.
"""

from __future__ import annotations

import time

import pytest

from holdfast.clock import ManualClock, Reading, SystemClock


class Machine:
    """A machine whose clocks are set by hand, in seconds."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.ticks = 50.0
        self.clock = SystemClock(wall=lambda: self.wall, ticks=lambda: self.ticks)

    def passes(self, seconds: float, *, wall: float | None = None) -> int:
        """Let time pass, and the wall clock move by as much or by something else; what the clock shows."""
        self.ticks += seconds
        self.wall += seconds if wall is None else wall
        return self.clock.now()

    def off_by(self, seconds: float) -> Reading:
        """A reading of a clock that is that far from ours."""
        return Reading(self.clock.at(self.ticks) + seconds * 1000, self.ticks)


def test_clock_begins_with_the_wall_clock() -> None:
    """While the wall clock and the ticks agree, the time is that of the wall clock, in milliseconds."""
    machine = Machine()
    assert machine.passes(0) == 1_700_000_000_000
    assert machine.passes(1.5) == 1_700_000_001_500
    assert machine.passes(0.25) == 1_700_000_001_750


@pytest.mark.parametrize("jump", [3600, -3600, 0])
def test_a_wall_that_jumps_moves_nothing(jump: float) -> None:
    """Forward, back or standing still: the time goes on evenly with the ticks."""
    machine = Machine()
    assert machine.passes(1, wall=jump) == 1_700_000_001_000
    assert machine.passes(1) == 1_700_000_002_000


def test_clock_follows_a_clock_that_is_ahead() -> None:
    """A followed clock that is ahead is taken over at once."""
    machine = Machine()
    machine.clock.follow(machine.off_by(5))
    assert machine.passes(0) == 1_700_000_005_000
    assert machine.passes(1) == 1_700_000_006_000


def test_clock_runs_at_half_speed_while_ahead() -> None:
    """While a followed clock is behind, time runs at half speed: it never goes back and never stands
    still.
    """
    machine = Machine()
    start = machine.passes(0)
    machine.clock.follow(machine.off_by(-10))
    assert machine.passes(0) == start
    assert machine.passes(4) == start + 2_000
    assert machine.passes(8) == start + 6_000
    assert machine.passes(8) == start + 10_000
    assert machine.passes(1) == start + 11_000


def test_time_never_goes_back() -> None:
    """Whatever the readings say, time never goes back."""
    machine = Machine()
    shown = [machine.passes(0)]
    for off in (-10, -3, 2, -1, -20, 0.5):
        machine.clock.follow(machine.off_by(off))
        shown += [machine.passes(0), machine.passes(0.7)]
    assert shown == sorted(shown)


def test_reading_counts_from_its_own_tick() -> None:
    """A reading counts for the tick at which it was taken."""
    machine = Machine()
    reading = machine.off_by(2)
    machine.passes(30)
    machine.clock.follow(reading)
    assert machine.passes(0) == 1_700_000_032_000


def test_clock_may_be_set_before_its_first_use() -> None:
    """Before anybody has read the time it may be set to any value, also to an earlier one."""
    machine = Machine()
    machine.clock.start(Reading(5_000.0, 49.0))
    assert machine.passes(0) == 6_000


def test_small_steps_are_not_lost() -> None:
    """Asking often does not make it slow: fractions of a millisecond add up."""
    machine = Machine()
    for _ in range(10_000):
        machine.passes(0.0001, wall=0)
    assert machine.passes(0, wall=0) == pytest.approx(1_700_000_001_000, abs=2)


def test_clock_uses_the_machine_by_default() -> None:
    """By default the clock uses this machine's clocks."""
    clock = SystemClock()
    began = time.time() * 1000
    assert began - 1_000 <= clock.now() <= time.time() * 1000 + 1_000
    shown = [clock.now() for _ in range(1000)]
    assert shown == sorted(shown)


def test_manual_clock_moves_only_forward_and_on_command() -> None:
    """It moves when it is told to, and not back."""
    clock = ManualClock(1000)
    assert clock.now() == clock.now() == 1000
    clock.advance(1.5)
    clock.advance(0.001)
    clock.advance(0)
    assert clock.now() == 2501
    with pytest.raises(ValueError, match="back"):
        clock.advance(-0.001)
    assert ManualClock().now() == 1_700_000_000_000
