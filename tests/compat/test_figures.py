"""The speed that a bot's database is asked for.

Law: each figure is five times the time that the bot's own tests allow, since the machine that runs this is
shared with others; `./dev bench floors` measures the figures themselves.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.compat.conftest import add, row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from holdfast.compat.rosey import BotDatabase

SHARED = 5


async def seconds_for(calls: Iterable[Awaitable[object]]) -> float:
    """How long calls take, one after the other."""
    began = time.monotonic()
    for call in calls:
        await call
    return time.monotonic() - began


async def test_sets_and_gets_one_after_the_other(db: BotDatabase) -> None:
    """A set takes less than 10 ms on average and a get less than 5 ms."""
    sets = await seconds_for(db.kv_set("trivia", f"key{number}", {"index": number}) for number in range(1000))
    gets = await seconds_for(db.kv_get("trivia", f"key{number}") for number in range(1000))
    assert sets < 10.0 * SHARED
    assert gets < 5.0 * SHARED


async def test_sets_at_once(db: BotDatabase) -> None:
    """A thousand sets at once take less than a second, and those of ten workers are all kept."""
    began = time.monotonic()
    await asyncio.gather(*(db.kv_set("trivia", f"key{number}", number) for number in range(1000)))
    assert time.monotonic() - began < 1.0 * SHARED

    async def work(worker: int) -> None:
        for number in range(100):
            await db.kv_set("dice", f"worker{worker}:{number}", number)

    began = time.monotonic()
    await asyncio.gather(*map(work, range(10)))
    assert time.monotonic() - began < 15.0 * SHARED
    assert (await db.kv_list("dice", limit=2000))["count"] == 1000


async def test_a_list_of_a_thousand(db: BotDatabase) -> None:
    """A thousand keys are listed in less than 50 ms."""
    await asyncio.gather(*(db.kv_set("trivia", f"key{number:04}", number) for number in range(1000)))
    began = time.monotonic()
    listed = await db.kv_list("trivia", limit=1000)
    assert time.monotonic() - began < 0.05 * SHARED
    assert (listed["count"], listed["truncated"]) == (1000, False)


async def test_cleaning_up_ten_thousand(db: BotDatabase) -> None:
    """Ten thousand expired rows that a session added are removed in less than a second."""
    past = datetime.now(UTC) - timedelta(hours=1)
    await add(db, [row(f"key{number}", expires_at=past) for number in range(10_000)])
    began = time.monotonic()
    assert await db.kv_cleanup_expired() == 10_000
    assert time.monotonic() - began < 1.0 * SHARED
