"""The files beside a SQLite store: the writer's lock, and disk space reserved for deletes on a full disk.

Law: the lock file names the process that writes, and the lock holds as long as that process lives. The
database is never opened for writing without the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from typing import TYPE_CHECKING, Final

from holdfast import private
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

BALLAST_STEP: Final = 1024 * 1024
"""The bytes by which the ballast grows."""

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
        process, url = self._told()
        if process == str(os.getpid()):
            return f"this process ({process}), which has opened it already"
        who = f"process {process}" if process.isdecimal() else "another process"
        return f"{who}, which serves it at {url}" if url else who

    def served_at(self) -> str | None:
        """Return the URL at which the lock's holder serves the store, or None without a holder or a URL."""
        return (self._told()[1] or None) if self.taken else None

    def _told(self) -> tuple[str, str]:
        """Read the file: the process id, and the URL of its service or an empty string."""
        try:
            told = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            told = []
        process, url, *_ = *told, "", ""
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
