"""The time of a turn of the loop, and long work that is done in several turns."""

from __future__ import annotations

import asyncio

from holdfast.clock import ManualClock
from holdfast.pace import MANY_BYTES, MANY_ROWS, Turn, in_turns


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


async def test_many_items_are_made_in_several_turns() -> None:
    """Other tasks get a turn after every `MANY_ROWS` items, and the items keep their order."""
    made: list[int] = []
    seen: list[int] = []

    def make(item: int) -> int:
        made.append(item)
        return -item

    async def others() -> None:
        while len(made) < 3 * MANY_ROWS:
            seen.append(len(made))
            await asyncio.sleep(0)

    watching = asyncio.create_task(others())
    found = await in_turns(make, range(3 * MANY_ROWS))
    await watching
    assert found == [-item for item in range(3 * MANY_ROWS)]
    assert {MANY_ROWS, 2 * MANY_ROWS} <= set(seen)


async def test_few_items_are_made_at_once() -> None:
    """A short page costs no turn."""
    task = asyncio.create_task(asyncio.sleep(0))
    assert await in_turns(str, range(MANY_ROWS)) == [str(item) for item in range(MANY_ROWS)]
    assert not task.done()
    await task


async def test_large_items_are_made_in_several_turns() -> None:
    """Other tasks get a turn after every `MANY_BYTES`, however few items those are."""
    items = ["x" * MANY_BYTES, "y" * MANY_BYTES, "z"]
    seen: list[int] = []
    made: list[str] = []

    def make(item: str) -> str:
        made.append(item)
        return item[0]

    async def others() -> None:
        while len(made) < len(items):
            seen.append(len(made))
            await asyncio.sleep(0)

    watching = asyncio.create_task(others())
    assert await in_turns(make, items, len) == ["x", "y", "z"]
    await watching
    assert {1, 2} <= set(seen)
