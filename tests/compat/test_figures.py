"""The speed that a bot's database is asked for, in memory, where it was asked for.

Law: each figure is five times the time that the bot's own tests allow, and the best of three rounds counts,
since the machine that runs this is shared with others; `./dev bench floors` measures the figures themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert

from holdfast.compat.rosey import PluginKVStorage

if TYPE_CHECKING:
    from holdfast.compat.rosey import BotDatabase

SHARED = 5
ROUNDS = 3
NUMBERS = range(1000)


@pytest.fixture
def url() -> str:
    """Memory alone."""
    return "sqlite:///:memory:"


async def best(work: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[object]]) -> float:
    """How many seconds some work takes in its best round, each after some other work."""
    rounds: list[float] = []
    for _ in range(ROUNDS):
        await before()
        began = time.monotonic()
        await work()
        rounds.append(time.monotonic() - began)
    return min(rounds)


async def test_sets_and_gets_one_after_the_other(db: BotDatabase) -> None:
    """A set takes less than 10 ms on average and a get less than 5 ms."""

    async def sets() -> None:
        for number in NUMBERS:
            await db.kv_set("trivia", f"key{number}", {"index": number})

    async def gets() -> None:
        for number in NUMBERS:
            assert (await db.kv_get("trivia", f"key{number}"))["exists"]

    assert await best(sets, db.kv_cleanup_expired) < 10.0 * SHARED
    assert await best(gets, db.kv_cleanup_expired) < 5.0 * SHARED


async def test_sets_at_once(db: BotDatabase) -> None:
    """A thousand sets at once take less than a second; those of ten workers less than 15, all kept."""

    async def crowd() -> None:
        await asyncio.gather(*(db.kv_set("trivia", f"key{number}", number) for number in NUMBERS))

    async def work(worker: int) -> None:
        for number in range(100):
            await db.kv_set("dice", f"worker{worker}:{number}", number)

    async def workers() -> None:
        await asyncio.gather(*map(work, range(10)))

    assert await best(crowd, db.kv_cleanup_expired) < 1.0 * SHARED
    assert await best(workers, db.kv_cleanup_expired) < 15.0 * SHARED
    assert (await db.kv_list("dice", limit=2000))["count"] == 1000


async def test_a_list_of_a_thousand(db: BotDatabase) -> None:
    """A thousand keys are listed in less than 50 ms."""
    await asyncio.gather(*(db.kv_set("trivia", f"key{number:04}", number) for number in NUMBERS))

    async def listed() -> None:
        found = await db.kv_list("trivia", limit=1000)
        assert (found["count"], found["truncated"]) == (1000, False)

    assert await best(listed, db.kv_cleanup_expired) < 0.05 * SHARED


async def test_cleaning_up_ten_thousand(db: BotDatabase) -> None:
    """Ten thousand expired rows that a session added are removed in less than a second."""
    past = datetime.now(UTC) - timedelta(hours=1)

    async def fill() -> None:
        same = {"plugin_name": "trivia", "value_json": '"data"', "expires_at": past}
        async with db.session_factory() as session:
            rows = [{"key": f"key{number}", **same} for number in range(10_000)]
            await session.execute(insert(PluginKVStorage), rows)
            await session.commit()

    async def clean_up() -> None:
        assert await db.kv_cleanup_expired() == 10_000

    assert await best(clean_up, fill) < 1.0 * SHARED
