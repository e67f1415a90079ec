"""A service as a process of its own, to be stopped, killed and started again.

It says `ready` on standard output once it answers, and nothing else. SIGTERM ends it as an operator
would; any other end is what the tests are about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.engines.cluster.jetstream import NoMajority
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

START_SECONDS = 60.0
DEADLINE_MS = 60_000
"""For requests that name no deadline: a busy machine may take longer than the usual second to begin."""


async def opened(storage: str) -> holdfast.Store:
    """Open a store; wait for the servers of a cluster, as `holdfast up` does."""
    while True:
        store = holdfast.open(storage)
        try:
            await store.start()
        except NoMajority:
            await asyncio.sleep(0.5)
        else:
            return store


async def serve(url: str, storage: str) -> None:
    """Serve a store until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = Connection(name="holdfast service")
    async with contextlib.aclosing(await opened(storage)) as store:
        await store.ready()
        await client.reach(url)
        service = NatsService(store, client, Settings(deadline_ms=DEADLINE_MS))
        await service.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await stop.wait()
        await service.stop()
    await client.close()


async def launch(url: str, storage: str, *, stderr: int = 2) -> ForkedProcess:
    """Start such a process, without waiting for it to be ready."""
    return await ForkedProcess.start("tests.robustness.serving_process", url, storage, stderr=stderr)


async def ready(process: ForkedProcess) -> ForkedProcess:
    """The process, once it answers."""
    async with asyncio.timeout(START_SECONDS):
        said = await process.stdout.readline()
    assert said == b"ready\n", f"the service did not start: it ended with {await process.wait()}"
    return process


async def kill(process: ForkedProcess) -> None:
    """End a process as nobody would want it, whatever it is doing; one that has ended is left alone."""
    process.kill()
    await process.wait()


@contextlib.asynccontextmanager
async def service_process(url: str, storage: str) -> AsyncIterator[ForkedProcess]:
    """A service in a process of its own for the length of a block."""
    process = await launch(url, storage)
    try:
        yield await ready(process)
    finally:
        await kill(process)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # what is a defect should be found
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
