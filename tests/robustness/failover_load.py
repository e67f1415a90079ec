"""Callers that write through a service while its PostgreSQL fails over, and a ledger of what they were told.

Each caller has a key of its own that it increments, one call after the other. A call that may or may not
have happened is sent again under the same request id until it is answered. So each answer must be one more
than the one before: less means that an acknowledged write was lost, more that a request had two effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError, OutcomeUnknown, Transient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import holdfast

CALLERS: Final = 64
PLUGINS: Final = 8
RECOVERY: Final = 60.0
"""Seconds within which every caller must be answered again."""


class Ledger:
    """The last answer to each caller, the errors by code, and everything that must not happen.

    Its name begins the names of the plugins.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = [0] * CALLERS
        self.errors: Counter[str] = Counter()
        self.replayed = 0
        self.violations: list[str] = []
        self.last_answer = 0.0

    @property
    def total(self) -> int:
        """The number of acknowledged writes."""
        return sum(self.answered)

    def enter(self, caller: int, value: object, *, sent: int) -> None:
        """Note an answer to a call that was sent so often."""
        due = self.answered[caller] + 1
        if value != due:
            self.violations.append(
                f"caller {caller}: answered {value}, and {due} was due (sent {sent} times)"
            )
        self.answered[caller] = due
        self.replayed += sent > 1
        self.last_answer = time.monotonic()


class Load:
    """The callers at work on a store."""

    def __init__(self, store: holdfast.Store, ledger: Ledger) -> None:
        self._handles = [store.kv(f"{ledger.name}-{number}") for number in range(PLUGINS)]
        self.ledger = ledger
        self.stopping = False

    def handle(self, caller: int) -> holdfast.KV:
        """The namespace of a caller."""
        return self._handles[caller % PLUGINS]

    async def call(self, caller: int) -> None:
        """Call until told to stop; what was begun is finished."""
        count = 0
        while not self.stopping:
            count += 1
            await self._once(caller, f"{caller}-{count}")

    async def _once(self, caller: int, request_id: str) -> None:
        sent = 0
        while True:
            sent += 1
            try:
                entry = await self.handle(caller).incr(f"count:{caller}", request_id=request_id)
            except (Transient, OutcomeUnknown) as error:
                self.ledger.errors[error.code] += 1
                await asyncio.sleep(0.02)
            except HoldfastError as error:
                self.ledger.violations.append(f"caller {caller}: {error.code}: {error.message}")
                await asyncio.sleep(0.02)
            else:
                self.ledger.enter(caller, entry.value, sent=sent)
                return

    async def everyone_answered(self, within: float, *, times: int = 1) -> None:
        """Wait until each caller has had so many more answers."""
        before = list(self.ledger.answered)
        async with asyncio.timeout(within):
            while not self._each_beyond(before, times):  # noqa: ASYNC110 - many tasks count together
                await asyncio.sleep(0.005)

    def _each_beyond(self, before: list[int], times: int) -> bool:
        answered = self.ledger.answered
        return all(now >= then + times for now, then in zip(answered, before, strict=True))

    async def compare(self) -> None:
        """Compare what the store holds, and its journal, with the ledger."""
        for caller, answered in enumerate(self.ledger.answered):
            entry = await self.handle(caller).get(f"count:{caller}")
            found = 0 if entry is None else entry.value
            if found != answered:
                self.ledger.violations.append(f"caller {caller}: {answered} answered, {found} stored")
        for number, handle in enumerate(self._handles):
            written = sum(self.ledger.answered[number::PLUGINS])
            changes = [change.version async for change in _journal(handle)]
            if changes != list(range(1, written + 1)):
                self.ledger.violations.append(
                    f"plugin {number}: {written} answered, {len(changes)} in its journal"
                )


async def _journal(handle: holdfast.KV) -> AsyncIterator[holdfast.Change]:
    since = 0
    while True:
        page = await handle.changes(since, limit=10_000)
        for change in page.changes:
            yield change
        if not page.changes:
            return
        since = page.next


@contextlib.asynccontextmanager
async def under_load(store: holdfast.Store, ledger: Ledger) -> AsyncIterator[Load]:
    """The callers at work for the length of a block. At its end each has had its last answer."""
    load = Load(store, ledger)
    tasks = [asyncio.create_task(load.call(caller)) for caller in range(CALLERS)]
    try:
        yield load
        load.stopping = True
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
