"""The time of a turn of the loop."""

from __future__ import annotations

import asyncio

from holdfast.clock import ManualClock
from holdfast.pace import Turn


async def test_a_turn_has_one_time_and_the_next_one_another() -> None:
    """Whoever asks in the same turn is told the same; a turn later the store is asked again."""
    clock = ManualClock()
    turn = Turn(clock.now)
    began = turn.now()
    clock.advance(5)
    assert turn.now() == began
    await asyncio.sleep(0)
    assert turn.now() == began + 5_000
    clock.advance(5)
    await asyncio.sleep(0)
    assert turn.now() == began + 10_000
