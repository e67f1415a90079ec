"""Noticing the expiry of entries with semantics within a second of their deadline.

The reaper sweeps everything, and a sweep or upkeep takes as long as there is work. So entries that must be
noticed in time have a look-out of their own, which runs beside it. It knows the deadlines of the coming
second, sleeps until the first of them and has those entries expire. A ttl is a second at the least, so an
entry that is written while it sleeps, here or by another process, falls due after the next look.

Law: as that of the reaper. The look-out only asks, and its own work is never added to its pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import Clock
    from holdfast.engine import Due, Engine

HORIZON: Final = 1.0
"""How many seconds of deadlines are known ahead, and so how long the look-out sleeps at the most."""
GATHERING: Final = 0.25
"""How many seconds lie between two looks at the least, so that entries which fall due one after the other go
together."""
BREATH: Final = 0.02
"""For how many seconds it sleeps at the least, also when a look took longer than it should have."""
MARGIN: Final = 2_000
"""How many milliseconds each look goes back beyond the one before: a commit may have taken that long. What is
older is left to the sweep; a look would have to walk over everything that waits for it."""
LOOK: Final = 250
"""How many entries are asked for at a time."""

_log = logging.getLogger("holdfast.reaper")


class Lookout:
    """Has entries with semantics expire in time.

    Args:
        engine: What to look through.
        expire: Has entries expire that are due; how many did.
        clock: The time to go by.
        steady: Says whether the time is known well enough to remove anything by it.
    """

    def __init__(
        self,
        engine: Engine,
        expire: Callable[[list[Due]], Awaitable[int]],
        clock: Clock,
        *,
        steady: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._expire = expire
        self._clock = clock
        self._steady = steady
        self._since = 0
        self._failing = False

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            began = time.monotonic()
            idle = self._engine.capabilities.owns_reaper or not self._steady()
            wait = HORIZON if idle else await self._try()
            pause = max(wait, GATHERING) - (time.monotonic() - began)
            await asyncio.sleep(max(pause, BREATH))

    async def look(self) -> float:
        """Have what is due expire; in how many seconds the next look is due, `HORIZON` at the most."""
        since = self._since
        while True:
            now = self._clock.now()
            found = await self._engine.falling_due(since, now + round(HORIZON * 1000), limit=LOOK)
            due = [entry for entry in found if entry.expires_at <= now]
            removed = await self._expire(due) if due else 0
            if len(due) < LOOK or not removed:  # if none could go, asking again at once won't help
                break
            since = due[-1].expires_at - 1
        self._since = max(self._since, now - MARGIN)
        return min((entry.expires_at - now for entry in found[len(due) :]), default=HORIZON * 1000) / 1000

    async def _try(self) -> float:
        try:
            wait = await self.look()
        except Exception as error:
            if not self._failing:  # the sweep tells of each failure; here it is told once
                _log.warning("detecting expired semantic entries failed; retrying: %s", error)
            self._failing = True
            return HORIZON
        self._failing = False
        return wait
