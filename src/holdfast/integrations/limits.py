"""Storages of the package limits: rate limits that all processes share, with and without `await`.

Law: a storage adapts names and signatures. What a window is and how a hit is counted is
`holdfast.integrations.windows`, for both storages alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdfast.errors import HoldfastError
from holdfast.extras import imported
from holdfast.integrations.opening import Opening, SyncOpening
from holdfast.integrations.windows import Windows

with imported("limits", "holdfast.integrations.limits"):
    from limits import storage
    from limits.aio import storage as aio
    from limits.storage.base import TimestampedSlidingWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import holdfast.sync.kv
    from holdfast.handles.kv import KV

P = ParamSpec("P")
T = TypeVar("T")


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
        return Windows(await self._opening.kv())


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
        self._opening = SyncOpening(kv, url, plugin)
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors that `wrap_exceptions` is about."""
        return HoldfastError

    def close(self) -> None:
        """Close the store, if this storage has opened it."""
        self._opening.close()

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
        return self._opening.run(lambda kv: verb(Windows(kv), *given, **named))
