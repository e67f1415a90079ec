"""A store that an integration opens by itself, for frameworks that make storage before they have a loop.

Law: what was opened here is closed here, and a handle that a program passes in is left open.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import holdfast
import holdfast.sync.kv
from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.handles.kv import KV
    from holdfast.store import Store

T = TypeVar("T")


class Opening:
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


class SyncOpening:
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
        self._one_at_a_time = threading.Lock()

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
