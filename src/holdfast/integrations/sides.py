"""One implementation for callers with and without `await`.

Law: an integration is written once, with the asynchronous handles. Given a store of `holdfast.sync`, its
coroutines run on the thread that serves this store, whichever side calls.
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

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a caller without `await`.

        Raises:
            Unsupported: The store is an asynchronous one, whose loop the caller would block.
        """
        if self._thread is None:
            work.close()
            raise Unsupported(
                f"{self._purpose} with an asynchronous store has asynchronous methods only; "
                "open the store with holdfast.sync.open to call the others"
            )
        return self._thread.run(work)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a caller with `await`."""
        if self._thread is None:
            return await work
        return await asyncio.to_thread(self._thread.run, work)
