"""A holder of a lock that is killed is followed by the next one as soon as its time is over."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.handles.recipes.lock import QueuePlace, SharedWatch
from tests.nats import library_client
from tests.robustness.lock_process import OWNER, holder_process
from tests.robustness.serving_process import service_process

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from holdfast.edges.nats.server import NatsServer

PATIENCE = 60.0
FOLLOWED_MS = 5000
"""How much later than the deadline the next holder may have the lock, by the times in the journal.

A quiet machine needs less than a second. One with ten times as much to do as it can has needed three.
"""


async def test_a_waiter_gets_the_lock_of_a_killed_holder_when_it_expires(
    nats_server: NatsServer, storage: str
) -> None:
    """The expiry is published with purpose and last writer; a waiter has the lock soon after it."""
    url = nats_server.url
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def hear(message: Msg) -> None:
        events.put_nowait(json.loads(message.data))

    async with (
        service_process(url, storage),
        library_client(url) as listener,
        holdfast.open(url) as store,
        holder_process(url, ttl=2) as holder,
        asyncio.timeout(PATIENCE),
    ):
        await listener.subscribe("db.event.kv.work.expired", cb=hear)
        await listener.flush()
        kv = store.kv("work")
        token = int(await holder.ask("take"))
        lock = kv.lock("job", ttl=30)
        waiter = asyncio.create_task(lock.acquire())
        while not (await kv.list("lock/job/waiting/")).keys:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.01)
        holder.process.kill()
        assert await waiter
        assert lock.token > token
        taken, expired, *_ = await kv.history("lock/job")
        assert (expired.op, expired.purpose, expired.last_writer) == ("expired", "lock", OWNER)
        assert expired.lag_ms is not None
        late = (taken.at - expired.at).total_seconds() * 1000 + expired.lag_ms
        assert (taken.op, late <= FOLLOWED_MS) == ("set", True), late
        event = await events.get()
        assert (event["key"], event["purpose"], event["last_writer"]) == ("lock/job", "lock", OWNER)
        assert await lock.release()


async def test_a_waiter_that_misses_a_release_notices_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter whom the news of a release does not reach does not wait until the lock would have expired."""
    monkeypatch.setattr(SharedWatch, "_tell", lambda *_: None)
    monkeypatch.setattr(QueuePlace, "_due", 0.05)  # in place of a third of the time of the lock
    async with asyncio.timeout(PATIENCE), holdfast.open("memory://") as store:
        kv = store.kv("trivia")
        first, second = kv.lock("a", ttl=1000), kv.lock("a", ttl=1000)
        assert await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        async for _ in kv.watch("lock/a/waiting/", since=0):
            break
        await first.release()
        monkeypatch.setattr(QueuePlace, "_due", 0)
        assert await waiting
        await second.release()
