"""The line of a lock: a waiter finds the one before it at a cost that does not grow with the line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.handles.kv import KV
from holdfast.handles.recipes.lock import REACH, SharedWatch
from holdfast.pipeline import watch

if TYPE_CHECKING:
    from holdfast.store import Store

LONG = 8 * REACH


async def test_a_look_costs_the_same_in_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a waiter reads to find the one before it is bounded, however many others wait."""
    listed = found = 0
    plain, leaving = KV.list, SharedWatch.leaving

    async def counted(kv: KV, *args: Any, **options: Any) -> Any:
        nonlocal listed
        page = await plain(kv, *args, **options)
        listed += len(page.keys)
        return page

    def placed(news: SharedWatch, key: str) -> asyncio.Future[None]:
        nonlocal found
        found += 1
        return leaving(news, key)

    monkeypatch.setattr(KV, "list", counted)
    monkeypatch.setattr(SharedWatch, "leaving", placed)
    async with holdfast.open("memory://", reap=False) as store:
        kv = store.kv("p")
        async with kv.lock("l", ttl=600):
            tasks = [asyncio.create_task(kv.lock("l", ttl=600).acquire()) for _ in range(LONG)]
            async with asyncio.timeout(60):
                while found < LONG:  # noqa: ASYNC110 - what is waited for has no event of its own
                    await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert listed <= LONG * 2 * REACH


@pytest.mark.parametrize("between", [1, REACH, 5 * REACH])
async def test_waiters_far_apart_stand_in_order(between: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much was written between two arrivals, each waits for the one before and wakes alone."""
    awaited: list[str] = []
    order: list[str] = []
    leaving = SharedWatch.leaving

    def heard(news: SharedWatch, key: str) -> asyncio.Future[None]:
        awaited.append(key)
        return leaving(news, key)

    async def wait(name: str) -> None:
        async with kv.lock("l", ttl=600):
            order.append(name)

    monkeypatch.setattr(SharedWatch, "leaving", heard)
    async with holdfast.open("memory://", reap=False) as store:
        kv = store.kv("p")
        tasks = []
        async with kv.lock("l", ttl=600):
            for number, name in enumerate(("first", "second", "third"), start=1):
                tasks.append(asyncio.create_task(wait(name)))
                async with asyncio.timeout(60):
                    while len(awaited) < number:  # noqa: ASYNC110 - a place has no event of its own
                        await asyncio.sleep(0)
                for _ in range(between):
                    await kv.set("other", 1)
            assert len(set(awaited)) == 3
        await asyncio.gather(*tasks)
    assert order == ["first", "second", "third"]


async def test_a_waiter_on_a_database_need_not_be_told(
    pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing tells what another process has written, waiters look, and sooner than a watch does."""
    monkeypatch.setattr(watch, "LOOK_AGAIN", 3600)

    async def take_turns(store: Store) -> None:
        for _ in range(10):
            async with store.kv("p").lock("l", ttl=3600):
                await store.kv("p").set("k", None)

    async with holdfast.open(pg_store_url, reap=False) as one, holdfast.open(pg_store_url, reap=False) as two:
        async with asyncio.timeout(60):
            await asyncio.gather(*map(take_turns, (one, two, one, two)))


async def test_a_hurried_watch_slows_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that is in a hurry looks less and less often, and one that is told of changes never hurries."""
    pauses = list[float]()
    plain = asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        pauses.append(seconds or 0)
        return plain(0)

    monkeypatch.setattr(asyncio, "timeout", noted)
    for deaf in (False, True):
        bell = watch.Bell(lambda: None)
        bell.deaf = deaf
        await bell.heard()
        bell.hurry()
        for _ in range(60):
            await bell.heard()
    told, hurried = pauses[:61], pauses[61:]
    assert set(told) == {watch.LOOK_AGAIN}
    assert hurried[0] == hurried[-1] == watch.LOOK_AGAIN
    assert hurried[2] == watch.FIRST_LOOK
    assert hurried[2:] == sorted(hurried[2:])
    assert sum(pause < watch.LOOK_AGAIN for pause in hurried) < 60
