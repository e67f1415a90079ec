"""Expiry of entries with semantics within a second of their deadline.

The reaper sweeps everything, and a sweep or upkeep takes as long as there is work. So entries whose expiry
must be noticed in time have a watcher of their own, which runs beside it. It reads the deadlines of the
coming second, sleeps until the first of them and expires those entries. A ttl is at least one second. So an
entry that any process writes while the watcher sleeps falls due after the next look. The duration of its
work is never added to its pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast import seams
from holdfast.clock import Clock
from holdfast.engine import Due, Engine, does_upkeep
from holdfast.errors import Defect, Refused

HORIZON: Final = 1.0
"""Seconds of deadlines that are read ahead, and so the longest pause."""
GATHERING: Final = 0.25
"""Shortest time between two looks, in seconds, so that entries falling due in succession expire together."""
BREATH: Final = 0.02
"""Shortest pause in seconds, even if a look took longer than it should."""
MARGIN: Final = 2_000
"""Milliseconds by which each look overlaps the one before, because a commit may have taken that long.

Older entries are left to the sweep. Otherwise a look would have to walk over everything that awaits the
sweep.
"""
LOOK: Final = 250
"""Number of entries read at a time."""

_log = logging.getLogger("holdfast.reaper")


class DeadlineWatcher:
    """Expires entries with semantics in time.

    Args:
        engine: The engine to search.
        expire: Expires due entries. Returns the number expired.
        clock: The store's clock.
        steady: Returns True if the time is known well enough to remove entries by it.
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
        """Expire due entries as they fall due, until cancelled."""
        while True:
            began = seams.monotonic()
            idle = not does_upkeep(self._engine) or not self._steady()
            wait = HORIZON if idle else await self._try()
            pause = max(wait, GATHERING) - (seams.monotonic() - began)
            await asyncio.sleep(max(pause, BREATH))

    async def look(self) -> float:
        """Expire due entries. Returns the seconds until the next look is due, at most `HORIZON`."""
        since = self._since
        while True:
            now = self._clock.now()
            entries = await self._engine.falling_due(since, now + round(HORIZON * 1000), limit=LOOK)
            due = [entry for entry in entries if entry.expires_at <= now]
            try:
                removed = await self._expire(due) if due else 0
            except (Refused, Defect):
                if len(due) == LOOK:  # so many of a namespace that can't expire would hide all that follow
                    self._since = due[-1].expires_at
                raise
            if len(due) < LOOK or not removed:  # if none could be removed, an immediate retry won't help
                break
            since = due[-1].expires_at - 1
        self._since = max(self._since, now - MARGIN)
        return min((entry.expires_at - now for entry in entries[len(due) :]), default=HORIZON * 1000) / 1000

    async def _try(self) -> float:
        try:
            wait = await self.look()
        except Exception as error:
            if not self._failing:  # the sweep logs every failure; this logs the first
                _log.warning("detecting expired semantic entries failed; retrying: %s", error)
            self._failing = True
            return HORIZON
        self._failing = False
        return wait
