"""The storage of the package limits, on every ground."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond, strategies
from limits.aio.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)
from limits.errors import StorageError
from limits.storage import storage_from_string

import holdfast
import holdfast.sync
from holdfast import seams
from holdfast.integrations.limits import HoldfastStorage, HoldfastSyncStorage

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.clock import ManualClock
    from holdfast.store import Store
    from tests.integrations.grounds import Ground

WITHOUT_AWAIT: Final[list[Any]] = [
    strategies.FixedWindowRateLimiter,
    strategies.MovingWindowRateLimiter,
    strategies.SlidingWindowCounterRateLimiter,
]
FIVE: Final = RateLimitItemPerMinute(5)
STRATEGIES: Final = [FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter]


@pytest.fixture
def storage(store: Store) -> HoldfastStorage:
    """A storage in a namespace of its own."""
    return HoldfastStorage(kv=store.kv("limits"))


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> ManualClock:
    """The clock of the stores, which the windows go by as well."""

    monkeypatch.setattr(seams, "wall", lambda: clock.now() / 1000)
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


async def test_fixed_window_counts_from_its_first_hit(storage: HoldfastStorage, clock: ManualClock) -> None:
    """A window begins with its first hit and ends after its length; then the next begins."""
    limiter = FixedWindowRateLimiter(storage)
    assert [await limiter.hit(FIVE, "ada") for _ in range(6)] == [True] * 5 + [False]
    stats = await limiter.get_window_stats(FIVE, "ada")
    assert stats.reset_time == pytest.approx(clock.now() / 1000 + 60, abs=0.01)
    clock.advance(60)
    assert await limiter.hit(FIVE, "ada")


async def test_moving_window_counts_each_hit_for_its_length(
    storage: HoldfastStorage, wall: ManualClock
) -> None:
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


async def test_sliding_window_weights_the_one_before(storage: HoldfastStorage, wall: ManualClock) -> None:
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


async def test_reset_forgets_only_limits(store: Store, storage: HoldfastStorage) -> None:
    """Resetting forgets all limits and nothing else of the namespace."""
    await store.kv("limits").set("other", 1)
    await storage.incr("a", 1)
    await storage.acquire_entry("b", 5, 60)
    assert await storage.reset() == 2
    assert await storage.get("a") == 0
    assert await storage.get_expiry("a") == pytest.approx(time.time(), abs=60)
    assert (await store.kv("limits").list()).keys == ["other"]


async def test_storage_is_found_by_its_scheme(ground: Ground) -> None:
    """limits makes the storage from its scheme, and the storage opens its store at its first use."""
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


def test_storage_takes_a_handle_or_a_url() -> None:
    """Without either, the constructor raises an error."""
    with pytest.raises(holdfast.ValidationError, match="give either a handle or a url"):
        HoldfastStorage("async+holdfast://")


async def test_threads_get_no_more_than_the_limit(ground: Ground) -> None:
    """Without await too, exactly as many callers pass as the limit allows, whichever strategy they use."""
    item = RateLimitItemPerMinute(5, 60)

    def crowd() -> None:
        storage: Any = storage_from_string("holdfast://", url=ground.url, plugin="threads")
        with ThreadPoolExecutor(4) as threads:
            for strategy in WITHOUT_AWAIT:
                limiter = strategy(storage)
                hit = partial(limiter.hit, item, strategy.__name__)
                assert sum(task.result() for task in [threads.submit(hit) for _ in range(12)]) == 5
                assert not limiter.test(item, strategy.__name__)
                assert limiter.get_window_stats(item, strategy.__name__).remaining == 0
                limiter.clear(item, strategy.__name__)
                assert limiter.hit(item, strategy.__name__)
                assert not limiter.hit(item, "other", cost=6)
        storage.close()

    await asyncio.to_thread(crowd)


def test_both_sides_count_the_same_hits(tmp_path: Path) -> None:
    """A storage with await and one without use the same entries, so services of both kinds share limits."""
    path = str(tmp_path / "limits.db")

    async def with_await() -> tuple[int, int, int]:
        storage = HoldfastStorage(url=path)
        counted = await storage.incr("k", 60), (await storage.get_moving_window("k", 9, 60))[1]
        slid = await storage.get_sliding_window("k", 3600)
        await storage.aclose()
        return *counted, slid[0] + slid[2]

    storage = HoldfastSyncStorage(url=path)
    storage.incr("k", 60)
    storage.acquire_entry("k", 9, 60, amount=2)
    storage.acquire_sliding_window_entry("k", 9, 3600, amount=3)
    storage.close()
    assert asyncio.run(with_await()) == (2, 2, 3)
    assert storage.get("k") == 2  # the next use after a close opens the store again
    assert storage.get_expiry("k") == pytest.approx(time.time() + 60, abs=59)
    assert storage.reset() == 3
    storage.clear_sliding_window("k", 3600)
    storage.close()


def test_a_closed_store_does_not_answer(tmp_path: Path) -> None:
    """Without await too, a storage says that its store does not answer, and wraps errors if asked to."""
    with holdfast.sync.open(str(tmp_path / "limits.db")) as store:
        storage = HoldfastSyncStorage(kv=store.kv("limits"), wrap_exceptions=True)
        assert storage.check()
    assert not storage.check()
    with pytest.raises(StorageError):
        storage.get("k")
    nowhere = HoldfastSyncStorage(url="sqlite:////nowhere/at/all/limits.db")
    assert not nowhere.check()


async def test_a_handle_of_the_other_side_is_refused(tmp_path: Path) -> None:
    """A storage that was given the other kind of handle says which kind it needs, before it counts."""
    with pytest.raises(holdfast.ValidationError, match="give either a handle or a url"):
        HoldfastSyncStorage("holdfast://")
    with holdfast.sync.open(str(tmp_path / "sync.db")) as store:
        wrong: Any = store.kv("limits")
        with pytest.raises(holdfast.ValidationError, match=r"holdfast\.open"):
            HoldfastStorage(kv=wrong)
    async with holdfast.open(tmp_path / "async.db") as opened:
        wrong = opened.kv("limits")
        with pytest.raises(holdfast.ValidationError, match=r"holdfast\.sync\.open"):
            HoldfastSyncStorage(kv=wrong)
