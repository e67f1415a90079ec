"""A storage of the package limits: fixed, moving and sliding windows that all processes share.

Law: a hit is checked and counted in one step, so that callers that race for the last hit of a window never
both get it. Windows begin and end by the machine's clock, as in the other storages of limits.
"""

from __future__ import annotations

import time
from math import floor
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError
from holdfast.extras import imported
from holdfast.integrations.lifetimes import whole_seconds
from holdfast.integrations.many import emptied
from holdfast.integrations.names import Names
from holdfast.integrations.opening import Opening
from holdfast.integrations.swapping import swapped

with imported("limits", "holdfast.integrations.limits"):
    from limits.aio.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage
    from limits.storage.base import TimestampedSlidingWindow

if TYPE_CHECKING:
    from holdfast.handles.kv import KV

_COUNTS: Final = Names("count", parts=1)
_HITS: Final = Names("hits", parts=1)


class HoldfastStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """A storage for the asynchronous rate limiters of limits.

    Give it a handle of a store that your program has opened, or the URL of one that it opens at its first use
    and closes with `aclose`.

    Args:
        uri: `async+holdfast://`, which `limits.storage.storage_from_string` passes on.
        wrap_exceptions: Whether to raise errors of Holdfast as `limits.errors.StorageError`.
        kv: The handle, from `Store.kv`.
        url: The URL of a store, instead of a handle.
        plugin: The namespace to use in that store.

    Raises:
        ValidationError: Both a handle and a URL are given, or neither.

    Example:
        `MovingWindowRateLimiter(HoldfastStorage(kv=store.kv("limits")))`
    """

    STORAGE_SCHEME = ["async+holdfast"]  # noqa: RUF012 - as declared by the class above

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        kv: KV | None = None,
        url: str | None = None,
        plugin: str = "limits",
        **options: Any,
    ) -> None:
        self._opening = Opening(kv, url, plugin)
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that `wrap_exceptions` is about."""
        return HoldfastError

    async def aclose(self) -> None:
        """Close the store, if this storage has opened it."""
        await self._opening.aclose()

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Count hits, and return how many there are. The first one starts the window of `expiry` seconds."""
        kv = await self._opening.kv()
        entry = await kv.incr(_COUNTS.key(key), amount, ttl=whole_seconds(expiry))
        return int(entry.value)

    async def get(self, key: str) -> int:
        """Return the number of hits that were counted."""
        entry = await (await self._opening.kv()).get(_COUNTS.key(key))
        return 0 if entry is None else int(entry.value)

    async def get_expiry(self, key: str) -> float:
        """Return the time at which the window ends, in seconds since 1970; now, if there is none."""
        entry = await (await self._opening.kv()).get(_COUNTS.key(key))
        return time.time() if entry is None or entry.expires_at is None else entry.expires_at.timestamp()

    async def check(self) -> bool:
        """Return True if the storage answers."""
        try:
            await (await self._opening.kv()).exists(_COUNTS.key("check"))
        except HoldfastError:
            return False
        return True

    async def reset(self) -> int:
        """Forget everything, and return the number of keys that there were."""
        kv = await self._opening.kv()
        return await emptied(kv, _COUNTS.prefix()) + await emptied(kv, _HITS.prefix())

    async def clear(self, key: str) -> None:
        """Forget the hits of a key."""
        await (await self._opening.kv()).delete_many([_COUNTS.key(key), _HITS.key(key)])

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

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return the time of the oldest hit in the window, and the number of hits in it."""
        now = time.time()
        entry = await (await self._opening.kv()).get(_HITS.key(key))
        recent = _recent([] if entry is None else entry.value, now - expiry)
        return (recent[0][0] if recent else now), _total(recent)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a sliding window, if the weighted count of it and the one before allows it."""
        if amount > limit:
            return False
        now = time.time()
        previous, current = self.sliding_window_keys(key, expiry, now)
        weighted = await self.get(previous) * _left_of_previous(now, expiry) / expiry

        def taken(count: int) -> int:
            if floor(weighted + count) + amount > limit:
                raise _Full
            return count + amount

        return await self._changed(_COUNTS.key(current), taken, 0, 2 * expiry)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return count and remaining seconds of the window before, then of the current one."""
        now = time.time()
        previous_key, current_key = self.sliding_window_keys(key, expiry, now)
        previous, current = await self.get(previous_key), await self.get(current_key)
        left = _left_of_previous(now, expiry) if previous else 0.0
        return previous, left, current, (1 - now / expiry % 1) * expiry + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget the hits of the window before and of the current one."""
        for window in self.sliding_window_keys(key, expiry, time.time()):
            await self.clear(window)

    async def _changed(self, key: str, change: Any, default: Any, lifetime: float) -> bool:
        """Change an entry by compare and set, unless the window is full."""
        kv = await self._opening.kv()
        try:
            await swapped(kv, key, change, default=default, ttl=whole_seconds(lifetime))
        except _Full:
            return False
        return True


class _Full(Exception):
    """The window has no hit left."""


def _recent(hits: list[list[float]], since: float) -> list[list[float]]:
    """Return the hits that count, each as a time and how many were taken at that time."""
    return [hit for hit in hits if hit[0] >= since]


def _total(hits: list[list[float]]) -> int:
    return sum(int(amount) for _, amount in hits)


def _left_of_previous(now: float, expiry: float) -> float:
    """Return the seconds for which the window before still counts."""
    return (1 - (now - expiry) / expiry % 1) * expiry
