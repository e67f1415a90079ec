"""Several instances: over one PostgreSQL they share the work, over one file the second is told who has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import holdfast
from holdfast.clock import SystemClock
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from tests.edges.nats.ground import PATIENCE, calling, serving
from tests.nats import nats_server as server_with
from tests.robustness.serving_process import service_process

CALLERS = 4
INCREMENTS = 100
SETTINGS = Settings(deadline_ms=60_000)


async def test_two_instances_share_the_work(nats_server: NatsServer, pg_url: str) -> None:
    """Each request goes to one of two instances, both get some, and counters come to the exact total."""
    url = nats_server.url
    async with (
        serving(url, storage=pg_url, clock=SystemClock(), settings=SETTINGS) as first,
        serving(url, storage=pg_url, clock=SystemClock(), settings=SETTINGS) as second,
    ):
        await asyncio.gather(*(_count(url, number) for number in range(CALLERS)))
        total = CALLERS * INCREMENTS
        parts = [len(one.recorder.operations) for one in (first, second)]
        assert sum(parts) == 2 * total
        assert min(parts) > total / 10
        for instance in (first, second):
            values = {
                entry.key: entry.value
                for entry in (await instance.store.kv("count").list(values=True)).entries or ()
            }
            assert values == {"shared": total} | {f"own{number}": INCREMENTS for number in range(CALLERS)}
        changes = await first.store.kv("count").changes(limit=10_000)
        assert [change.version for change in changes.changes] == list(range(1, 2 * total + 1))


async def _count(url: str, number: int) -> None:
    async with calling(url) as caller:
        requests = [
            ("db.kv.count.incr", {"key": key})
            for _ in range(INCREMENTS)
            for key in ("shared", f"own{number}")
        ]
        answers = await caller.ask_all(requests)
        assert all(answer.fields["success"] for answer in answers)
        own = [answer.fields["value"] for answer in answers[1::2]]
        assert sorted(own) == list(range(1, INCREMENTS + 1))


async def test_a_watch_sees_the_changes_of_every_instance(nats_server: NatsServer, pg_url: str) -> None:
    """A client's watch yields each change once, in order, whichever instance made it."""
    url = nats_server.url
    async with (
        serving(url, storage=pg_url, clock=SystemClock(), settings=SETTINGS),
        serving(url, storage=pg_url, clock=SystemClock(), settings=SETTINGS),
        holdfast.open(url) as store,
    ):
        seen = []

        async def watch() -> None:
            async for change in store.kv("count").watch(since=0):
                seen.append(change.version)
                if len(seen) == 2 * INCREMENTS:
                    return

        watching = asyncio.create_task(watch())
        await _count(url, 0)
        async with asyncio.timeout(PATIENCE):
            await watching
        assert seen == list(range(1, 2 * INCREMENTS + 1))


async def test_two_services_on_a_file_share_the_requests(nats_server: NatsServer, tmp_path: Path) -> None:
    """A second service on a file answers some of the requests; none is lost or done twice."""
    url, path = nats_server.url, str(tmp_path / "store.db")
    async with (
        serving(url, storage=path, clock=SystemClock()),
        service_process(url, path),
        calling(url) as caller,
    ):
        answers = await caller.ask_all([("db.kv.trivia.incr", {"key": "n"})] * 100)
        assert sorted(answer.fields["value"] for answer in answers) == list(range(1, 101))


async def test_a_service_beside_another_one_on_a_file(nats_server: NatsServer, tmp_path: Path) -> None:
    """Services on different NATS servers read and write one file."""
    path = str(tmp_path / "store.db")
    async with (
        server_with() as elsewhere,
        service_process(elsewhere.url, path),
        holdfast.open(elsewhere.url) as store,
        serving(nats_server.url, storage=path, clock=SystemClock()),
        calling(nats_server.url) as caller,
    ):
        await store.kv("trivia").set("k", 1)
        assert (await caller.ask("db.admin.ready", {}))["success"]
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["value"] == 1
        assert (await caller.ask("db.kv.trivia.set", {"key": "k", "value": 2}))["version"] == 2
        assert (await store.kv("trivia").incr("k")).value == 3
