"""The thread whose event loop serves all stores that a process has opened without asyncio.

There is one thread for each process. It starts with the first store, ends with the process, and never
keeps the process from ending. A child of a fork has none of its parent's: its calls raise an error. While the
process forks, the thread stands still between two steps: a lock that it held, such as the one of a module
that it imports, would stay locked in the child for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor  # noqa: TID251 - asyncio takes no other class
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from holdfast import seams
from holdfast.errors import HoldfastError, Unavailable
from holdfast.store import Store

CLOSING: Final = 5.0
"""Seconds that the end of the process waits for stores that the program has not closed."""
PAUSING: Final = 1.0
"""Seconds that a fork waits for the current step of the loop, and that the loop waits for the fork."""
END: Final = object()

T = TypeVar("T")

_log = logging.getLogger("holdfast.sync")


class SyncIterator:
    """An asynchronous iterator over a plain one that a program without asyncio passes to a verb.

    The plain one is advanced on the thread that passed it, while that thread waits for the verb. So it may
    use the store itself, or anything else that belongs to its thread, and never holds up the event loop.

    Args:
        source: The plain iterator.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._answers: seams.SimpleQueue[asyncio.Future[Any] | None] = seams.SimpleQueue()

    def __aiter__(self) -> SyncIterator:
        return self

    async def __anext__(self) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self._answers.put(answer)
        element = await answer
        if element is END:
            raise StopAsyncIteration
        return element

    def serve(self) -> None:
        """Advance the iterator whenever the verb asks for it, until the verb has ended."""
        while (answer := self._answers.get()) is not None:
            try:
                step = partial(_give, answer, next(self._source, END))
            except Exception as error:
                step = partial(_fail, answer, error)
            with suppress(RuntimeError):  # the loop was closed in the meantime, which has ended the verb
                answer.get_loop().call_soon_threadsafe(step)

    def end(self) -> None:
        """Let `serve` return, because the verb has ended."""
        self._answers.put(None)


def _give(answer: asyncio.Future[Any], element: Any) -> None:
    if not answer.done():
        answer.set_result(element)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


class Waiting:
    """A call that waits for the loop. When it has its outcome, `done` is released and `tell` is called."""

    __slots__ = ("_coroutine", "_loop", "_tell", "done", "error", "result", "task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        tell: Callable[[], None] | None,
    ) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._tell = tell
        self.done: seams.Lock = seams.Lock()
        self.done.acquire()
        self.task: asyncio.Task[Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the call. Runs on the loop."""
        self.task = self._loop.create_task(self._coroutine)
        self.task.add_done_callback(self._finish)

    def outcome(self) -> Any:
        """Return the result of a call that has ended, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.result

    def cancel(self) -> None:
        """Cancel the call, because its caller has gone. Runs on the loop."""
        if self.task is not None:
            self.task.cancel()

    def _finish(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.error = Unavailable("the call was cancelled, because its event loop is closing")
        else:
            self.error = task.exception()
            if self.error is None:
                self.result = task.result()
        self.done.release()
        if self._tell is not None:
            self._tell()


class LoopThread:
    """A thread with an event loop, and the stores that are open on it."""

    def __init__(self) -> None:
        self.running: bool = True
        """False once the loop has stopped, and in a child of the process that started it."""
        self.stores: set[Store] = set()
        self._paused: dict[int, threading.Event] = {}
        """What lets the loop go on, by the thread that forks."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonThreads())
        self._thread = seams.Thread(target=self._serve, name="holdfast sync", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], feed: SyncIterator | None = None) -> T:
        """Run a coroutine on the loop and wait for its result.

        An exception in the waiting thread, such as a KeyboardInterrupt, cancels the coroutine.

        Args:
            coroutine: The coroutine.
            feed: An iterator that the coroutine reads, which is advanced here while it runs.

        Raises:
            RuntimeError: This is the loop's own thread, or a child of the process that opened the store.
        """
        waiting = self._started(coroutine, None if feed is None else feed.end)
        try:
            if feed is not None:
                feed.serve()
            waiting.done.acquire()
        except BaseException:
            with suppress(RuntimeError):  # the loop was closed, which has cancelled the call
                self._loop.call_soon_threadsafe(waiting.cancel)
            raise
        result: T = waiting.outcome()
        return result

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop for a task of another loop.

        If that task is cancelled, so is the coroutine, and it has ended before the task goes on. No thread waits
        meanwhile: a loop has few, and tasks that wait for a lock would leave none to its holder.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop of the task was closed
                loop.call_soon_threadsafe(_give, ended, None)

        waiting = self._started(coroutine, tell)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the loop was closed, which has cancelled the call
                self._loop.call_soon_threadsafe(waiting.cancel)
            while not ended.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(ended)
            raise
        result: T = waiting.outcome()
        return result

    def _started(self, coroutine: Coroutine[Any, Any, T], tell: Callable[[], None] | None) -> Waiting:
        if not self.running or threading.get_ident() == self._thread.ident:
            coroutine.close()
            raise self._refusal()
        waiting = Waiting(self._loop, coroutine, tell)
        self._loop.call_soon_threadsafe(waiting.start)
        return waiting

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop and wait for its result."""
        return self.run(_called(function))

    def pause(self) -> None:
        """Have the loop stand still between two steps until `go_on`, because this thread is about to fork."""
        me = threading.get_ident()
        if not self.running or me == self._thread.ident:
            return
        stands, goes_on = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            goes_on.wait(PAUSING)

        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(stand)
            self._paused[me] = goes_on
            stands.wait(PAUSING)

    def go_on(self) -> None:
        """Let the loop go on after a fork of this thread."""
        goes_on = self._paused.pop(threading.get_ident(), None)
        if goes_on is not None:
            goes_on.set()

    def close(self) -> None:
        """Close the stores that are still open and stop, for the end of the process."""
        if not self.running:
            return
        with suppress(HoldfastError, RuntimeError):
            self.run(self._close_stores())
        self.running = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSING)

    def _refusal(self) -> RuntimeError:
        if self.running:
            return RuntimeError(
                "a callback called the store that called it: holdfast.sync can't be used on its own thread; "
                "let the callback note what to do, and do it outside"
            )
        return RuntimeError(
            "this store was opened in another process or after the end of this one: after a fork, call "
            "holdfast.sync.open in the child"
        )

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _close_stores(self) -> None:
        stores = [asyncio.ensure_future(_closed(store)) for store in self.stores]
        self.stores.clear()
        if stores:
            _, late = await asyncio.wait(stores, timeout=CLOSING)
            for _ in late:
                _log.warning("a store was not closed within %g s", CLOSING)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CLOSING)
        await self._loop.shutdown_asyncgens()


class DaemonThreads(ThreadPoolExecutor):
    """A thread for each call. Unlike the standard library's, these also serve at the end of a process."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function in a new thread."""
        return seams.in_new_thread(partial(fn, *args, **kwargs))


async def _called(function: Callable[[], T]) -> T:
    return function()


async def _closed(store: Store) -> None:
    try:
        await store.aclose()
    except Exception as error:
        _log.warning("closing a store failed: %s", error)


class Process:
    """The thread of this process, if it has one."""

    def __init__(self) -> None:
        self.thread: LoopThread | None = None
        self.starting: seams.Lock = seams.Lock()
        self.parents: list[LoopThread] = []
        """The threads of parent processes, kept so that no connection of theirs is closed here."""

    def before_fork(self) -> None:
        """Have the thread stand still, so that it holds no lock that the child may need."""
        if self.thread is not None:
            self.thread.pause()

    def after_fork_in_parent(self) -> None:
        """Let the thread go on."""
        if self.thread is not None:
            self.thread.go_on()

    def after_fork(self) -> None:
        """Forget the parent's thread, which does not run here."""
        self.starting = seams.Lock()
        if self.thread is not None:
            self.thread.running = False
            self.parents.append(self.thread)
            self.thread = None

    def at_exit(self) -> None:
        """Close what the program has not closed."""
        if self.thread is not None:
            self.thread.close()


_process: Final = Process()
atexit.register(_process.at_exit)
os.register_at_fork(
    before=_process.before_fork,
    after_in_parent=_process.after_fork_in_parent,
    after_in_child=_process.after_fork,
)


def current() -> LoopThread:
    """Return the thread of this process, which the first call starts."""
    with _process.starting:
        if _process.thread is None:
            _process.thread = LoopThread()
        return _process.thread
