"""The clock: never back, never standing still, forward at once.

Law: wall and ticks are moved by hand; nothing here waits.
"""

from __future__ import annotations

import time

import pytest

from holdfast.clock import ManualClock, SystemClock


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


def test_it_follows_a_wall_that_is_right() -> None:
    """While wall and ticks agree, the time is the wall's, in milliseconds."""
    machine = Machine()
    assert machine.passes(0) == 1_700_000_000_000
    assert machine.passes(1.5) == 1_700_000_001_500
    assert machine.passes(0.25) == 1_700_000_001_750


def test_it_adopts_forward_jumps() -> None:
    """A wall that jumped ahead is believed at once."""
    machine = Machine()
    assert machine.passes(1, wall=3600) == 1_700_003_600_000
    assert machine.passes(1) == 1_700_003_601_000


def test_it_never_goes_back() -> None:
    """A wall that was set back does not take time with it."""
    machine = Machine()
    before = machine.passes(10)
    assert machine.passes(0, wall=-3600) == before
    shown = [machine.passes(1) for _ in range(100)]
    assert shown == sorted(shown)
    assert shown[0] > before


def test_it_waits_at_half_speed() -> None:
    """Behind the wall's back it goes on at half speed, until the wall has caught up."""
    machine = Machine()
    start = machine.passes(0)
    assert machine.passes(0, wall=-10) == start
    assert machine.passes(4) == start + 2_000
    assert machine.passes(8) == start + 6_000
    assert machine.passes(8) == start + 10_000
    assert machine.passes(1) == start + 11_000


def test_it_never_stands_still() -> None:
    """With a wall that has stopped for good, time passes all the same."""
    machine = Machine()
    shown = [machine.passes(0.5, wall=0) for _ in range(10)]
    assert len(set(shown)) == 10
    assert shown[-1] == 1_700_000_000_000 + 2_500


def test_small_steps_are_not_lost() -> None:
    """Asking often does not make it slow: fractions of a millisecond add up."""
    machine = Machine()
    for _ in range(10_000):
        machine.passes(0.0001, wall=0)
    assert machine.passes(0, wall=0) == pytest.approx(1_700_000_000_500, abs=2)


def test_steering_forward() -> None:
    """A storage whose clock is ahead is followed at once."""
    machine = Machine()
    machine.clock.steer(5_000)
    assert machine.passes(1) == 1_700_000_006_000


def test_steering_back() -> None:
    """A storage whose clock is behind is approached without going back."""
    machine = Machine()
    before = machine.passes(1)
    machine.clock.steer(-2_000)
    assert machine.passes(0) == before
    assert machine.passes(2) == before + 1_000
    assert machine.passes(2) == before + 2_000
    assert machine.passes(2) == before + 4_000


def test_the_machine_that_it_runs_on() -> None:
    """Without further word it goes by this machine's clocks."""
    clock = SystemClock()
    began = time.time() * 1000
    assert began - 1_000 <= clock.now() <= time.time() * 1000 + 1_000
    shown = [clock.now() for _ in range(1000)]
    assert shown == sorted(shown)


def test_the_manual_clock() -> None:
    """It moves when it is told to, and not back."""
    clock = ManualClock(1000)
    assert clock.now() == clock.now() == 1000
    clock.advance(1.5)
    clock.advance(0.001)
    clock.advance(0)
    assert clock.now() == 2501
    clock.steer(99_999)
    assert clock.now() == 2501
    with pytest.raises(ValueError, match="back"):
        clock.advance(-0.001)
    assert ManualClock().now() == 1_700_000_000_000
