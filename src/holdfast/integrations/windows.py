"""Windows of rate limits as entries of a namespace: fixed, moving and sliding.

Law: a hit is checked and counted in one step, so that callers that race for the last hit of a window never
both get it. Windows begin and end by the machine's clock, as in the other storages of limits. Nothing here
imports that package, whose two interfaces both use these windows.
"""

from __future__ import annotations

import time
from math import floor
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError
from holdfast.integrations.lifetimes import whole_seconds
from holdfast.integrations.many import emptied
from holdfast.integrations.names import Names
from holdfast.integrations.swapping import swapped

if TYPE_CHECKING:
    from holdfast.handles.kv import KV

_COUNTS: Final = Names("count", parts=1)
_HITS: Final = Names("hits", parts=1)


class Windows:
    """The windows in a namespace, each method as the storages of limits define it."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Count hits, and return how many there are. The first one starts the window of `expiry` seconds."""
        entry = await self._kv.incr(_COUNTS.key(key), amount, ttl=whole_seconds(expiry))
        return int(entry.value)

    async def get(self, key: str) -> int:
        """Return the number of hits that were counted."""
        entry = await self._kv.get(_COUNTS.key(key))
        return 0 if entry is None else int(entry.value)

    async def get_expiry(self, key: str) -> float:
        """Return the time at which the window ends, in seconds since 1970; now, if there is none."""
        entry = await self._kv.get(_COUNTS.key(key))
        return time.time() if entry is None or entry.expires_at is None else entry.expires_at.timestamp()

    async def check(self) -> bool:
        """Return True if the store answers."""
        try:
            await self._kv.exists(_COUNTS.key("check"))
        except HoldfastError:
            return False
        return True

    async def reset(self) -> int:
        """Forget everything, and return the number of keys that there were."""
        return await emptied(self._kv, _COUNTS.prefix()) + await emptied(self._kv, _HITS.prefix())

    async def clear(self, key: str) -> None:
        """Forget the hits of a key."""
        await self._kv.delete_many([_COUNTS.key(key), _HITS.key(key)])

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a moving window, if it has so many left."""
        if amount > limit:
            return False

        def taken(hits: list[list[float]]) -> list[list[float]]:
            now = time.time()
            recent = _recent(hits, now - expiry)
            if _total(recent) + amount > limit:
                raise _Full
            return [*recent, [now, amount]]

        return await self._changed(_HITS.key(key), taken, [], expiry)

    async def get_moving_window(self, key: str, expiry: int) -> tuple[float, int]:
        """Return the time of the oldest hit in the window, and the number of hits in it."""
        now = time.time()
        entry = await self._kv.get(_HITS.key(key))
        recent = _recent([] if entry is None else entry.value, now - expiry)
        return (recent[0][0] if recent else now), _total(recent)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a sliding window, if the weighted count of it and the one before allows it."""
        if amount > limit:
            return False
        now = time.time()
        previous, current = _sliding(key, expiry, now)
        weighted = await self.get(previous) * _left_of_previous(now, expiry) / expiry

        def taken(count: int) -> int:
            if floor(weighted + count) + amount > limit:
                raise _Full
            return count + amount

        return await self._changed(_COUNTS.key(current), taken, 0, 2 * expiry)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return count and remaining seconds of the window before, then of the current one."""
        now = time.time()
        previous_key, current_key = _sliding(key, expiry, now)
        previous, current = await self.get(previous_key), await self.get(current_key)
        left = _left_of_previous(now, expiry) if previous else 0.0
        return previous, left, current, (1 - now / expiry % 1) * expiry + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget the hits of the window before and of the current one."""
        for window in _sliding(key, expiry, time.time()):
            await self.clear(window)

    async def _changed(self, key: str, change: Any, default: Any, lifetime: float) -> bool:
        """Change an entry by compare and set, unless the window is full."""
        try:
            await swapped(self._kv, key, change, default=default, ttl=whole_seconds(lifetime))
        except _Full:
            return False
        return True


class _Full(Exception):
    """The window has no hit left."""


def _sliding(key: str, expiry: float, at: float) -> tuple[str, str]:
    """Return the keys of the window before and of the current one."""
    return f"{key}/{int((at - expiry) / expiry)}", f"{key}/{int(at / expiry)}"


def _recent(hits: list[list[float]], since: float) -> list[list[float]]:
    """Return the hits that count, each as a time and how many were taken at that time."""
    return [hit for hit in hits if hit[0] >= since]


def _total(hits: list[list[float]]) -> int:
    return sum(int(amount) for _, amount in hits)


def _left_of_previous(now: float, expiry: float) -> float:
    """Return the seconds for which the window before still counts."""
    return (1 - (now - expiry) / expiry % 1) * expiry
