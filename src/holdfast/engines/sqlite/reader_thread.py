"""The thread of reads that may take long.

Law: it runs one read after the other. Unlike the executors of the standard library, it also serves while the
process is ending, so that what follows a store does not fail before the store is closed.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ReaderThread(Executor):
    """A thread that starts with its first read."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a read after those submitted before it. Call this from one thread only."""
        future: Future[T] = Future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast reader", daemon=True)
            self._thread.start()
        self._jobs.put(partial(_run, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish the reads that were submitted, and stop."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _run(future: Future[T], read: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except BaseException as error:
        future.set_exception(error)
