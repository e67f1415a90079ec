"""What is measured of a running service: `holdfast up`, its nats-server and every caller are processes.

Law: the service is as it comes, with a SQLite file on disk; nothing is set for the occasion.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.caller import Plan, calling
from bench.measure import Comparison, Figures, percentile
from tests.edges.running import holdfast_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.caller import Window

WARM_UP: Final = 1.0
RATE: Final = 1_500
PLUGINS: Final = [f"plugin{number}" for number in range(10)]
QUIET_RATE: Final = 100
IN_FLIGHT: Final = 1_000


async def load(rounds: int, seconds: float) -> Figures:
    """Ten plugins at once, 70 % gets and 30 % sets, at 1,500 a second whatever the service does."""
    async with _service() as url, calling(Plan(url=url, plugins=PLUGINS, per_second=RATE)) as caller:
        await caller.ask(WARM_UP)
        windows = [await caller.ask(seconds) for _ in range(rounds)]
    return Figures(
        f"nats: 70/30 of {len(PLUGINS)} plugins at {RATE:,}/s, open loop",
        {
            "error rate": [window.error_rate for window in windows],
            **{name: [percentile(window.all, share) for window in windows] for name, share in SHARES.items()},
        },
        bars={"error rate": 0.0, "p95 ms": 10.0, "p99 ms": 25.0},
    )


SHARES: Final = {"p50 ms": 0.5, "p95 ms": 0.95, "p99 ms": 0.99, "p99.9 ms": 0.999}


async def fairness(rounds: int, seconds: float) -> Comparison:
    """The p99 of a plugin that asks 100 times a second: beside one with 1,000 in flight against alone."""
    alone: list[float] = []
    beside: list[float] = []
    async with (
        _service() as url,
        calling(Plan(url=url, plugins=["quiet"], per_second=QUIET_RATE)) as quiet,
        calling(Plan(url=url, plugins=["busy"], in_flight=IN_FLIGHT)) as busy,
    ):
        await asyncio.gather(quiet.ask(WARM_UP), busy.ask(WARM_UP))
        for _ in range(rounds):
            alone.append(_p99(await quiet.ask(seconds)))
            flood = asyncio.create_task(busy.ask(seconds + 2 * LEAD))
            await asyncio.sleep(LEAD)
            beside.append(_p99(await quiet.ask(seconds)))
            await flood
    ratio = statistics.median(new / old for new, old in zip(beside, alone, strict=True))
    return Comparison(
        f"nats: p99 beside a plugin with {IN_FLIGHT:,} in flight",
        unit="ms",
        base=alone,
        measured=beside,
        bar="at most 3 x",
        passed=ratio <= 3,
    )


LEAD: Final = 0.3
"""By how many seconds the flood begins before the window that is measured, and outlasts it."""


def _p99(window: Window) -> float:
    if window.errors:
        raise RuntimeError(f"a quiet plugin was refused: {window.errors}")
    return percentile(window.all, 0.99)


@contextlib.asynccontextmanager
async def _service() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with holdfast_up(Path(folder)) as up:
            yield up.url
