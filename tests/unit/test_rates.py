"""Rates: so many requests a second, counted by each process for the namespaces whose policy says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.pipeline.rates import Bucket, Rates
from holdfast.rows import Namespace

if TYPE_CHECKING:
    from pathlib import Path


def test_a_bucket_holds_a_second_s_worth() -> None:
    """A burst of one second goes through; then a token comes back at a time."""
    bucket = Bucket(4, 0.0)
    assert [bucket.take(0.0) for _ in range(5)] == [0, 0, 0, 0, 0.25]
    assert [bucket.take(0.25), bucket.take(0.25)] == [0, 0.25]
    assert [bucket.take(9.0) for _ in range(5)] == [0, 0, 0, 0, 0.25]


def test_rate_below_one_lets_one_through() -> None:
    """A slow bucket still lets one through."""
    bucket = Bucket(0.5, 0.0)
    assert [bucket.take(0.0), bucket.take(0.0), bucket.take(2.0)] == [0, 2.0, 0]


def test_policies_are_learnt_and_forgotten() -> None:
    """A bucket lasts as long as its rate: learning the same again refills nothing, lifting it ends it."""
    now = 1_000
    rates = Rates(lambda: now)
    limited = Namespace(name="kv/p", policy='{"rate_limit":1}')
    rates.learn([limited, Namespace(name="kv/q")])
    rates.admit("kv/p")
    rates.learn([limited])
    with pytest.raises(holdfast.RateLimited) as refused:
        rates.admit("kv/p")
    assert refused.value.retry_after == 1.0
    assert refused.value.retryable
    rates.admit("kv/q")
    rates.learn([Namespace(name="kv/p", policy='{"rate_limit":2}')])
    rates.admit("kv/p")
    rates.learn([Namespace(name="kv/p", policy="{}")])
    for _ in range(5):
        rates.admit("kv/p")


def test_a_policy_that_can_not_be_read_changes_no_rate() -> None:
    """Another program may have written it with SQL. The rates of other namespaces are learnt all the same."""
    rates = Rates(lambda: 1_000)
    rates.learn([Namespace(name="kv/p", policy='{"rate_limit":1}')])
    rates.learn(
        [Namespace(name="kv/p", policy='{"rate_limit":'), Namespace(name="kv/q", policy='{"rate_limit":2}')]
    )
    assert [rates.unlimited(name) for name in ("kv/p", "kv/q", "kv/r")] == [False, False, True]


async def test_a_watch_is_no_request() -> None:
    """Somebody who watches is not refused what the watch looks up by itself."""
    async with holdfast.open("memory://", clock=ManualClock(), reap=False) as store:
        kv = store.kv("p")
        await store.set_policy("kv/p", {"rate_limit": 3})
        async with asyncio.timeout(60):
            changes = kv.watch(since=0)
            for version in (1, 2, 3):
                await kv.set("k", version)
                assert (await anext(changes)).version == version
        with pytest.raises(holdfast.RateLimited):
            await kv.get("k")


async def test_operators_and_upkeep_are_not_counted() -> None:
    """Setting a policy, reading numbers and sweeping go on however much a namespace is asked."""
    clock = ManualClock()
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        await store.set_policy("kv/p", {"rate_limit": 1})
        await store.kv("p").set("k", 1, ttl=1)
        for _ in range(3):
            await store.stats("kv/p")
            await store.set_policy("kv/p", {"rate_limit": 1})
        clock.advance(0.999)
        with pytest.raises(holdfast.RateLimited):
            await store.kv("p").get("k")
        clock.advance(0.001)
        assert await store.sweep() == 1


async def test_another_process_learns_of_it(tmp_path: Path, pg_store_url: str) -> None:
    """An instance that did not set the policy goes by it after its next write or its next upkeep."""
    clock = ManualClock()
    async with (
        holdfast.open(pg_store_url, clock=clock, reap=False) as one,
        holdfast.open(pg_store_url, clock=clock, reap=False) as two,
    ):
        await one.set_policy("kv/p", {"rate_limit": 1})
        await two.kv("p").get("k")
        await two.kv("p").get("k")
        await two.upkeep()
        await two.kv("p").get("k")
        with pytest.raises(holdfast.RateLimited):
            await two.kv("p").get("k")
        await one.set_policy("kv/q", {"rate_limit": 1})
        await two.kv("q").set("k", 1)
        await two.kv("q").set("k", 2)
        with pytest.raises(holdfast.RateLimited):
            await two.kv("q").set("k", 3)


async def test_rate_applies_as_soon_as_a_store_is_opened(tmp_path: Path) -> None:
    """A rate limit outlives the process that set it and applies from the start of the next one."""
    path, clock = tmp_path / "store.db", ManualClock()
    async with holdfast.open(path, clock=clock) as store:
        await store.set_policy("kv/p", {"rate_limit": 1})
    async with holdfast.open(path, clock=clock) as store:
        with pytest.raises(holdfast.RateLimited):
            await _ask_on(store.kv("p"))


async def _ask_on(kv: holdfast.KV) -> None:
    """Ask until it is refused."""
    async with asyncio.timeout(60):
        while True:
            await kv.get("k")
            await asyncio.sleep(0)
