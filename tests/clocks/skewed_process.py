"""A service as a process of its own whose wall clock can be set from outside, by a file.

As in `tests.robustness.serving_process`. Only the wall clock is another one: all else is as in earnest.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast.bus.connection import Connection
from holdfast.clock import SystemClock
from holdfast.edges.nats.service import NatsService, Settings
from tests.forking import ForkedProcess
from tests.robustness.serving_process import kill, ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Skew:
    """By how many seconds the wall clock of a process is off, as a file says.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self, seconds: float) -> None:
        """Set the clock; it is never seen half written."""
        new = self.path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.path)

    def wall(self) -> float:
        """What the wall clock shows."""
        return time.time() + float(self.path.read_text())


async def serve(url: str, storage: str, skew: Skew, prefix: str) -> None:
    """Serve a store until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = Connection(name="holdfast service")
    async with holdfast.open(storage, clock=SystemClock(wall=skew.wall)) as store:
        await store.ready()
        await client.reach(url)
        service = NatsService(store, client, Settings(prefixes=(prefix,)))
        await service.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await stop.wait()
        await service.stop()
    await client.close()


@contextlib.asynccontextmanager
async def skewed_process(url: str, storage: str, skew: Skew, *, prefix: str = "db") -> AsyncIterator[None]:
    """A service in a process of its own for the length of a block; at the end it is told to stop."""
    given = (url, storage, str(skew.path), prefix)
    process = await ForkedProcess.start("tests.clocks.skewed_process", *given)
    try:
        await ready(process)
        yield
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()
    finally:
        await kill(process)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], Skew(Path(sys.argv[3])), sys.argv[4]))
