"""`kill -9` of the service and of the NATS server under load: clients go on alone and lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING

import holdfast
from holdfast.clock import SystemClock
from holdfast.errors import OutcomeUnknown, Transient
from tests.edges.nats.ground import serving, until
from tests.robustness.serving_process import kill, launch, ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

CYCLES = int(os.environ.get("HOLDFAST_KILL_CYCLES", "2"))
WRITERS = 8
RECOVERY = 10.0
"""Within how many seconds a client must be able to write again."""


class Load:
    """Writers and a watch on one client, and what they were told."""

    def __init__(self, kv: holdfast.KV) -> None:
        self._kv = kv
        self.acknowledged: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.failures = 0
        self.watched: list[tuple[str, int]] = []

    async def write(self, number: int) -> None:
        """Write new keys, one after the other, until cancelled."""
        count = 0
        while True:
            key = f"{number}:{count}"
            count += 1
            try:
                self.acknowledged[key] = (await self._kv.set(key, count)).version
            except OutcomeUnknown:
                self.unknown.add(key)
                self.failures += 1
            except Transient:
                self.failures += 1
                await asyncio.sleep(0.02)

    async def watch(self) -> None:
        """Note every change from the beginning, until cancelled."""
        async for change in self._kv.watch(since=0):
            assert change.op != "gap"
            self.watched.append((change.key, change.version))

    async def more(self, number: int, within: float) -> None:
        """Wait for so many more acknowledgements."""
        enough = len(self.acknowledged) + number
        async with asyncio.timeout(within):
            while len(self.acknowledged) < enough:  # noqa: ASYNC110 - many tasks count together
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def under_load(url: str) -> AsyncIterator[Load]:
    """A client with writers and a watch for the length of a block; at its end nothing may be missing."""
    async with holdfast.open(f"{url}?timeout=2") as store:
        kv = store.kv("crash")
        load = Load(kv)
        tasks = [asyncio.create_task(load.write(number)) for number in range(WRITERS)]
        watching = asyncio.create_task(load.watch())
        try:
            yield load
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await _check(kv, load, watching)


async def _check(kv: holdfast.KV, load: Load, watching: asyncio.Task[None]) -> None:
    """Every acknowledged write is there, nothing is there that was refused, and the watch saw it all once."""
    found: dict[str, int] = {}
    cursor = None
    while True:
        page = await kv.list(values=True, cursor=cursor)
        found |= {entry.key: entry.version for entry in page.entries or ()}
        if (cursor := page.cursor) is None:
            break
    assert {key: found.get(key) for key in load.acknowledged} == load.acknowledged
    unfinished = {f"{number}:{max(_counts(found, number), default=0)}" for number in range(WRITERS)}
    assert found.keys() - load.acknowledged.keys() <= load.unknown | unfinished
    await until(lambda: len(load.watched) >= len(found))
    assert [version for _, version in load.watched] == list(range(1, len(found) + 1))
    assert dict(load.watched) == found
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def _counts(keys: dict[str, int], number: int) -> list[int]:
    """The numbers of the keys of one writer; its last call was cancelled, so that nobody knows its end."""
    return [int(key.partition(":")[2]) for key in keys if key.startswith(f"{number}:")]


async def test_killing_the_service_loses_no_acknowledged_write(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """No acknowledged write is lost when the service is killed, and its clients go on with the next one."""
    url, storage, seed = nats_server.url, str(tmp_path / "store.db"), random.Random(3)
    process = await ready(await launch(url, storage))
    try:
        async with under_load(url) as load:
            for _ in range(CYCLES):
                await load.more(seed.randint(20, 200), RECOVERY)
                await kill(process)
                process = await launch(url, storage)
                await ready(process)
                await load.more(WRITERS + 1, RECOVERY)
            assert load.failures >= CYCLES
    finally:
        await kill(process)


async def test_killing_the_nats_server_loses_no_acknowledged_write(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Service and clients find a NATS server again that was killed; nothing acknowledged is lost."""
    seed = random.Random(4)
    storage = str(tmp_path / "store.db")
    async with (
        serving(nats_server.url, storage=storage, clock=SystemClock()),
        under_load(nats_server.url) as load,
    ):
        for _ in range(CYCLES):
            await load.more(seed.randint(20, 200), RECOVERY)
            nats_server.process.kill()
            await nats_server.process.wait()
            await nats_server.start()
            await load.more(WRITERS + 1, RECOVERY)
        assert load.failures >= CYCLES
