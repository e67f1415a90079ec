"""A clock that is read once per turn of the event loop.

Law: the first caller in a turn reads the store's clock; later callers in that turn get the same time. A
returned time is never in the future, and is stale by at most one turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Turn:
    """The store's time, read once per turn of the event loop.

    Args:
        now: Returns the store's time.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._look = now
        self._time = 0
        self._over = True

    def now(self) -> int:
        """Return the time of this turn."""
        if self._over:
            self._time = self._look()
            self._over = False
            asyncio.get_running_loop().call_soon(self._end)
        return self._time

    def _end(self) -> None:
        self._over = True
