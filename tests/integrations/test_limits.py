"""The storage of the package limits, on every ground."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.aio.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)
from limits.errors import StorageError
from limits.storage import storage_from_string

import holdfast
from holdfast.integrations import limits
from holdfast.integrations.limits import HoldfastStorage

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

FIVE: Final = RateLimitItemPerMinute(5)
STRATEGIES: Final = [FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter]


@pytest.fixture
def storage(store: Store) -> HoldfastStorage:
    """A storage in a namespace of its own."""
    return HoldfastStorage(kv=store.kv("limits"))


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> ManualClock:
    """The clock of the stores, which the windows go by as well."""

    class Time:
        @staticmethod
        def time() -> float:
            return clock.now() / 1000

    monkeypatch.setattr(limits, "time", Time)
    return clock


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_crowd_gets_no_more_than_the_limit(storage: HoldfastStorage, strategy: Any) -> None:
    """Of many callers at once exactly as many pass as the limit allows, and others' limits are untouched."""
    limiter = strategy(storage)
    item = RateLimitItemPerMinute(5, 60)
    results = await asyncio.gather(*(limiter.hit(item, "ada/\x00" + "x" * 300) for _ in range(12)))
    assert sorted(results) == [False] * 7 + [True] * 5
    assert await limiter.test(item, "bob")
    assert not await limiter.test(item, "ada/\x00" + "x" * 300)
    assert (await limiter.get_window_stats(item, "ada/\x00" + "x" * 300)).remaining == 0
    await limiter.clear(item, "ada/\x00" + "x" * 300)
    assert await limiter.hit(item, "ada/\x00" + "x" * 300)
    assert not await limiter.hit(item, "ada", cost=6)


async def test_fixed_window(storage: HoldfastStorage, clock: ManualClock) -> None:
    """A window begins with its first hit and ends after its length; then the next begins."""
    limiter = FixedWindowRateLimiter(storage)
    assert [await limiter.hit(FIVE, "ada") for _ in range(6)] == [True] * 5 + [False]
    stats = await limiter.get_window_stats(FIVE, "ada")
    assert stats.reset_time == pytest.approx(clock.now() / 1000 + 60, abs=0.01)
    clock.advance(60)
    assert await limiter.hit(FIVE, "ada")


async def test_moving_window(storage: HoldfastStorage, wall: ManualClock) -> None:
    """Each hit counts for the length of the window from its own time, also after the first has gone."""
    for _ in range(3):
        assert await storage.acquire_entry("k", 3, 10)
        wall.advance(4)
    assert await storage.acquire_entry("k", 3, 10)
    assert not await storage.acquire_entry("k", 3, 10)
    wall.advance(2.5)
    start, count = await storage.get_moving_window("k", 3, 10)
    assert start == pytest.approx(wall.now() / 1000 - 6.5)
    assert count == 2
    assert await storage.acquire_entry("k", 3, 10)
    assert not await storage.acquire_entry("k", 3, 10, amount=4)
    wall.advance(20)
    assert await storage.get_moving_window("k", 3, 10) == (wall.now() / 1000, 0)


async def test_sliding_window(storage: HoldfastStorage, wall: ManualClock) -> None:
    """The window before counts in proportion to what of it is left."""
    wall.advance(10 - wall.now() / 1000 % 10)
    assert await storage.acquire_sliding_window_entry("k", 10, 10, amount=10)
    assert not await storage.acquire_sliding_window_entry("k", 10, 10)
    wall.advance(15)
    previous, left, current, _ = await storage.get_sliding_window("k", 10)
    assert (previous, current) == (10, 0)
    assert left == pytest.approx(5)
    assert await storage.acquire_sliding_window_entry("k", 10, 10, amount=5)
    assert not await storage.acquire_sliding_window_entry("k", 10, 10)
    assert not await storage.acquire_sliding_window_entry("k", 10, 10, amount=11)
    await storage.clear_sliding_window("k", 10)
    assert (await storage.get_sliding_window("k", 10))[:3] == (0, 0, 0)


async def test_reset(store: Store, storage: HoldfastStorage) -> None:
    """Resetting forgets all limits and nothing else of the namespace."""
    await store.kv("limits").set("other", 1)
    await storage.incr("a", 1)
    await storage.acquire_entry("b", 5, 60)
    assert await storage.reset() == 2
    assert await storage.get("a") == 0
    assert await storage.get_expiry("a") == pytest.approx(time.time(), abs=60)
    assert (await store.kv("limits").list()).keys == ["other"]


async def test_it_is_known_by_its_scheme(ground: Ground) -> None:
    """limits makes the storage from its scheme; it opens its store at its first use."""
    storage: Any = storage_from_string("async+holdfast://", url=ground.url, wrap_exceptions=True)
    limiter = FixedWindowRateLimiter(storage)
    assert await limiter.hit(RateLimitItemPerSecond(1), "ada")
    assert await storage.check()
    await storage.aclose()
    async with ground.open() as store:
        closed = HoldfastStorage(kv=store.kv("limits"), wrap_exceptions=True)
        assert await closed.check()
    assert not await closed.check()
    with pytest.raises(StorageError):
        await closed.get("k")


def test_it_takes_a_handle_or_a_url() -> None:
    """A storage that was given neither says so at once."""
    with pytest.raises(holdfast.ValidationError, match="give either a handle or a url"):
        HoldfastStorage("async+holdfast://")
