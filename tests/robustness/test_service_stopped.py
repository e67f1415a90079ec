"""A service, or a server, that was stopped for a while does not do what its callers have given up."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import holdfast
from holdfast.clock import SystemClock
from holdfast.errors import OutcomeUnknown, Unavailable
from tests.edges.nats.ground import serving
from tests.robustness.serving_process import service_process

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

WRITES = 100
TIMEOUT = 1.0
MARGIN = 0.5
"""By how many seconds a stop outlasts the deadlines, so that no difference between clocks decides."""


async def test_a_stopped_service_executes_nothing_late(nats_server: NatsServer, tmp_path: Path) -> None:
    """None of 100 writes that timed out while the service was stopped is done when it goes on."""
    async with (
        service_process(nats_server.url, str(tmp_path / "store.db")) as process,
        holdfast.open(f"{nats_server.url}?timeout=60") as known,
        holdfast.open(f"{nats_server.url}?timeout=60") as stranger,
    ):
        await known.kv("trivia").set("before", 1)
        process.send_signal(signal.SIGSTOP)
        try:
            await _time_out(known.kv("trivia"), WRITES)
            await _time_out(stranger.kv("trivia"), 5)  # which has had no reply yet to learn the time from
            await asyncio.sleep(MARGIN)
        finally:
            process.send_signal(signal.SIGCONT)
        await _nothing_was_done(known)


async def test_a_stopped_server_delivers_nothing_that_is_done_late(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """None of 100 writes that timed out while the NATS server was stopped is done when it delivers them."""
    storage = str(tmp_path / "store.db")
    async with (
        serving(nats_server.url, storage=storage, clock=SystemClock()) as running,
        holdfast.open(f"{nats_server.url}?timeout=60") as store,
    ):
        await store.kv("trivia").set("before", 1)
        os.kill(nats_server.process.pid, signal.SIGSTOP)
        try:
            await _time_out(store.kv("trivia"), WRITES)
            await asyncio.sleep(MARGIN)
        finally:
            os.kill(nats_server.process.pid, signal.SIGCONT)
        await _nothing_was_done(store)
        late = [operation for operation in running.recorder.operations if operation.code == "TIMEOUT"]
        assert len(late) == WRITES


async def _time_out(kv: holdfast.KV, number: int) -> None:
    """Write new keys; each call ends without an answer, and none says that it was done or was not."""
    ends = await asyncio.gather(
        *(kv.set(f"late {count}", count, timeout=TIMEOUT) for count in range(number)), return_exceptions=True
    )
    assert [type(end) for end in ends] == [OutcomeUnknown] * number


async def _nothing_was_done(store: holdfast.Store) -> None:
    """Ask behind what was sent before, on the same connection: there is nothing but the first write."""
    kv = store.kv("trivia")
    async with asyncio.timeout(60):
        while True:
            try:
                page = await kv.list()
                break
            except Unavailable:
                await asyncio.sleep(0.05)
    assert page.keys == ["before"]
    assert (await store.stats("kv/trivia")).version == 1
    assert (await kv.set("after", 1)).version == 2
