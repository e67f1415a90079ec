"""Long-running reads of a SQLite file in use: copying the whole file and checking its integrity.

They use their own connection, which is opened together with the others. If the file vanishes, this connection
still has it, while a new connection would open whatever is at the path by then. One long read runs at a time,
on its own thread and in one read transaction. So no other work waits for it, and it sees one snapshot.
Closing the store stops it.

A copy never overwrites anything. The new file gets its name only when it is complete, checked and on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from holdfast import private, seams
from holdfast.engine import Checkup
from holdfast.engines.sql.layout import namespace_of
from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.engines.sqlite.setup import connect_for_later
from holdfast.errors import Busy, HoldfastError, StorageFull, Unavailable, ValidationError
from holdfast.model import Rescued

T = TypeVar("T")

COPY_PAGES: Final = 256
"""The number of pages to copy between two checks of whether to continue."""
MAX_PATH: Final = 4_096

_OWN: Final = ("", "-wal", "-shm", "-journal", ".lock", ".turn", ".upkeep", ".ballast", ".audit-key")
"""The suffixes of a store's own files."""

STEPS: Final = 1_000
"""The number of steps of SQLite's virtual machine between two checks of the time limit."""
FINDINGS: Final = 20
"""The maximum number of reported findings."""
_CODE: Final = re.compile(r"error code=(\d+)")
_UNREAD: Final = re.compile(r"failed to get page \d+")
"""How SQLite's own checks report a page that they could not get. For free pages and those of long values they
name no code; a page beyond the end of the file is an `invalid page number`."""


class Examiner:
    """Runs long reads of a file.

    Args:
        path: The database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = seams.pool("holdfast examiner")
        self._connection: sqlite3.Connection | None = None
        self._busy = False
        self._closing = False

    def open(self) -> None:
        """Open the file, together with the other connections."""
        self._connection = connect_for_later(self._path)

    async def rescue(self, path: str) -> Rescued:
        """See `LocalFile.rescue`."""
        target = _new_file(path, self._path)
        return await self._run(lambda connection: _copied(connection, target, self._go_on))

    async def examine(self, seconds: float | None) -> Checkup:
        """See `Movable.examine`: run SQLite's own check, the quick one if there is a time limit."""
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
            troubles = _checked(connection, f"{check}({FINDINGS})")
    except sqlite3.Error as error:
        if primary_code(error) == sqlite3.SQLITE_INTERRUPT:
            return Checkup(checked=name, complete=False)
        return Checkup(checked=name, troubles=[_unreadable(error)])
    if seconds is None and not troubles:
        troubles = _strays(connection)
    return Checkup(checked=name, troubles=troubles)


def _checked(connection: sqlite3.Connection, check: str) -> list[str]:
    """Run one of SQLite's own checks and return what it reports.

    Raises:
        sqlite3.Error: The disk failed. Whatever the check says of other pages then means nothing.
    """
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {check}").fetchall()]
    report = "\n".join(found)
    codes = [int(code) for code in _CODE.findall(report)]
    if _UNREAD.search(report):
        codes.append(sqlite3.SQLITE_IOERR_READ)
    for code in codes:
        if code & 0xFF == sqlite3.SQLITE_IOERR:
            error = sqlite3.OperationalError("a page could not be read")
            error.sqlite_errorcode, error.sqlite_errorname = code, "SQLITE_IOERR"
            raise error
    return [] if found == ["ok"] else found


def _unreadable(error: sqlite3.Error) -> str:
    """Describe damage that stopped a check.

    Raises:
        sqlite3.Error: It is no damage: the disk failed, and the file may be as it should be.
    """
    if primary_code(error) == sqlite3.SQLITE_IOERR:
        raise error
    return "SQLite can't read a page that it needs"


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
    end = seams.monotonic() + seconds
    timer = seams.Timer(seconds, connection.interrupt)
    timer.start()
    connection.set_progress_handler(lambda: seams.monotonic() > end, STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        timer.cancel()
        timer.join()


def _new_file(name: str, store: Path) -> Path:
    """Return the path for a copy of a store. A relative path is relative to the store's folder.

    Raises:
        ValidationError: The path can't be used.
    """
    if not 0 < len(name) <= MAX_PATH or not _is_name(name):
        raise ValidationError(
            f"path must be the name of a file, of 1 to {MAX_PATH:,} characters", field="path"
        )
    target = Path(os.path.normpath(store.absolute().parent / name))
    names = (str(store.absolute()), os.path.realpath(store))
    if not {name + suffix for name in names for suffix in _OWN}.isdisjoint(
        (str(target), os.path.realpath(target))
    ):
        raise ValidationError(
            f"{target} is the name of a file of the running store: copy to another name, stop the service, "
            "and then move the copy there",
            field="path",
        )
    _require_free(target)
    if not os.path.isdir(target.parent):
        raise ValidationError(f"the folder {target.parent} does not exist on this machine", field="path")
    return target


def _copied(source: sqlite3.Connection, target: Path, go_on: Callable[[], None]) -> Rescued:
    """Copy everything into a new file. `go_on` is called between steps and may raise to stop.

    Raises:
        ValidationError: The file can't be created, or exists by now.
        StorageFull: The disk has no room for it.
    """
    # A process that was killed in a copy may have had the id of this one: a container's is always the same.
    unfinished = target.with_name(f".{target.name}.{seams.token(4)}")
    with _our_errors(target):
        os.close(private.create(unfinished))
        try:
            found = _filled(source, unfinished, target, go_on)
            private.sync(unfinished)
            _name(unfinished, target)
            private.sync(target.parent)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    unfinished.with_name(unfinished.name + suffix).unlink()
    return found


def _filled(source: sqlite3.Connection, unfinished: Path, target: Path, go_on: Callable[[], None]) -> Rescued:
    pages = 0

    def step(status: int, remaining: int, total: int) -> None:
        nonlocal pages
        pages = total
        go_on()

    with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # the complete file is synced once
        copy.execute("PRAGMA journal_mode = OFF")
        source.backup(copy, pages=COPY_PAGES, progress=step)
        namespaces, entries, trouble = _looked_at(copy)
        go_on()
    return Rescued(
        path=str(target),
        bytes=unfinished.stat().st_size,
        pages=pages,
        namespaces=namespaces,
        entries=entries,
        trouble=trouble,
    )


def _looked_at(copy: sqlite3.Connection) -> tuple[int, int, str | None]:
    """Return a copy's numbers of namespaces and entries, and any damage, which the original has too."""
    try:
        troubles = _checked(copy, "quick_check(1)")
        [namespaces] = copy.execute("SELECT count(*) FROM holdfast_namespaces").fetchone()
        [entries] = copy.execute("SELECT count(*) FROM plugin_kv_storage").fetchone()
    except sqlite3.DatabaseError as error:
        return 0, 0, _unreadable(error)
    return namespaces, entries, troubles[0] if troubles else None


def _name(unfinished: Path, target: Path) -> None:
    """Give the file its final name, without replacing an existing file."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        _require_free(target)
        unfinished.rename(target)


def _is_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _require_free(target: Path) -> None:
    if os.path.lexists(target):
        raise ValidationError(f"{target} already exists: name a file that does not", field="path")


@contextlib.contextmanager
def _our_errors(target: Path) -> Iterator[None]:
    """Translate errors of copying into ours, naming the copy."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, str(target)) from error
    except OSError as error:
        raise _trouble(error, target) from None


def _trouble(error: OSError, target: Path) -> HoldfastError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"there is no room for a copy at {target}")
    if isinstance(error, FileExistsError):
        return ValidationError(f"{target} already exists, or is being written: name another", field="path")
    return ValidationError(
        f"{target} can't be written: {(error.strerror or 'it failed').lower()}", field="path"
    )
