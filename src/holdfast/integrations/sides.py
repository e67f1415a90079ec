"""One implementation for callers with and without `await`.

Law: an integration is written once, with the asynchronous handles. Its coroutines run on the loop that serves
the store, whichever side calls and whichever thread: for a store of `holdfast.sync` that is the loop of a
thread of its own, for another one the loop of the program.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Unsupported
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import holdfast.sync

T = TypeVar("T")


class Sides:
    """A store of either kind.

    Args:
        store: The store, which is open.
        purpose: What needs it, for the message to a caller on the wrong side.
    """

    def __init__(self, store: Store | holdfast.sync.Store, purpose: str) -> None:
        self._purpose = purpose
        self._thread = None if isinstance(store, Store) else store._thread
        self.store: Store = store if isinstance(store, Store) else store._handle
        self._loop = _running()

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
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a caller with `await`."""
        if self._thread is None:
            self._loop = _running()
            return await work
        return await asyncio.to_thread(self._thread.run, work)


def _running() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs this code, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
