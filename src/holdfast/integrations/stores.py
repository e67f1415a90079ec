"""The store of an integration: of either kind, passed in or opened at the first use.

What was opened here is closed here, and a handle that a program passes in is left open.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import holdfast
import holdfast.sync.kv
from holdfast import seams
from holdfast.errors import Unsupported, ValidationError
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import holdfast.sync
    from holdfast.handles.kv import KV

T = TypeVar("T")


class LazyKV:
    """A handle, or the URL and plugin from which to make one at the first use.

    Raises:
        ValidationError: Both a handle and a URL are given, or neither, or a handle of `holdfast.sync`.
    """

    def __init__(self, kv: KV | None, url: str | None, plugin: str) -> None:
        _check_one(kv, url)
        if isinstance(kv, holdfast.sync.kv.KV):
            raise ValidationError(
                "this needs an asynchronous handle, from a store of holdfast.open", field="kv"
            )
        self._kv = kv
        self._url = url
        self._plugin = plugin
        self._store: Store | None = None
        self._one_at_a_time = asyncio.Lock()

    async def kv(self) -> KV:
        """Return the handle, after opening the store if there is none yet."""
        if self._kv is not None:
            return self._kv
        async with self._one_at_a_time:
            if self._kv is None:
                assert self._url is not None
                store = holdfast.open(self._url)
                await store.start()
                self._store, self._kv = store, store.kv(self._plugin)
        return self._kv

    async def aclose(self) -> None:
        """Close the store if it was opened here. The next use opens it again."""
        store, self._store = self._store, None
        if store is not None:
            self._kv = None
            await store.aclose()


class LazySyncKV:
    """A handle of `holdfast.sync`, or the URL and plugin from which to make one at the first use.

    Raises:
        ValidationError: Both a handle and a URL are given, or neither, or an asynchronous handle.
    """

    def __init__(self, kv: holdfast.sync.kv.KV | None, url: str | None, plugin: str) -> None:
        _check_one(kv, url)
        if not (kv is None or isinstance(kv, holdfast.sync.kv.KV)):
            raise ValidationError("this needs a handle from a store of holdfast.sync.open", field="kv")
        self._kv = kv
        self._url = url
        self._plugin = plugin
        self._store: holdfast.sync.Store | None = None
        self._one_at_a_time = seams.Lock()

    def run(self, work: Callable[[KV], Coroutine[Any, Any, T]]) -> T:
        """Do something with the asynchronous handle, after opening the store if there is none yet."""
        kv = self._kv or self._opened()
        return kv._thread.run(work(kv._handle))

    def close(self) -> None:
        """Close the store if it was opened here. The next use opens it again."""
        with self._one_at_a_time:
            store, self._store = self._store, None
            if store is not None:
                self._kv = None
                store.close()

    def _opened(self) -> holdfast.sync.kv.KV:
        with self._one_at_a_time:
            if self._kv is None:
                assert self._url is not None
                store = holdfast.sync.open(self._url)
                store.start()
                self._store, self._kv = store, store.kv(self._plugin)
            return self._kv


def _check_one(kv: object, url: str | None) -> None:
    if (kv is None) == (url is None):
        raise ValidationError("give either a handle or a url, not both and not neither", field="url")


class SyncBridge:
    """A store of either kind, for an integration that is written once, with the asynchronous handles.

    Its coroutines run on the loop that serves the store, whether or not the caller uses `await`, and in
    whichever thread. For a store of `holdfast.sync` that is the loop of a thread of its own, for another one
    the loop of the program.

    Args:
        store: The store, which is open.
        purpose: What needs it, for the message to a caller on the wrong side.
    """

    def __init__(self, store: Store | holdfast.sync.Store, purpose: str) -> None:
        self._purpose = purpose
        self._thread = None if isinstance(store, Store) else store._thread
        self.store: Store = store if isinstance(store, Store) else store._handle
        self._loop = _running()

    @property
    def asynchronous(self) -> bool:
        """True if the store is one of `holdfast.open`, which the loop of the program serves."""
        return self._thread is None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a caller without `await`.

        Such a caller is also a function that an asynchronous framework runs in a thread of its own.

        Raises:
            Unsupported: The store is an asynchronous one, and the caller would block its loop, or no loop
                serves it.
        """
        if self._thread is not None:
            return self._thread.run(work)
        if self._loop is None or not self._loop.is_running() or self._loop is _running():
            work.close()
            raise Unsupported(
                f"{self._purpose} with an asynchronous store has asynchronous methods only, except in other "
                "threads while its loop runs; open the store with holdfast.sync.open to call the others"
            )
        token = seams.WAITED_FOR.set(True)
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        finally:
            seams.WAITED_FOR.reset(token)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a caller with `await`. If that is cancelled, so is this, and it has ended then."""
        if self._thread is None:
            self._loop = _running()
            return await work
        return await self._thread.wait(work)


def _running() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs this code, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
