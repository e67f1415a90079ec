"""A reaper's time and storage for tests: time passes when everybody sleeps, and the storage fails or lingers.

Nothing here waits for a real clock. Whoever sleeps is woken in the order of its waking time.
"""

from __future__ import annotations

import asyncio
import heapq
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import holdfast.upkeep.deadline_watcher
import holdfast.upkeep.reaper
from holdfast.engines.memory import MemoryEngine
from holdfast.upkeep_commands import ExpireRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from holdfast.clock import ManualClock
    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engine import Due

SETTLE = 50
"""How many turns the loop gets before the next sleeper is woken: as many as a command may take in memory."""


class Time:
    """Sleeps without waiting. `slept` is what the reaper slept, `looked` what its deadline watcher did."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.now = 1000.0
        self.slept: list[float] = []
        self.looked: list[float] = []
        self.most = 0
        self.over = asyncio.Event()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = 0
        self._waking: asyncio.Task[None] | None = None

    def monotonic(self) -> float:
        """The stopwatch."""
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Let time pass while nobody else gets a turn."""
        self.now += seconds
        self.clock.advance(seconds)

    async def reaper_sleeps(self, seconds: float) -> None:
        """The reaper's sleep; after so many of them everything stands still for good."""
        if len(self.slept) == self.most:
            self.over.set()
            await asyncio.Event().wait()
        self.slept.append(seconds)
        await self.sleep(seconds)

    async def watcher_sleeps(self, seconds: float) -> None:
        """The watcher's sleep."""
        self.looked.append(seconds)
        await self.sleep(seconds)

    async def sleep(self, seconds: float) -> None:
        """Sleep until the clocks have moved on by so much."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        heapq.heappush(self._sleepers, (self.now + seconds, self._number, future))
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake())
        await future

    async def _wake(self) -> None:
        while self._sleepers and not self.over.is_set():
            for _ in range(SETTLE):
                await asyncio.sleep(0)
            at, _, future = heapq.heappop(self._sleepers)
            self.pass_by(max(0.0, at - self.now))
            if not future.done():
                future.set_result(None)

    def rule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the time that the reaper and its deadline watcher go by."""
        for module, sleep in (
            (holdfast.upkeep.reaper, self.reaper_sleeps),
            (holdfast.upkeep.deadline_watcher, self.watcher_sleeps),
        ):
            parts: dict[str, Any] = {"sleep": sleep, "gather": asyncio.gather}
            monkeypatch.setattr(module, "seams", SimpleNamespace(monotonic=self.monotonic))
            monkeypatch.setattr(module, "asyncio", SimpleNamespace(**parts))


class Engine(MemoryEngine):
    """The reference engine. A sweep's looks can fail or take time, and so can the watcher's and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.missed: list[Exception] = []
        self.slowness = 0.0
        self.look_takes = 0.0
        self.run_takes = 0.0
        self.time: Time | None = None

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """What is due, if all goes well."""
        if self.failures:
            raise self.failures.pop(0)
        if self.time is not None:
            self.time.now += self.slowness
            self.time.pass_by(self.look_takes)
        return await super().due(space, now, limit=limit, namespace=namespace)

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """What is about to be due, if all goes well."""
        if self.missed:
            raise self.missed.pop(0)
        if self.time is not None:
            self.time.pass_by(self.look_takes)
        return await super().falling_due(since, until, limit=limit)

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Apply a group; a run takes its time, in which others get their turn."""
        if self.run_takes and self.time is not None and isinstance(commands[0], ExpireRun):
            await self.time.sleep(self.run_takes)
        return await super().transact(commands, now)
