"""The single thread of a process that writes to a SQLite file and checkpoints it.

As long as this process writes alone, the event loop decides and this thread writes: a job is then a list of
finished statements, with a minimum of Python code between them, since that competes with the loop for the
interpreter. When other processes write as well, this thread decides too, within its transaction.

Every transaction and every checkpoint is done in this process's turn (`sharing.Turn`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast import seams
from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.engines.sqlite.log import PAGE, LogHeader, LogRoom, Span
from holdfast.engines.sqlite.sharing import Turn
from holdfast.engines.sqlite.sql import Statement
from holdfast.errors import Busy, OutcomeUnknown, Unavailable

T = TypeVar("T")

CHECKPOINT_PAGES: Final = 8192
"""The size of the log, in pages of 4 KiB, at which it is checkpointed between two commits, whoever has
written them. It is an estimate, and high: entries that share pages take about half of it, 16 MB."""
IDLE_SECONDS: Final = 0.25
"""The idle time after which the log is checkpointed, whatever its size."""
GIVES_WAY: Final = 2
"""How many times a long commit gives way to another one.

It takes 5 to 15 ms for a thousand rows, and a set of another plugin would wait for all of it. As long as less
than half of it is done, it is rolled back and begun again after the others. So a set waits for half of it at
the most, and at the worst it is done twice. If commits wait all the time, it is rolled back soon after it has
begun.
"""

PATIENCE: Final = 5.0
"""Seconds for which callers wait for this process's turn before they are refused."""
SNAPSHOT_ATTEMPTS: Final = 100
"""How many times a transaction is begun again at once if another process restarted the log meanwhile."""
WATCH_SECONDS: Final = 0.25
"""The interval at which the event loop checks whether the thread waits for its turn."""


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


class GivenUp(Exception):
    """The caller of a job was refused before the process had its turn. Nothing of the job was done."""


class PendingJob:
    """A job that waits for its turn, until it either begins or is given up.

    Whoever takes the only item of `_claims` decides which. That costs less than a lock for each job.
    """

    __slots__ = ("_claims", "_future", "begun", "rolled_back")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future
        self._claims = [True]
        self.begun = self.rolled_back = False

    def wait_again(self) -> None:
        """Let the job be given up again, since all of it was rolled back. Writer's thread only."""
        self.begun, self.rolled_back = False, True
        self._claims.append(True)

    def begin(self) -> None:
        """Begin the job, or go on with it. Writer's thread only.

        Raises:
            GivenUp: Its caller was refused meanwhile.
        """
        if not self.begun:
            if not self._claim():
                raise GivenUp
            self.begun = True

    def give_up(self, error: Busy) -> None:
        """Refuse the caller, unless the job has begun. Loop only."""
        if self._claim():
            _fail(self._future, error)

    def _claim(self) -> bool:
        try:
            return self._claims.pop()
        except IndexError:
            return False


class YieldBudget(msgspec.Struct):
    """How many times a commit still gives way to others."""

    left: int = GIVES_WAY


class Writer:
    """Runs jobs on its own thread, one after the other.

    Args:
        where: The file, for messages.
        cover: Returns whether the log may hold this many bytes. If not, it is checkpointed at once.
        turn: The turn of this process, or None if no other process can open the file.
        may_grow: Returns whether the file may take more of the disk.
    """

    def __init__(
        self, where: str, cover: Callable[[int], bool], turn: Turn | None, may_grow: Callable[[], bool]
    ) -> None:
        self._where = where
        self._may_grow = may_grow
        self._most_pages: int | None = None
        self._cover = cover
        self._turn = turn
        self._jobs: seams.SimpleQueue[Callable[[], bool] | None] = seams.SimpleQueue()
        self._thread = seams.Thread(target=self._work, name="holdfast writer", daemon=True)
        self._connection: sqlite3.Connection | None = None
        self.data_version = -1
        """The version of the file up to which the loop knows its content. It changes if another connection
        writes. Only the loop sets it, when it forgets what it knew."""
        self.header: LogHeader | None = None
        """The header of the log's index, once the file is open."""
        self.room: LogRoom | None = None
        """The room at the end of the log, if commits are synced."""
        self._before: bytes | None = None
        self._page = PAGE
        self._log_pages = 0
        self._checkpointed = True
        self._ending = False
        self._abandoned = False
        self.pending: dict[PendingJob, None] = {}
        """The jobs of callers who have not gone on. Whoever wrote learns of it before anything else runs."""
        self._current: PendingJob | None = None
        self._watching = False
        self._waited_since: float | None = None
        self._holder = ""
        self._last: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job on the thread. Cancelling the caller does not stop the job.

        Raises:
            Busy: Other processes did not let this one have its turn. Nothing was done.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        pending = PendingJob(future)

        def work() -> bool:
            if pending.rolled_back and future.done():
                return True  # the caller is gone, and what was decided may be old: others have written since
            self._current = pending
            tell: Callable[..., None]
            outcome: Any
            try:
                tell, outcome = _succeed, job()
            except WriteInterrupted:
                pending.wait_again()
                return False
            except GivenUp:
                return True
            except BaseException as error:
                tell, outcome = _fail, error
            finally:
                self._current = None
            try:
                loop.call_soon_threadsafe(tell, future, outcome)
            except RuntimeError:
                return True  # the loop is closed: the caller is gone
            return True

        self.pending[pending] = None
        if not self._watching and self._turn is not None:
            self._watching = True
            loop.call_later(WATCH_SECONDS, self._watch, loop, self._turn)
        self._jobs.put(work)
        try:
            return await future
        finally:
            del self.pending[pending]

    def _watch(self, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        """Refuse everybody who waits, if the process has been waiting for its turn for too long."""
        since = turn.waiting_since
        if since is not None and seams.monotonic() - since > PATIENCE:
            if self._waited_since != since:  # once for each wait: looking for the holder holds up all locks
                self._waited_since, self._holder = since, turn.holder()
            busy = Busy(
                f"{self._where} is being written to by {self._holder}, and this process has waited over "
                f"{PATIENCE:g} s for its turn: nothing was written",
                retry_after=1.0,
            )
            for pending in list(self.pending):
                pending.give_up(busy)
        if self.pending:
            loop.call_later(WATCH_SECONDS, self._watch, loop, turn)
        else:
            self._watching = False

    def use(self, connection: sqlite3.Connection) -> None:
        """Use this connection for all later writes."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._most_pages = connection, None
        self.data_version = _version_of(connection)
        [self._page] = connection.execute("PRAGMA page_size").fetchone()

    def restrict(self) -> None:
        """Let the file not grow while it may not: writes that fit into its free pages go on."""
        assert self._connection is not None
        if self._may_grow():
            self.let_grow()
        elif self._most_pages is None:
            [self._most_pages] = self._connection.execute("PRAGMA max_page_count").fetchone()
            self._connection.execute("PRAGMA max_page_count = 1").fetchone()  # SQLite makes it what there is

    def let_grow(self) -> bool:
        """Let the file grow again. Return whether it could not."""
        assert self._connection is not None
        if self._most_pages is None:
            return False
        self._connection.execute(f"PRAGMA max_page_count = {self._most_pages}").fetchone()
        self._most_pages = None
        return True

    def commit(
        self,
        plan: Sequence[Statement],
        pages: int,
        now: Callable[[], int],
        deadline: int | None,
        seen: int,
        *,
        yields: YieldBudget | None = None,
    ) -> Span | None:
        """Run a plan in one transaction, which adds about `pages` pages to the log. Writer's thread only.

        The deadline is compared with the time once the file is locked for writing, which may take a while,
        and again right before the commit. `seen` is the `data_version` from before the data was loaded. With
        `yields`, the commit gives way to other jobs.

        Returns:
            The header of the log's index from before and after, for `RowCache`.

        Raises:
            WriteInterrupted: Another job waits, and this one was rolled back.
            Stale: Another connection has written since, so that the plan may be wrong, or the deadline has
                passed.
        """
        try:
            span = self._attempt(plan, pages, now, deadline, seen, yields=yields)
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_FULL:
                raise translated(error, self._where) from error
            self._make_room()
            try:
                span = self._attempt(plan, pages, now, deadline, seen)
            except sqlite3.Error as again:
                raise translated(again, self._where) from again
        self._checkpointed = False
        return span

    def decide(
        self,
        work: Callable[[sqlite3.Connection], T],
        plan: Callable[[T], tuple[Sequence[Statement], int]],
        late: Callable[[T], bool],
    ) -> tuple[T, int, Span | None]:
        """Load, decide and save in one transaction, so that nothing changes in between. Writer's thread only.

        Args:
            work: Loads and decides, with the connection.
            plan: Returns the statements that save what was decided, and the pages that they add to the log.
            late: Returns whether the deadline of what was decided has passed.

        Returns:
            What was decided, the `data_version` that it was decided on, and what `commit` returns.

        Raises:
            Stale: The deadline has passed.
        """
        try:
            return self._decide(work, plan, late)
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_FULL:
                raise translated(error, self._where) from error
            self._make_room()
            try:
                return self._decide(work, plan, late)
            except sqlite3.Error as again:
                raise translated(again, self._where) from again

    def _decide(
        self,
        work: Callable[[sqlite3.Connection], T],
        plan: Callable[[T], tuple[Sequence[Statement], int]],
        late: Callable[[T], bool],
    ) -> tuple[T, int, Span | None]:
        connection = self._begin()
        try:
            found = _version_of(connection)
            decided = work(connection)
            statements, pages = plan(decided)
            if not statements:
                self._roll_back()
                return decided, found, None
            if late(decided):
                raise Stale(found)
            for sql, parameters in statements:
                connection.execute(sql, parameters)
            if late(decided):
                raise Stale(found)
        except BaseException:
            self._roll_back()
            raise
        span = self._finish(pages)
        self._checkpointed = False
        return decided, found, span

    def _make_room(self) -> None:
        """Move the log's content into the database, restart the log, and look whether there is room again."""
        self.checkpoint("RESTART")
        if self._most_pages is not None and self._may_grow():
            self.let_grow()

    def note(self, sql: str, parameters: Sequence[object]) -> Span | None:
        """Execute one statement in a transaction of its own; see `commit`. Writer's thread only."""
        try:
            connection = self._begin()
            try:
                connection.execute(sql, parameters)
            except BaseException:
                self._roll_back()
                raise
            span = self._finish(1)  # no checkpoint when idle, which would wait for the disk twice
        except sqlite3.Error as error:
            raise translated(error, self._where) from error
        return span

    def begin_load(self) -> None:
        """Begin a transaction of many jobs, which `end_load` or `give_up_load` ends. Writer's thread only."""
        self.restrict()
        try:
            self._begin()
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

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
        try:
            self._finish(CHECKPOINT_PAGES + 1)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error
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

    def current_version(self) -> int:
        """Return the version of the file, which other connections' commits change. Writer's thread only."""
        assert self._connection is not None
        try:
            return _version_of(self._connection)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def checkpoint(self, mode: str) -> None:
        """Move the log into the database, as far as readers allow. Writer's thread only."""
        assert self._connection is not None
        try:
            if self._turn is not None and not self._turn.attempt():
                return  # another process writes: it checkpoints later, or this one does after its next commit
            _, pages, moved = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            self._log_pages = max(0, pages - moved)
            if self._turn is not None:
                self._turn.checkpointed(self._log_pages)
        except (sqlite3.Error, OSError, Unavailable):
            # The disk is full or fails, a reader blocks it, or the file of the turn was replaced by a link:
            # the next commit retries.
            return
        finally:
            if self._turn is not None:
                self._turn.leave()

    def stop(self, last: Callable[[], None]) -> None:
        """Finish the queued jobs, run `last` on the thread, close the connection and stop. Blocks.

        If the process does not get its turn, the thread is left to itself, and what it still had to do is not
        done: its callers have been refused.
        """
        self._last = last
        self._jobs.put(None)
        while self._thread.is_alive():
            self._thread.join(WATCH_SECONDS)
            since = None if self._turn is None else self._turn.waiting_since
            if since is not None and seams.monotonic() - since > PATIENCE:
                self._abandoned = True
                return

    def _attempt(
        self,
        plan: Sequence[Statement],
        pages: int,
        now: Callable[[], int],
        deadline: int | None,
        seen: int,
        *,
        yields: YieldBudget | None = None,
    ) -> Span | None:
        connection = self._begin()
        try:
            self._look_for_others(connection, seen)
            if deadline is not None and now() > deadline:
                raise Stale(seen)
            for sql, parameters in plan if yields is None else self._giving_way(plan, yields):
                connection.execute(sql, parameters)
            if deadline is not None and now() > deadline:
                raise Stale(seen)
        except BaseException:
            self._roll_back()
            raise
        return self._finish(pages)

    def _giving_way(self, plan: Sequence[Statement], yields: YieldBudget) -> Iterator[Statement]:
        """Yield the statements of a plan. Within its first half it may give way."""
        for done, statement in enumerate(plan):
            if 0 < done < len(plan) / 2:
                self._give_way(yields)
            yield statement

    def _give_way(self, yields: YieldBudget) -> None:
        wanted = not self._jobs.empty() or (seams.BUGGIFY and seams.maybe("writer.gives_way"))
        if yields.left and wanted:
            yields.left -= 1
            raise WriteInterrupted

    def _look_for_others(self, connection: sqlite3.Connection, seen: int) -> None:
        found = _version_of(connection)
        if found != seen:
            raise Stale(found)

    def _begin(self) -> sqlite3.Connection:
        """Begin a transaction in this process's turn.

        Raises:
            GivenUp: The caller was refused meanwhile.
        """
        connection = self._connection
        assert connection is not None
        if self._turn is not None:
            self._turn.take()
        try:
            if self._current is not None:
                self._current.begin()
            for _ in range(SNAPSHOT_ATTEMPTS):
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    # The log was restarted in between; SQLite does not wait for anything then.
                    if error.sqlite_errorcode != sqlite3.SQLITE_BUSY_SNAPSHOT:
                        raise
                else:
                    break
            else:
                connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            if self._turn is not None:
                self._turn.leave()
            raise
        self._before = None if self.header is None else self.header.read()
        return connection

    def _finish(self, pages: int) -> Span | None:
        """Commit a transaction that adds about this many pages to the log, and end this process's turn.

        Returns:
            The header of the log's index from before and after, if it is known.
        """
        assert self._connection is not None
        if self.room is not None and self._before is not None:
            self.room.provide(self._before, pages)
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise  # for these two SQLite guarantees that nothing was written
            raise OutcomeUnknown(f"the commit to {self._where} failed half way") from error
        span = None
        if self.header is not None and self._before is not None:
            span = self._before, self.header.read()
        if self._turn is None:
            self._log_pages += pages
        else:
            self._turn.leave(pages=pages)
            self._log_pages = self._turn.log_pages
        return span

    def _roll_back(self) -> None:
        assert self._connection is not None
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        finally:
            if self._turn is not None:
                self._turn.leave()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if not job():  # a job that did this itself would stay until garbage is collected
                self._jobs.put(job)
            with contextlib.suppress(sqlite3.Error):  # the disk fails: the next job retries
                self._bound_log()
        try:
            if self._connection is not None and not self._abandoned:
                self._last()
        finally:
            if self._connection is not None:
                self._connection.close()
            if self.room is not None:
                self.room.close()
            if self._turn is not None:
                self._turn.close()

    def _bound_log(self) -> None:
        """Write back the log if it is long, or if the disk has no room for it."""
        size = self._log_pages * max(PAGE, self._page)
        full = size > CHECKPOINT_PAGES * PAGE or (size > 0 and not self._cover(size))
        if full or (size and self._most_pages is not None):
            self.restrict()
        if full:
            self.checkpoint("PASSIVE")
        elif size and (seams.BUGGIFY and seams.maybe("writer.checkpoints")):
            self.checkpoint("RESTART")

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
            except seams.Empty:
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
