"""Keys with a deadline, as a bot's database shows them and cleans them up.

Deadlines in the past are written through sessions, so that nothing has to be waited for. Only the test
that gives a ttl of one second waits for that second, since a bot's database goes by the real clock.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from holdfast.compat.rosey import BotDatabase, PluginKVStorage
from tests.compat.conftest import add, row

HOUR = timedelta(hours=1)


async def rows(db: BotDatabase) -> list[str]:
    """The keys that the table holds, expired or not."""
    async with db.session_factory() as session:
        return list(await session.scalars(select(PluginKVStorage.key).order_by(PluginKVStorage.key)))


async def test_a_ttl_ends_and_cleaning_up_counts(db: BotDatabase) -> None:
    """A key with a ttl under either name can be read until then; afterwards it is gone from get and list,
    stays in the table until it is cleaned up, and is counted once."""
    await db.kv_set("trivia", "for ever", 0)
    await db.kv_set("trivia", "first", 1, ttl=1)
    await db.kv_set("trivia", "second", 2, ttl_seconds=1)
    await db.kv_set("trivia", "third", 3, 1)
    await db.kv_set("trivia", "later", 4, ttl=3600, ttl_seconds=3600)
    assert await db.kv_get("trivia", "third") == {"exists": True, "value": 3}
    await asyncio.sleep(1.1)
    for key in ("first", "second", "third"):
        assert await db.kv_get("trivia", key) == {"exists": False}
    assert (await db.kv_list("trivia"))["keys"] == ["for ever", "later"]
    assert await rows(db) == ["first", "for ever", "later", "second", "third"]
    assert await db.kv_cleanup_expired() == 3
    assert await db.kv_cleanup_expired() == 0
    assert await rows(db) == ["for ever", "later"]


@pytest.mark.parametrize("ttl", [0, -1, 1.5, True, "60", 2**31])
async def test_a_ttl_that_is_no_whole_number_of_seconds_is_refused(db: BotDatabase, ttl: Any) -> None:
    """A ttl of 0, below it or of another kind is a ValueError under either name, and nothing is kept."""
    for named in ({"ttl": ttl}, {"ttl_seconds": ttl}):
        with pytest.raises(ValueError, match="ttl"):
            await db.kv_set("trivia", "key", 1, **named)
    assert await db.kv_get("trivia", "key") == {"exists": False}


async def test_two_ttls_that_differ_are_refused(db: BotDatabase) -> None:
    """Nobody can know which of two different ttls was meant."""
    with pytest.raises(ValueError, match="differ"):
        await db.kv_set("trivia", "key", 1, ttl=5, ttl_seconds=6)


async def test_a_set_without_ttl_takes_the_deadline_away(db: BotDatabase) -> None:
    """A set replaces the deadline with the value."""
    await db.kv_set("trivia", "key", 1, ttl=3600)
    await db.kv_set("trivia", "key", 2)
    entry = await (await db.store()).kv("trivia").get("key")
    assert entry is not None
    assert (entry.value, entry.expires_at) == (2, None)


async def test_cleaning_up_takes_what_has_expired_and_nothing_else(db: BotDatabase) -> None:
    """Rows past their deadline go, of every plugin; those with time left and those for ever stay."""
    now = datetime.now(UTC)
    await add(
        db,
        [
            *(row(f"expired{number}", expires_at=now - HOUR) for number in range(5)),
            *(row(f"expired{number}", plugin="dice", expires_at=now - HOUR) for number in range(3)),
            *(row(f"valid{number}", expires_at=now + HOUR) for number in range(5)),
            *(row(f"permanent{number}") for number in range(5)),
        ],
    )
    assert (await db.kv_list("trivia"))["count"] == 10
    assert await db.kv_cleanup_expired() == 8
    assert len(await rows(db)) == 10
    assert (await db.kv_list("trivia"))["count"] == 10


@pytest.mark.parametrize("offset", [-HOUR, HOUR], ids=["past", "future"])
async def test_naive_deadlines_are_utc(db: BotDatabase, offset: timedelta) -> None:
    """A deadline without a timezone is read as UTC, wherever the bot runs."""
    await add(db, [row("key", expires_at=(datetime.now(UTC) + offset).replace(tzinfo=None))])
    exists = offset > timedelta()
    assert (await db.kv_get("trivia", "key"))["exists"] is exists
    assert await db.kv_cleanup_expired() == (0 if exists else 1)


async def test_expired_rows_are_gone_for_every_verb(db: BotDatabase) -> None:
    """What has expired is not listed, not deleted and not kept by writing over it, swept or not."""
    await add(db, [row("key", expires_at=datetime.now(UTC) - HOUR)])
    assert await db.kv_delete("trivia", "key") is False
    assert (await db.kv_list("trivia"))["keys"] == []
    await db.kv_set("trivia", "key", "new")
    assert await db.kv_get("trivia", "key") == {"exists": True, "value": "new"}
    assert await db.kv_cleanup_expired() == 0


@pytest.mark.unmeasured
async def test_any_number_is_cleaned_up_in_one_call(db: BotDatabase) -> None:
    """One call removes all that has expired, however much it is, and the count is right."""
    past = datetime.now(UTC) - HOUR
    await add(db, [row(f"key{number}", expires_at=past) for number in range(3001)])
    assert await db.kv_cleanup_expired() == 3001
    assert await rows(db) == []


async def test_each_expiry_is_a_change(db: BotDatabase) -> None:
    """Cleaning up leaves a record of each key, as every way to notice an expiry does."""
    await add(db, [row("key", expires_at=datetime.now(UTC) - HOUR)])
    await db.kv_cleanup_expired()
    page = await (await db.store()).kv("trivia").changes()
    assert [(change.op, change.key) for change in page.changes] == [("set", "key"), ("expired", "key")]
