"""Bugs in the handles without `await`: threads, forks, iterators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite.reads import ThreadConnections
from holdfast.engines.sqlite.sharing import LockFile
from holdfast.rows import Row
from holdfast.sync import facade, thread
from holdfast.sync.thread import LoopThread, Process, Waiting
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from tests.mutate.planting import Patches


@bug("tests/sync/test_thread.py")
def an_interrupted_call_goes_on(patch: Patches) -> None:
    """A call whose caller was interrupted is cancelled."""
    patch.set(Waiting, "cancel", lambda waiting: None)


@bug("tests/sync/test_thread.py")
def a_fork_keeps_a_lock_that_another_thread_held(patch: Patches) -> None:
    """A child can open a store although a thread of its parent was about to."""

    def wrong(after_fork: Any, process: Process) -> None:
        starting = process.starting
        after_fork(process)
        process.starting = starting

    patch.wrap(Process, "after_fork", wrong)


@bug("tests/sync/test_thread.py")
def a_child_uses_the_thread_of_its_parent(patch: Patches) -> None:
    """The thread of a parent takes no calls in its child, where it does not run."""

    def wrong(after_fork: Any, process: Process) -> None:
        parent = process.thread
        after_fork(process)
        if parent is not None:
            parent.running = True

    patch.wrap(Process, "after_fork", wrong)


@bug("tests/sync/test_thread.py")
def a_fork_does_not_wait_for_the_loop(patch: Patches) -> None:
    """A process forks only while its loop stands still between two steps."""
    patch.set(LoopThread, "pause", lambda thread: thread._paused.update({0: SimpleNamespace(set=id)}))


@bug("tests/engines/test_sqlite_close.py")
def a_child_of_a_fork_releases_the_lock_of_its_parent(patch: Patches) -> None:
    """While a process has a store open, no other process gets it alone."""

    def wrong(close: Any, lock: LockFile) -> None:
        lock.release()
        close(lock)

    patch.wrap(LockFile, "close", wrong)


@bug("tests/sync/test_facade.py")
def an_iteration_that_is_closed_leaves_its_source_running(patch: Patches) -> None:
    """Closing an iterator stops what it follows."""

    async def wrong(source: Any) -> None:
        """Leave it running."""

    patch.set(facade, "_stop", wrong)


@bug("tests/sync/test_streams.py")
def an_iterator_that_fails_counts_as_one_that_has_ended(patch: Patches) -> None:
    """If an iterator of the caller fails, nothing is written, and the caller gets its error."""
    patch.set(thread, "_fail", lambda answer, error: thread._give(answer, thread.END))


@bug("tests/sync/test_sync.py")
def a_read_on_the_thread_of_its_caller_shows_what_has_expired(patch: Patches) -> None:
    """A get finds nothing at a key whose deadline has passed, on whatever thread it runs."""
    patch.within((SqliteEngine, "peek"), (Row, "alive"), lambda row, now: True)


@bug("tests/sync/test_sync.py")
def threads_share_a_connection(patch: Patches) -> None:
    """Every thread reads with a connection of its own."""

    def wrong(init: Any, connections: Any, *given: Any) -> None:
        init(connections, *given)
        connections._mine = SimpleNamespace()

    patch.wrap(ThreadConnections, "__init__", wrong)
