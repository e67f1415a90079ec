"""The services that a round runs against, and what is done to them.

It ends, stops and continues only processes that it started, and leaves every fault mended: a round can
always go on after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tests.robustness.serving_process import kill, launch, ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from random import Random
    from typing import IO

    from holdfast.edges.nats.server import NatsServer
    from tests.forking import ForkedProcess

Fault: TypeAlias = Literal["kill", "pause", "nats"]
FAULTS: Final[tuple[Fault, ...]] = ("kill", "pause", "nats")


class Services:
    """One or more services on one storage, each a process of its own, and the NATS server between."""

    def __init__(
        self, server: NatsServer, storage: str, log: IO[bytes], *, pause: tuple[float, float]
    ) -> None:
        self._server = server
        self._storage = storage
        self._log = log
        self._pause = pause
        self._processes: list[ForkedProcess] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, server: NatsServer, storage: str, folder: Path, *, number: int, pause: tuple[float, float]
    ) -> AsyncIterator[Services]:
        """So many services for the length of a block.

        Args:
            server: The NATS server that they serve at.
            storage: The address of their store.
            folder: Where their log is kept.
            number: How many there are.
            pause: For how many seconds one is stopped, at the least and at the most.
        """
        with (folder / "services.log").open("ab") as log:
            services = cls(server, storage, log, pause=pause)
            try:
                for _ in range(number):
                    services._processes.append(await services._launch())
                yield services
            finally:
                await asyncio.gather(*map(kill, services._processes))

    async def strike(self, fault: Fault, chance: Random) -> None:
        """Do something bad, and mend it."""
        which = chance.randrange(len(self._processes))
        if fault == "kill":
            await kill(self._processes[which])
            self._processes[which] = await self._launch()
        elif fault == "pause":
            await self._stop_for_a_while(self._processes[which], chance.uniform(*self._pause))
        else:
            self._server.process.kill()
            await self._server.process.wait()
            await self._server.start()

    async def _launch(self) -> ForkedProcess:
        process = await launch(self._server.url, self._storage, stderr=self._log.fileno())
        try:
            return await ready(process)
        except BaseException:
            await kill(process)
            raise

    async def _stop_for_a_while(self, process: ForkedProcess, seconds: float) -> None:
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)
