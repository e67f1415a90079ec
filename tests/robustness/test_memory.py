"""A service's memory under a mixed load of bounded keys: it warms up, and then it is flat.

The service is a process of its own, as users run it, and what is measured is its resident memory. The
suite runs this for seconds and only asks for a bound; `./dev soak memory` runs it for half an hour and asks
that it is flat.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from tests.edges.running import Up, started_up
from tests.robustness.mixed_load import Load
from tests.security.test_malformed import resident

if TYPE_CHECKING:
    from pathlib import Path

MINUTES: Final = float(os.environ.get("HOLDFAST_MEMORY_MINUTES", "0"))
SECONDS: Final = MINUTES * 60 or 1.5
WARM_UP: Final = min(180.0, SECONDS / 4)
LOOK: Final = 30.0 if MINUTES else 0.25
"""Every how many seconds the memory is looked at; the last fifth of that time is spent with reads alone."""
PAUSE: Final = 0.012 if MINUTES else 0.0
FLAT: Final = 0.05
"""By which share it may grow in the second half, after the warm-up."""
SMALL_GROWTH: Final = 48 * 1024 * 1024
"""By how much it may grow in seconds: SQLite fills its caches, and Python its own."""


async def look(up: Up, load: Load, seconds: float) -> list[int]:
    """The service's memory again and again for so long. Somebody also scrapes its metrics."""
    seen: list[int] = []
    for number in range(1, max(2, round(seconds / LOOK)) + 1):
        load.reads_only = False
        await asyncio.sleep(LOOK * 0.8)
        load.reads_only = True
        await asyncio.sleep(LOOK * 0.2)
        status, _ = await up.http("/metrics")
        assert status == 200
        seen.append(resident(up.pid))
        answered = load.answers.total()
        print(f"{number * LOOK:6.0f} s  {seen[-1] / 1e6:6.1f} MB  {answered:,} requests answered", flush=True)
    return seen


async def test_memory_of_a_service_does_not_grow(tmp_path: Path) -> None:
    """After the warm-up a service does not grow, whatever mixture of requests it answers for however long."""
    async with started_up(tmp_path) as up:
        load = Load(up.url, f"http://127.0.0.1:{up.http_port}", pause=PAUSE)
        running = asyncio.create_task(load.run())
        before = resident(up.pid)
        print(f"\nbefore   {before / 1e6:6.1f} MB; the warm-up takes {WARM_UP:.0f} s", flush=True)
        await look(up, load, WARM_UP)
        print("after the warm-up", flush=True)
        seen = await look(up, load, SECONDS - WARM_UP)
        load.stop()
        await running
        log = up.log
    assert load.unexpected == []
    assert load.answers["ok"] > 100
    assert not [line for line in log if "exception" in line]
    middle, end = seen[len(seen) // 2], max(seen[len(seen) // 2 :])
    growth = end / middle - 1
    print(f"second half: {middle / 1e6:.1f} to {end / 1e6:.1f} MB, {growth:+.1%}; {dict(load.answers)}")
    assert end - before < SMALL_GROWTH or MINUTES
    assert growth <= FLAT or not MINUTES
