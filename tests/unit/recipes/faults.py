"""Storage that loses answers or can't be reached, and that counts what it is asked for.

A fault is named by what the caller sees and by whether the work was done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.engines.memory import MemoryEngine
from holdfast.errors import OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engine import JournalPage, JournalQuery, Scan, Scanned
    from holdfast.handles.kv import KV


class Faulty(MemoryEngine):
    """The reference engine with faults to come.

    Attributes:
        faults: One for each of the next writes: `lost` (done, but nobody hears of it), `vanished` (not done,
            and nobody hears of that), `away` (refused for now), `late` (done, but time has passed).
        always: The fault of every write after those.
        late: Lets that time pass.
        gate: Until it is set, writes wait.
        writes: How many commands it was asked to do.
        walks: How many listings it was asked for.
        looks: How often the journal was looked at.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.always = ""
        self.late: Callable[[], object] = lambda: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.writes = self.walks = self.looks = 0

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Do it, if the next fault lets it."""
        self.writes += len(commands)
        await self.gate.wait()
        fault = self.faults.pop(0) if self.faults else self.always
        if fault == "away":
            raise Unavailable("the storage is away")
        if fault != "vanished":
            outcome = await super().transact(commands, now)
        if fault == "late":
            self.late()
        elif fault:
            raise OutcomeUnknown("the answer was lost")
        return outcome

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Count, then do it."""
        self.walks += 1
        return await super().scan(query, now)

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Count, then do it."""
        self.looks += 1
        return await super().journal(query)


async def steps(number: int) -> None:
    """Let everybody else do so many steps."""
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - every single step is looked at
            await asyncio.sleep(0)


async def waiting(kv: KV, number: int) -> None:
    """Wait until so many wait for the lock `a`."""
    async with asyncio.timeout(60):
        while len((await kv.list("lock/a/waiting/")).keys) != number:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
