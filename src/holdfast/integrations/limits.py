"""Storages of the package limits: rate limits that all processes share, with and without `await`.

A hit is checked and counted in one step, so that callers that race for the last hit of a window never both
get it. Windows begin and end by the machine's clock, as in the other storages of limits.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from msgspec import Meta

from holdfast import seams
from holdfast.errors import HoldfastError
from holdfast.extras import imported
from holdfast.integrations.entries import checked, compare_and_set, delete_all, whole_seconds
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.stores import LazyKV, LazySyncKV

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import holdfast.sync.kv
    from holdfast.handles.kv import KV

_COUNTS: Final = KeyNames("count", parts=1)
_HITS: Final = KeyNames("hits", parts=1)


P = ParamSpec("P")
T = TypeVar("T")


_Count: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


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
        return 0 if entry is None else _count(entry.value)

    async def get_expiry(self, key: str) -> float:
        """Return the time at which the window ends, in seconds since 1970; now, if there is none."""
        entry = await self._kv.get(_COUNTS.key(key))
        return seams.wall() if entry is None or entry.expires_at is None else entry.expires_at.timestamp()

    async def check(self) -> bool:
        """Return True if the store answers."""
        try:
            await self._kv.exists(_COUNTS.key("check"))
        except HoldfastError:
            return False
        return True

    async def reset(self) -> int:
        """Forget everything, and return the number of keys that there were."""
        return await delete_all(self._kv, _COUNTS.prefix()) + await delete_all(self._kv, _HITS.prefix())

    async def clear(self, key: str) -> None:
        """Forget the hits of a key."""
        await self._kv.delete_many([_COUNTS.key(key), _HITS.key(key)])

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a moving window, if it has so many left."""
        if amount > limit:
            return False

        def taken(hits: list[list[float]]) -> list[list[float]]:
            now = seams.wall()
            recent = _recent(hits, now - expiry)
            if _total(recent) + amount > limit:
                raise _Full
            return [*recent, [now, amount]]

        return await self._changed(_HITS.key(key), taken, [], expiry)

    async def get_moving_window(self, key: str, expiry: int) -> tuple[float, int]:
        """Return the time of the oldest hit in the window, and the number of hits in it."""
        now = seams.wall()
        entry = await self._kv.get(_HITS.key(key))
        recent = _recent([] if entry is None else entry.value, now - expiry)
        return (recent[0][0] if recent else now), _total(recent)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a sliding window, if the weighted count of it and the one before allows it."""
        if amount > limit:
            return False
        now = seams.wall()
        previous, current = _sliding(key, expiry, now)
        weighted = await self.get(previous) * _left_of_previous(now, expiry) / expiry

        def taken(count: int) -> int:
            if floor(weighted + _count(count)) + amount > limit:
                raise _Full
            return count + amount

        return await self._changed(_COUNTS.key(current), taken, 0, 2 * expiry)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return count and remaining seconds of the window before, then of the current one."""
        now = seams.wall()
        previous_key, current_key = _sliding(key, expiry, now)
        previous, current = await self.get(previous_key), await self.get(current_key)
        left = _left_of_previous(now, expiry) if previous else 0.0
        return previous, left, current, (1 - now / expiry % 1) * expiry + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget the hits of the window before and of the current one."""
        for window in _sliding(key, expiry, seams.wall()):
            await self.clear(window)

    async def _changed(self, key: str, change: Any, default: Any, lifetime: float) -> bool:
        """Change an entry by compare and set, unless the window is full."""
        try:
            await compare_and_set(self._kv, key, change, default=default, ttl=whole_seconds(lifetime))
        except _Full:
            return False
        return True


class _Full(Exception):
    """The window has no hit left."""


def _sliding(key: str, expiry: float, at: float) -> tuple[str, str]:
    """Return the keys of the window before and of the current one."""
    return f"{key}/{int((at - expiry) / expiry)}", f"{key}/{int(at / expiry)}"


def _count(value: Any) -> int:
    """Return a number of hits, which another program may have written."""
    return int(checked(value, _Count, "a number of hits"))


def _recent(hits: list[list[float]], since: float) -> list[list[float]]:
    """Return the hits that count, each as a time and how many were taken at that time."""
    checked(hits, list[tuple[float, _Count]], "a list of hits")
    return [hit for hit in hits if hit[0] >= since]


def _total(hits: list[list[float]]) -> int:
    return sum(int(amount) for _, amount in hits)


def _left_of_previous(now: float, expiry: float) -> float:
    """Return the seconds for which the window before still counts."""
    return (1 - (now - expiry) / expiry % 1) * expiry


with imported("limits", "holdfast.integrations.limits"):
    from limits import storage
    from limits.aio import storage as aio
    from limits.storage.base import TimestampedSlidingWindow


class HoldfastStorage(
    aio.Storage, aio.MovingWindowSupport, aio.SlidingWindowCounterSupport, TimestampedSlidingWindow
):
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

    STORAGE_SCHEME: list[str] | None = ["async+holdfast"]  # noqa: RUF012 - as declared by the class above

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
        self._lazy = LazyKV(kv, url, plugin)
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that `wrap_exceptions` is about."""
        return HoldfastError

    async def aclose(self) -> None:
        """Close the store, if this storage has opened it."""
        await self._lazy.aclose()

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Count hits, and return how many there are. The first one starts the window of `expiry` seconds."""
        return await (await self._windows()).incr(key, expiry, amount)

    async def get(self, key: str) -> int:
        """Return the number of hits that were counted."""
        return await (await self._windows()).get(key)

    async def get_expiry(self, key: str) -> float:
        """Return the time at which the window ends, in seconds since 1970; now, if there is none."""
        return await (await self._windows()).get_expiry(key)

    async def check(self) -> bool:
        """Return True if the storage answers."""
        try:
            return await (await self._windows()).check()
        except HoldfastError:
            return False

    async def reset(self) -> int:
        """Forget everything, and return the number of keys that there were."""
        return await (await self._windows()).reset()

    async def clear(self, key: str) -> None:
        """Forget the hits of a key."""
        await (await self._windows()).clear(key)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a moving window, if it has so many left."""
        return await (await self._windows()).acquire_entry(key, limit, expiry, amount)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return the time of the oldest hit in the window, and the number of hits in it."""
        return await (await self._windows()).get_moving_window(key, expiry)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a sliding window, if the weighted count of it and the one before allows it."""
        return await (await self._windows()).acquire_sliding_window_entry(key, limit, expiry, amount)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return count and remaining seconds of the window before, then of the current one."""
        return await (await self._windows()).get_sliding_window(key, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget the hits of the window before and of the current one."""
        await (await self._windows()).clear_sliding_window(key, expiry)

    async def _windows(self) -> Windows:
        return Windows(await self._lazy.kv())


class HoldfastSyncStorage(
    storage.Storage,
    storage.MovingWindowSupport,
    storage.SlidingWindowCounterSupport,
    TimestampedSlidingWindow,
):
    """A storage for the rate limiters of limits that are used without `await`, as in Flask.

    Give it a handle of a store that your program has opened with `holdfast.sync.open`, or the URL of one that
    it opens at its first use and closes with `close`. A server that forks workers uses the URL: each worker
    then opens a store of its own, provided that nothing was counted before the fork.

    Args:
        uri: `holdfast://`, which `limits.storage.storage_from_string` passes on.
        wrap_exceptions: Whether to raise errors of Holdfast as `limits.errors.StorageError`.
        kv: The handle, from `holdfast.sync.Store.kv`.
        url: The URL of a store, instead of a handle.
        plugin: The namespace to use in that store.

    Raises:
        ValidationError: Both a handle and a URL are given, or neither.

    Example:
        `MovingWindowRateLimiter(HoldfastSyncStorage(url="nats://127.0.0.1:4222"))`
    """

    STORAGE_SCHEME: list[str] | None = ["holdfast"]  # noqa: RUF012 - as declared by the class above

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        kv: holdfast.sync.kv.KV | None = None,
        url: str | None = None,
        plugin: str = "limits",
        **options: Any,
    ) -> None:
        self._lazy = LazySyncKV(kv, url, plugin)
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that `wrap_exceptions` is about."""
        return HoldfastError

    def close(self) -> None:
        """Close the store, if this storage has opened it."""
        self._lazy.close()

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Count hits, and return how many there are. The first one starts the window of `expiry` seconds."""
        return self._do(Windows.incr, key, expiry, amount)

    def get(self, key: str) -> int:
        """Return the number of hits that were counted."""
        return self._do(Windows.get, key)

    def get_expiry(self, key: str) -> float:
        """Return the time at which the window ends, in seconds since 1970; now, if there is none."""
        return self._do(Windows.get_expiry, key)

    def check(self) -> bool:
        """Return True if the storage answers."""
        try:
            return self._do(Windows.check)
        except HoldfastError:
            return False

    def reset(self) -> int:
        """Forget everything, and return the number of keys that there were."""
        return self._do(Windows.reset)

    def clear(self, key: str) -> None:
        """Forget the hits of a key."""
        self._do(Windows.clear, key)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a moving window, if it has so many left."""
        return self._do(Windows.acquire_entry, key, limit, expiry, amount)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return the time of the oldest hit in the window, and the number of hits in it."""
        return self._do(Windows.get_moving_window, key, expiry)

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take hits of a sliding window, if the weighted count of it and the one before allows it."""
        return self._do(Windows.acquire_sliding_window_entry, key, limit, expiry, amount)

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return count and remaining seconds of the window before, then of the current one."""
        return self._do(Windows.get_sliding_window, key, expiry)

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget the hits of the window before and of the current one."""
        self._do(Windows.clear_sliding_window, key, expiry)

    def _do(
        self,
        verb: Callable[Concatenate[Windows, P], Coroutine[Any, Any, T]],
        *given: P.args,
        **named: P.kwargs,
    ) -> T:
        return self._lazy.run(lambda kv: verb(Windows(kv), *given, **named))
