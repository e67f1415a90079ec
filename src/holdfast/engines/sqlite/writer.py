"""The single thread that writes to a SQLite file and checkpoints it.

The event loop decides, this thread writes. A job is a list of finished statements. Python code between
statements is kept to a minimum, since it would compete with the loop for the interpreter.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.engines.sqlite.sql import Statement

T = TypeVar("T")

CHECKPOINT_PAGES: Final = 8192
"""The estimated number of pages in the write-ahead log at which it is checkpointed between two commits. The
estimate is high: entries that share pages take about half of it, 16 MB."""
IDLE_SECONDS: Final = 0.25
"""The idle time after which the log is checkpointed, whatever its size."""
GIVES_WAY: Final = 2
"""How many times a long commit gives way to another one.

It takes 5 to 15 ms for a thousand rows, and a set of another plugin would wait for all of it. As long as less
than half of it is done, it is rolled back and begun again after the others. So a set waits for half of it at
the most, and at the worst it is done twice. If commits wait all the time, it is rolled back soon after it has
begun.
"""


class Stale(Exception):
    """The decision is out of date: another connection has written since, or a deadline has passed.

    Args:
        found: The version of the file, as in `Writer.data_version`.
    """

    def __init__(self, found: int) -> None:
        super().__init__()
        self.found = found


class WriteInterrupted(Exception):
    """A long commit was rolled back because another job waits. It is to be run again after that one."""


class YieldBudget(msgspec.Struct):
    """How many times a commit still gives way to others."""

    left: int = GIVES_WAY


class Writer:
    """Runs jobs on its own thread, one after the other.

    Args:
        where: The file, for messages.
        cover: Returns whether the log may hold this many bytes. If not, it is checkpointed at once.
    """

    def __init__(self, where: str, cover: Callable[[int], bool]) -> None:
        self._where = where
        self._cover = cover
        self._jobs: queue.SimpleQueue[Callable[[], bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="holdfast writer", daemon=True)
        self._connection: sqlite3.Connection | None = None
        self.data_version = -1
        """The version of the file up to which the loop knows its content. It changes if another connection
        writes. Only the loop sets it, when it forgets what it knew."""
        self._log_pages = 0
        self._checkpointed = True
        self._ending = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job on the thread. Cancelling the caller does not stop the job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> bool:
            try:
                tell = partial(_succeed, future, job())
            except WriteInterrupted:
                return False
            except BaseException as error:
                tell = partial(_fail, future, error)
            with suppress(RuntimeError):  # the loop is closed: the caller is gone
                loop.call_soon_threadsafe(tell)
            return True

        self._jobs.put(work)
        return await future

    def use(self, connection: sqlite3.Connection) -> None:
        """Use this connection for all later writes."""
        self._connection = connection
        self.data_version = _version_of(connection)

    def commit(
        self,
        plan: Sequence[Statement],
        pages: int,
        now: Callable[[], int],
        deadline: int | None,
        seen: int,
        *,
        yields: YieldBudget | None = None,
    ) -> None:
        """Run a plan in one transaction, which adds about `pages` pages to the log. Writer's thread only.

        The deadline is compared with the time once the file is locked for writing, which may take a while,
        and again right before the commit. `seen` is the `data_version` from before the data was loaded. With
        `yields`, the commit gives way to other jobs.

        Raises:
            WriteInterrupted: Another job waits, and this one was rolled back.
            Stale: Another connection has written since, so that the plan may be wrong, or the deadline has
                passed.
        """
        try:
            self._attempt(plan, now, deadline, seen, yields)
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_FULL:
                raise translated(error, self._where) from error
            # Move the log's content into the database and restart the log from its beginning.
            self.checkpoint("RESTART")
            try:
                self._attempt(plan, now, deadline, seen)
            except sqlite3.Error as again:
                raise translated(again, self._where) from again
        self._log_pages += pages
        self._checkpointed = False

    def note(self, sql: str, parameters: Sequence[object]) -> None:
        """Execute one statement in a transaction of its own. Writer's thread only."""
        assert self._connection is not None
        try:
            self._connection.execute(sql, parameters)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error
        self._log_pages += 1  # no checkpoint when idle, which would wait for the disk twice

    def begin_load(self) -> None:
        """Begin a transaction of many jobs, which `end_load` or `give_up_load` ends. Writer's thread only."""
        self.load("BEGIN IMMEDIATE")

    def load(self, sql: str, rows: Iterable[Sequence[object]] = ((),)) -> None:
        """Run a statement of a load once per row. Writer's thread only."""
        assert self._connection is not None
        try:
            for parameters in rows:
                self._connection.execute(sql, parameters)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def fetch(self, sql: str) -> list[tuple[object, ...]]:
        """Return what a query finds, within a load too. Writer's thread only."""
        assert self._connection is not None
        try:
            return self._connection.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def end_load(self) -> None:
        """Commit a load. Writer's thread only."""
        self._finish()
        self._log_pages += CHECKPOINT_PAGES + 1
        self._checkpointed = False

    def give_up_load(self) -> None:
        """Roll a load back. Writer's thread only."""
        self._roll_back()

    def make_sure(self, seen: int) -> None:
        """Verify, without writing, that no other connection has written; see `commit`. Writer's thread only.

        Raises:
            Stale: Another connection has written.
        """
        assert self._connection is not None
        try:
            self._look_for_others(self._connection, seen)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def checkpoint(self, mode: str) -> None:
        """Move the log into the database, as far as readers allow."""
        assert self._connection is not None
        try:
            _, pages, moved = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error:
            return  # the disk is full or a reader blocks it: the next commit retries
        self._log_pages = pages - moved

    def stop(self) -> None:
        """Finish the queued jobs, checkpoint, close the connection and stop the thread. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _attempt(
        self,
        plan: Sequence[Statement],
        now: Callable[[], int],
        deadline: int | None,
        seen: int,
        yields: YieldBudget | None = None,
    ) -> None:
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._look_for_others(connection, seen)
            if deadline is not None and now() > deadline:
                raise Stale(seen)
            for done, (sql, parameters) in enumerate(plan):
                if yields is not None and 0 < done < len(plan) / 2:
                    self._give_way(yields)
                connection.execute(sql, parameters)
            if deadline is not None and now() > deadline:
                raise Stale(seen)
        except BaseException:
            self._roll_back()
            raise
        self._finish()

    def _give_way(self, yields: YieldBudget) -> None:
        if yields.left and not self._jobs.empty():
            yields.left -= 1
            raise WriteInterrupted

    def _look_for_others(self, connection: sqlite3.Connection, seen: int) -> None:
        found = _version_of(connection)
        if found != seen:
            raise Stale(found)

    def _finish(self) -> None:
        assert self._connection is not None
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise  # for these two SQLite guarantees that nothing was written
            raise OutcomeUnknown(f"the commit to {self._where} failed half way") from error

    def _roll_back(self) -> None:
        assert self._connection is not None
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if not job():  # a job that did this itself would stay until garbage is collected
                self._jobs.put(job)
            if self._log_pages and not self._fits():
                self.checkpoint("PASSIVE")
        if self._connection is not None:
            self.checkpoint("TRUNCATE")
            self._connection.close()

    def _fits(self) -> bool:
        return self._log_pages <= CHECKPOINT_PAGES and self._cover(self._log_pages * 4096)

    def _next(self) -> Callable[[], bool] | None:
        """Return the next job, which returns whether it is done, or None at the end."""
        if not self._ending:
            job = self._waited()
            if job is not None:
                return job
            self._ending = True
        while not self._jobs.empty():  # a commit may have given way to the end
            if (job := self._jobs.get()) is not None:
                return job
        return None

    def _waited(self) -> Callable[[], bool] | None:
        if not self._checkpointed:
            try:
                return self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self.checkpoint("PASSIVE")
                self._checkpointed = True
        return self._jobs.get()


def _version_of(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
