"""The one thread that writes to a SQLite file, and checkpoints it.

Law: the loop thinks, this thread writes. A job is a list of finished statements; nothing here knows what they
mean, and Python code between them is kept to a minimum, since it would fight the loop for the interpreter.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engines.sqlite.sql import Statement

T = TypeVar("T")

CHECKPOINT_PAGES: Final = 8192
"""How many pages the write-ahead log may hold by our estimate before it is checkpointed between two commits.
The estimate is on the safe side: entries that share pages come to about half of it, 16 MB."""
IDLE_SECONDS: Final = 0.25
"""After how long without work the log is checkpointed whatever it holds."""


class Stale(Exception):
    """What was decided does not hold any more: somebody else has written since, or a deadline has passed."""


class Writer:
    """Runs jobs on a thread of its own, one after the other.

    Args:
        where: The file, for messages.
        cover: Says whether the log may hold that many bytes. If not, it is checkpointed at once.
    """

    def __init__(self, where: str, cover: Callable[[int], bool]) -> None:
        self._where = where
        self._cover = cover
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="holdfast writer", daemon=True)
        self._connection: sqlite3.Connection | None = None
        self._data_version = -1
        self._log_pages = 0
        self._checkpointed = True

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """Have a job done on the thread. Cancelling the wait does not stop the job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                tell = partial(_succeed, future, job())
            except BaseException as error:
                tell = partial(_fail, future, error)
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self._jobs.put(work)
        return await future

    def use(self, connection: sqlite3.Connection) -> None:
        """Write through this connection from now on."""
        self._connection = connection
        self._data_version = _data_version(connection)

    def commit(self, plan: Sequence[Statement], pages: int, late: Callable[[], bool] | None = None) -> None:
        """Do all of a plan or nothing, which adds some pages to the log. On the writer's thread only.

        `late` is asked when the file is ours to write to, which may take a while, and again right before the
        commit.

        Raises:
            Stale: Another connection has written since the last look, so that the plan may be wrong, or it is
                too late.
        """
        try:
            self._attempt(plan, late)
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_FULL:
                raise translated(error, self._where) from error
            # What the log holds goes to the database, and the log is used again from its beginning.
            self.checkpoint("RESTART")
            try:
                self._attempt(plan, late)
            except sqlite3.Error as again:
                raise translated(again, self._where) from again
        self._log_pages += pages
        self._checkpointed = False

    def note(self, sql: str, parameters: Sequence[object]) -> None:
        """Write something that need not survive the machine, so that no disk is waited for.

        It survives the process. On the writer's thread only.
        """
        assert self._connection is not None
        try:
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                self._connection.execute(sql, parameters)
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise translated(error, self._where) from error
        self._log_pages += 1  # and no checkpoint when idle, which would wait for the disk twice

    def make_sure(self) -> None:
        """See that nobody else has written, without writing. On the writer's thread only.

        Raises:
            Stale: Somebody has.
        """
        assert self._connection is not None
        try:
            self._look_for_others(self._connection)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def checkpoint(self, mode: str) -> None:
        """Move the log into the database as far as readers let it."""
        assert self._connection is not None
        try:
            _, pages, moved = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error:
            return  # the disk is full or a reader is in the way: the next commit tries again
        self._log_pages = pages - moved

    def stop(self) -> None:
        """Finish what was handed in, checkpoint, close, and end the thread. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _attempt(self, plan: Sequence[Statement], late: Callable[[], bool] | None) -> None:
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._look_for_others(connection)
            if late is not None and late():
                raise Stale
            for sql, parameters in plan:
                connection.execute(sql, parameters)
            if late is not None and late():
                raise Stale
        except BaseException:
            self._roll_back()
            raise
        self._finish()

    def _look_for_others(self, connection: sqlite3.Connection) -> None:
        data_version = _data_version(connection)
        if data_version != self._data_version:
            self._data_version = data_version
            raise Stale

    def _finish(self) -> None:
        assert self._connection is not None
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise  # SQLite says of these two that nothing was kept
            raise OutcomeUnknown(f"the commit to {self._where} failed half way") from error

    def _roll_back(self) -> None:
        assert self._connection is not None
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()
            if self._log_pages and not self._fits():
                self.checkpoint("PASSIVE")
        if self._connection is not None:
            self.checkpoint("TRUNCATE")
            self._connection.close()

    def _fits(self) -> bool:
        return self._log_pages <= CHECKPOINT_PAGES and self._cover(self._log_pages * 4096)

    def _next(self) -> Callable[[], None] | None:
        if not self._checkpointed:
            try:
                return self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self.checkpoint("PASSIVE")
                self._checkpointed = True
        return self._jobs.get()


def _data_version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
