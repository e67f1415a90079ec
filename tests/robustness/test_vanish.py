"""The file of a service's store vanishes under load: all that was acknowledged can be saved."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.errors import DatabaseError, OutcomeUnknown, Transient
from tests.robustness.serving_process import service_process
from tests.vanishing import WAYS, entries

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from tests.vanishing import Way

ROUNDS = int(os.environ.get("HOLDFAST_VANISH_ROUNDS", "1"))
"""How often each way is tried."""
WRITERS = 8
REFUSALS = 40
"""After how many refusals a round has seen enough."""


class Load:
    """Writers on one client, and what they were told."""

    def __init__(self, kv: holdfast.KV) -> None:
        self._kv = kv
        self.gone = float("inf")
        self.acknowledged: dict[str, int] = {}
        self.late: list[str] = []
        self.refused: list[str] = []
        self.unknown = 0

    async def write(self, number: int) -> None:
        """Write new keys, one after the other, until cancelled."""
        count = 0
        while True:
            count += 1
            key, late = f"{number}:{count}", time.monotonic() > self.gone
            try:
                await self._kv.set(key, count)
            except OutcomeUnknown:
                self.unknown += 1
            except DatabaseError as error:
                self.refused.append(error.message)
                await asyncio.sleep(0.005)
            except Transient:
                await asyncio.sleep(0.005)
            else:
                self.acknowledged[key] = count
                if late:
                    self.late.append(key)

    async def seen(self, acknowledged: int, refused: int = 0) -> None:
        """Wait until so many writes were acknowledged and refused."""
        async with asyncio.timeout(60):
            while len(self.acknowledged) < acknowledged or len(self.refused) < refused:  # noqa: ASYNC110
                await asyncio.sleep(0.002)


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_no_write_is_acknowledged_after_the_file_vanished_under_load(
    way: Way, round_: int, nats_server: NatsServer, tmp_path: Path
) -> None:
    """No later write is acknowledged, ready says why, and a rescue has all that ever was acknowledged."""
    path, chance = tmp_path / "store.db", random.Random(f"{way.__name__} {round_}")
    async with (
        service_process(nats_server.url, str(path)) as process,
        holdfast.open(f"{nats_server.url}?timeout=10") as store,
    ):
        load = Load(store.kv("p"))
        tasks = [asyncio.create_task(load.write(number)) for number in range(WRITERS)]
        await load.seen(chance.randint(20, 400))
        await asyncio.sleep(chance.random() / 10)
        gone = await asyncio.to_thread(way, path)
        load.gone, before = time.monotonic(), len(load.acknowledged)
        await load.seen(0, refused=REFUSALS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert load.late == []
        assert all(message.startswith(gone) and str(process.pid) in message for message in load.refused)
        with pytest.raises(DatabaseError) as not_ready:
            await store.ready()
        assert not_ready.value.message.startswith(gone)
        rescued = await store.rescue("rescued.db")
        assert rescued.trouble is None
    async with holdfast.open(tmp_path / "rescued.db") as again:
        kept = await entries(again)
        assert (await again.kv("p").set("goes on", 1)).version > len(load.acknowledged)
    lost = {key for key, value in load.acknowledged.items() if kept.get(key) != value}
    print(
        f"{way.__name__}: acknowledged {len(load.acknowledged)} ({before} before it vanished), late "
        f"{len(load.late)}, refused {len(load.refused)}, unknown {load.unknown}, lost {len(lost)}"
    )
    assert lost == set()
