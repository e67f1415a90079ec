"""The files of a SQLite store: the writer's lock, the reserved disk space, and whether all are still there.

The lock file names the process that writes, and the lock holds as long as that process lives. The database is
never opened for writing without the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast import private
from holdfast.errors import DatabaseError, HoldfastError, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

BALLAST_STEP: Final = 1024 * 1024
"""The bytes by which the ballast grows."""

CHECK_SECONDS: Final = 0.1
"""The seconds after which the files are also checked before a write, so that nothing of it is written."""

_SUFFIXES: Final = ("-wal", "-shm")
"""The files beside a database: its log, and the log's index, which holds the locks between processes."""
_AT_FDCWD: Final = -100
_STATX_INO: Final = 0x100
_INO_AT: Final = 32
_DEV_AT: Final = 136
"""Where `struct statx` of Linux has the inode and the two halves of the device, on every architecture."""
_STATX_SIZE: Final = 256

_log = logging.getLogger("holdfast")


class WriterLock:
    """The writer's lock, which one process at a time holds through `flock` on a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._process = 0

    @property
    def held(self) -> bool:
        """True if this process may write."""
        return self._file is not None

    def acquire(self) -> bool:
        """Take the lock if it is free. Return whether this process holds it.

        Raises:
            Unavailable: The lock file is a symbolic link.
            OSError: The lock file can't be opened.
        """
        if self._file is not None:
            return True
        try:
            file = private.opened(self._path, os.O_RDWR)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise Unavailable(f"{self._path} can't be used: {private.LINK}") from None
            raise
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file, self._process = file, os.getpid()
        with contextlib.suppress(OSError):  # on a full disk the lock holds without the pid
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        return True

    @property
    def taken(self) -> bool:
        """True if any process holds the lock. Checking creates no file."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def announce(self, url: str) -> None:
        """Publish the URL at which this process serves the store."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # on a full disk the URL is missing, but the lock holds
                os.pwrite(self._file, f"{os.getpid()}\n{url}\n".encode(), 0)

    def holder(self) -> str:
        """Describe the process that holds the lock, for a message."""
        process, url = self._read()
        if process == str(os.getpid()):
            return f"this process ({process}), which has opened it already"
        who = f"process {process}" if process.isdecimal() else "another process"
        return f"{who}, which serves it at {url}" if url else who

    def served_at(self) -> str | None:
        """Return the URL at which the lock's holder serves the store, or None without a holder or a URL."""
        return (self._read()[1] or None) if self.taken else None

    def _read(self) -> tuple[str, str]:
        """Read the file: the process id, and the URL of its service or an empty string."""
        try:
            lines = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        process, url, *_ = *lines, "", ""
        return process.strip(), url.strip()

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            # While a child of a fork has the file open too, closing does not release the lock.
            if self._process == os.getpid():
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None


class Ballast:
    """Reserved bytes that are freed when the disk is full, so that there is room for deletes.

    A delete appends to the write-ahead log. The log can restart from its beginning only after its content has
    moved into the database, which may grow by as much. So the ballast grows with the log. If the disk has no
    room for that, the log must be checkpointed instead.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0

    def require_plain(self) -> None:
        """Refuse a symbolic link in the file's place, before anything is written.

        Raises:
            Unavailable: The file is a symbolic link.
        """
        if self._path.is_symlink():
            raise Unavailable(f"{self._path} can't be used: {private.LINK}")

    def cover(self, log_bytes: int) -> bool:
        """Reserve enough ballast for a log of this size. Return False if the disk has no room."""
        wanted = (log_bytes // BALLAST_STEP + 2) * BALLAST_STEP
        if wanted <= self._size:
            return True
        try:
            file = private.opened(self._path, os.O_WRONLY)
        except OSError:
            return False
        try:
            return self._grown(file, wanted)
        finally:
            os.close(file)

    def _grown(self, file: int, wanted: int) -> bool:
        try:
            os.posix_fallocate(file, 0, wanted)
        except OSError:
            with contextlib.suppress(OSError):  # don't keep a partial reservation
                os.ftruncate(file, self._size)
            return False
        self._size = wanted
        return True

    def drop(self) -> bool:
        """Free the reserved space. Return whether there was any."""
        self._size = 0
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


class Presence:
    """Compares device and inode of the database, its log and the log's index with those that were opened.

    On Unix a file that is removed, moved or replaced stays open in the processes that have it open. They can
    still write to it without an error, but what they write can't be found at the path. In WAL mode SQLite
    does not notice this.

    Files are checked by path, never opened: closing any descriptor of a database would drop all locks that
    this process's SQLite holds on it.

    SQLite tracks its own locks by device and inode, so a file system where these change spontaneously can't
    hold a database anyway. The inode of an open file is not reused.

    Args:
        path: The database.
    """

    def __init__(self, path: Path) -> None:
        self._where = str(path)
        self._known: list[tuple[bytes, tuple[int, ...]]] = []
        self._looked = 0.0
        self._gone: str | None = None
        self._quick: Callable[[], bool] | None = None
        self._wrote = False

    def remember(self) -> None:
        """Record the present files as the ones that were opened.

        The paths are made absolute because the working folder may change. The log is beside the target of a
        symbolic link.
        """
        beside = [os.path.realpath(self._where) + suffix for suffix in _SUFFIXES]
        found = [(os.fsencode(path), _identity(path)) for path in (os.path.abspath(self._where), *beside)]
        self._known = [(path, identity) for path, identity in found if identity is not None]

    def require(self) -> None:
        """Check the files before a write, unless the last check is still valid.

        Raises:
            DatabaseError: A file is gone. Nothing was written.
        """
        if self._gone is not None or time.monotonic() - self._looked > CHECK_SECONDS:
            self.look()

    def look(self) -> None:
        """Check the files now.

        Raises:
            DatabaseError: A file is gone.
        """
        if not self.there():
            raise self._lost(DatabaseError, "nothing is written any more.")

    def still(self) -> bool:
        """Return whether the files are there after a commit, before its callers learn of it. Loop only.

        `os.stat` would release the interpreter to the writer's thread and have to get it back, which takes
        longer than the check itself. A program that writes once does without what it takes to avoid that.
        """
        if self._quick is None and self._wrote:
            self._quick = _quick_look(self._known)
        self._wrote = True
        if self._quick is not None and self._gone is None:
            if self._quick():
                self._looked = time.monotonic()
                return True
            if self.there():  # the system does not allow the quick check
                self._quick = _never
                return True
            return False
        return self.there()

    def loss(self, *, wrote: bool) -> HoldfastError:
        """Return the error for a caller whose files have vanished, after its commit and before its reply.

        What was written is in the open file and may be rescued, so the outcome of a write is unknown.
        """
        if wrote:
            return self._lost(OutcomeUnknown, "this write went into the open file.")
        return self._lost(DatabaseError, "nothing is written any more.")

    def there(self) -> bool:
        """Return whether every file is the one that was opened. Log each change of this once."""
        stat = os.stat
        try:
            for path, identity in self._known:
                if stat(path)[1:3] != identity:
                    return self._missing(f"{os.fsdecode(path)} was replaced by another file")
        except OSError:
            return self._missing(f"{os.fsdecode(path)} was removed or moved away")
        self._looked = time.monotonic()
        if self._gone is not None:
            self._gone = None
            _log.warning("the files of %s are back in place; resuming writes", self._where)
        return True

    def _missing(self, what: str) -> bool:
        if self._gone is None:
            self._gone = what
            _log.critical("%s", self._lost(DatabaseError, "nothing is written any more.").message)
        self._gone = what
        return False

    def _lost(self, kind: type[HoldfastError], consequence: str) -> HoldfastError:
        return kind(
            f"{self._gone} while it was open: {consequence} What was acknowledged is still in the file that "
            f"process {os.getpid()} has open. Save it before that process ends: run holdfast rescue NEW_PATH "
            "--url with the URL of the running service, or call store.rescue(NEW_PATH) in the program"
        )


def _quick_look(known: Sequence[tuple[bytes, tuple[int, ...]]]) -> Callable[[], bool]:
    """Return a check of files by inode and device that keeps the interpreter, or one that always fails."""
    statx = _statx()
    if statx is None:
        return _never
    # late: it takes 3 ms, and only a program that writes needs it
    import ctypes

    found = ctypes.create_string_buffer(_STATX_SIZE)
    address = ctypes.addressof(found)
    inode = ctypes.c_uint64.from_buffer(found, _INO_AT)
    device = ctypes.c_uint64.from_buffer(found, _DEV_AT)
    wanted = [(path, ino, _halves(dev)) for path, (ino, dev) in known]

    def look() -> bool:
        for path, ino, dev in wanted:  # every commit waits for this
            if statx(_AT_FDCWD, path, 0, _STATX_INO, address) or inode.value != ino or device.value != dev:
                return False
        return True

    return look


@cache
def _statx() -> Callable[..., Any] | None:
    """Return the C library's `statx`, which runs without releasing the interpreter, or None without one."""
    if sys.platform != "linux":
        return None
    try:
        # late: it takes 3 ms, and only a program that writes needs it
        import ctypes

        statx = ctypes.PyDLL(None).statx
    except (ImportError, OSError, AttributeError):
        return None
    statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    return statx


def _halves(device: int) -> int:
    """Return a device as the eight bytes that `struct statx` has of it."""
    return int.from_bytes(struct.pack("=II", os.major(device), os.minor(device)), sys.byteorder)


def _never() -> bool:
    return False


def _identity(path: str) -> tuple[int, ...] | None:
    """Return inode and device, or None if there is no file."""
    try:
        return os.stat(path)[1:3]
    except OSError:
        return None


def keep_private(path: Path) -> None:
    """Create a database that only its owner can read, or restrict an existing one and its log to the owner.

    SQLite gives its log the mode of the database. The caller must hold the writer's lock. Existing files are
    not opened: see `holdfast.private`.
    """
    database = os.path.realpath(path)  # the log is beside the target of a symbolic link
    try:
        os.close(private.create(database))
    except OSError:  # it exists, or SQLite will report the reason
        files = [database + suffix for suffix in ("", "-wal", "-shm", "-journal")]
        exposed = [file for file in files if private.tighten(file)]
        if exposed:
            _log.warning(
                "other users of this machine could access %s; restricted it to its owner",
                ", ".join(exposed),
            )
