"""Holders and waiters that come, work, are cancelled and lose answers at random, while time jumps.

What must hold at every step is checked at every step. A failure is repeated by its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import Fenced, HoldfastError
from holdfast.handles.recipes import lease
from holdfast.handles.recipes import lock as module
from tests.unit.recipes.faults import Faulty, steps

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.handles.recipes.lock import Lock
    from holdfast.store import Store

SEEDS = int(os.environ.get("HOLDFAST_CHAOS_SEEDS", "6"))
WORKERS = 5
MOMENTS = 120
ENOUGH = 4
"""Times that the lock must have been taken. Retries pause by the machine's clock, so a moment may be idle."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait by the machine's clock."""
    monkeypatch.setattr(lease, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(module, "RELEASE_PAUSES", (0, 0, 0))


class Crowd:
    """Those who want the lock, and what they have seen."""

    def __init__(self, kv: KV, seed: random.Random) -> None:
        self._kv = kv
        self._seed = seed
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.locks: dict[int, Lock] = {}
        self.tokens: list[int] = []

    def keep_busy(self) -> None:
        """Have everybody at work: whoever has ended comes again."""
        for number in range(WORKERS):
            if number not in self._tasks or self._tasks[number].done():
                self._tasks[number] = asyncio.create_task(self._work(number))

    def cancel_one(self) -> None:
        """Cancel anybody, whatever they are doing."""
        self._tasks[self._seed.randrange(WORKERS)].cancel()

    async def end(self) -> None:
        """Cancel everybody and wait until they have ended."""
        for task in self._tasks.values():
            task.cancel()
        ends = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends), ends

    async def _work(self, number: int) -> None:
        lock = self.locks[number] = self._kv.lock("a", ttl=self._seed.choice((10, 30)))
        try:
            async with lock:
                self.tokens.append(lock.token)
                for _ in range(self._seed.randrange(5)):
                    await self._kv.set("k", lock.token, fence=lock.fence)
                    await steps(self._seed.randrange(20))
        except HoldfastError:
            """Lost, or out of reach: it comes again."""


@pytest.mark.parametrize("number", range(SEEDS))
async def test_at_most_one_holds_the_lock(
    number: int, kv: KV, store: Store, engine: Faulty, clock: ManualClock
) -> None:
    """Whatever happens, no two hold the lock at once, tokens grow, and in the end the lock is free."""
    seed = random.Random(number)
    crowd = Crowd(kv, seed)
    for moment in range(20 * MOMENTS):
        if moment >= MOMENTS and len(crowd.tokens) >= ENOUGH:
            break
        crowd.keep_busy()
        chance = seed.random()
        if chance < 0.15:
            clock.advance(seed.choice((1, 5, 15)))
        elif chance < 0.25:
            crowd.cancel_one()
        elif chance < 0.35:
            engine.faults += seed.choices(("lost", "vanished", "away", ""), k=seed.randrange(6))
        elif chance < 0.4:
            with suppress(HoldfastError):
                await store.sweep()
        for _ in range(seed.randrange(30)):
            await asyncio.sleep(0)
            assert sum(lock.held for lock in crowd.locks.values()) <= 1
    engine.faults.clear()
    await crowd.end()
    assert crowd.tokens == sorted(set(crowd.tokens))
    assert len(crowd.tokens) >= ENOUGH
    clock.advance(30)
    async with kv.lock("a", timeout=20) as last:
        assert last.token > crowd.tokens[-1]
        with pytest.raises(Fenced):
            await kv.set("k", 0, fence={"lock": "a", "token": crowd.tokens[-1]})
    assert not (await kv.list("lock/")).keys
    assert not [task for task in asyncio.all_tasks() if "lock/a" in task.get_name()]
