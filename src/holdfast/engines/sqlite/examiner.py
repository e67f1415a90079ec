"""Long-running reads of a SQLite file in use: copying the whole file and checking its integrity.

They use their own connection, which is opened together with the others. If the file vanishes, this connection
still has it, while a new connection would open whatever is at the path by then.

Law: one long read runs at a time, on its own thread and in one read transaction. So no other work waits for
it, and it sees one snapshot. Closing the store stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.engine import Checkup
from holdfast.engines.sql.layout import namespace_of
from holdfast.engines.sqlite.copying import copied, new_file
from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.engines.sqlite.setup import connect
from holdfast.errors import Busy, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.model import Rescued

T = TypeVar("T")

STEPS: Final = 1_000
"""The number of steps of SQLite's virtual machine between two checks of the time limit."""
FINDINGS: Final = 20
"""The maximum number of reported findings."""


class Examiner:
    """Runs long reads of a file.

    Args:
        path: The database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast examiner")
        self._connection: sqlite3.Connection | None = None
        self._busy = False
        self._closing = False

    def open(self) -> None:
        """Open the file, together with the other connections."""
        self._connection = connect(self._path, patience=5)

    async def rescue(self, path: str) -> Rescued:
        """See `Rescuer.rescue`. The import is local because few processes ever need it."""
        target = new_file(path, self._path)
        return await self._run(lambda connection: copied(connection, target, self._go_on))

    async def examine(self, seconds: float | None) -> Checkup:
        """See `Examined.examine`: run SQLite's own check, the quick one if there is a time limit."""
        return await self._run(lambda connection: _examined(connection, seconds))

    def close(self) -> None:
        """Stop a running read and close the file. Blocks."""
        self._closing = True
        if self._connection is not None:
            self._connection.interrupt()
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self, look: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise Unavailable(f"{self._path} is not open")
        if self._busy:
            raise Busy(f"another copy or check of {self._path} is under way: wait until it ends")
        self._busy = True
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._look, connection, look)
        work.add_done_callback(self._idle)
        try:
            return await asyncio.shield(work)
        except sqlite3.Error as error:
            self._go_on()
            raise translated(error, str(self._path)) from error

    def _idle(self, done: asyncio.Future[T]) -> None:
        self._busy = False
        if not done.cancelled():
            done.exception()  # mark it as retrieved: the caller may be gone

    def _go_on(self) -> None:
        if self._closing:
            raise Unavailable(f"{self._path} was closed before its copy was complete")

    def _look(self, connection: sqlite3.Connection, look: Callable[[sqlite3.Connection], T]) -> T:
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the snapshot
            return look(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("PRAGMA shrink_memory")


def _examined(connection: sqlite3.Connection, seconds: float | None) -> Checkup:
    name, check = ("a quick look at pages", "quick_check") if seconds else ("all pages", "integrity_check")
    try:
        with _interrupted_after(connection, seconds):
            found = [str(row[0]) for row in connection.execute(f"PRAGMA {check}({FINDINGS})").fetchall()]
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_INTERRUPT:
            return Checkup(checked=name, complete=False)
        return Checkup(checked=name, troubles=["SQLite can't read a page that it needs"])
    troubles = [] if found == ["ok"] else found
    if seconds is None and not troubles:
        troubles = _strays(connection)
    return Checkup(checked=name, troubles=troubles)


def _strays(connection: sqlite3.Connection) -> list[str]:
    """Report namespaces that have rows but no row of their own. Walks over namespaces would miss them."""
    known = {name for (name,) in connection.execute("SELECT name FROM holdfast_namespaces").fetchall()}
    entries = connection.execute(
        "SELECT DISTINCT plugin_name FROM plugin_kv_storage WHERE version > 0"
    ).fetchall()
    others = connection.execute("SELECT DISTINCT namespace FROM holdfast_rows").fetchall()
    found = {namespace_of(name) for (name,) in entries} | {name for (name,) in others}
    return [f"{name} has rows, but none of its own" for name in sorted(found - known)[:FINDINGS]]


@contextlib.contextmanager
def _interrupted_after(connection: sqlite3.Connection, seconds: float | None) -> Iterator[None]:
    """Interrupt SQLite after this many seconds, whatever it is doing.

    Both a handler and a timer are needed. SQLite calls the handler between the steps of a statement, and the
    walk over the pages of a table is one step. That walk notices an interrupt, but an interrupt before the
    start of a statement is lost.
    """
    if seconds is None:
        yield
        return
    end = time.monotonic() + seconds
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        timer.cancel()
        timer.join()
