"""The time of a turn of the loop: what happens in one turn happens at one time.

Law: whoever looks first in a turn asks the store; the others are told the same. So a time is never later than
it is, and earlier by a turn at the most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Turn:
    """The store's time, looked at once in a turn.

    Args:
        now: Tells the store's time.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._look = now
        self._time = 0
        self._over = True

    def now(self) -> int:
        """The time of this turn."""
        if self._over:
            self._time = self._look()
            self._over = False
            asyncio.get_running_loop().call_soon(self._end)
        return self._time

    def _end(self) -> None:
        self._over = True
