"""The files beside a SQLite store: who may write, and room kept for deleting when the disk is full.

Law: the lock file says which process writes, and holds as long as that process lives; the database is never
opened for writing without it.
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
"""By how many bytes the ballast grows."""

_log = logging.getLogger("holdfast")


class WriterLock:
    """The right to write, held by one process at a time through `flock` on a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process may write."""
        return self._file is not None

    def acquire(self) -> bool:
        """Take the right to write if nobody has it.

        Raises:
            Unavailable: There is a symbolic link in the file's place.
            OSError: The file can't be opened.
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
        self._file = file
        with contextlib.suppress(OSError):  # on a full disk the lock holds though the pid can't be told
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        return True

    @property
    def taken(self) -> bool:
        """Whether somebody may write now; to look creates nothing."""
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
        """Tell other processes where this one serves what it writes to."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # on a full disk others are told only that the lock is held
                os.pwrite(self._file, f"{os.getpid()}\n{url}\n".encode(), 0)

    def holder(self) -> str:
        """The process that holds the lock, for a message."""
        process, url = self._told()
        if process == str(os.getpid()):
            return f"this process ({process}), which has opened it already"
        who = f"process {process}" if process.isdecimal() else "another process"
        return f"{who}, which serves it at {url}" if url else who

    def served_at(self) -> str | None:
        """Where the process that holds the lock serves the store; None if it does not, or nobody holds it."""
        return (self._told()[1] or None) if self.taken else None

    def _told(self) -> tuple[str, str]:
        """What the file says: the process, and the URL of its service or nothing."""
        try:
            told = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            told = []
        process, url, *_ = *told, "", ""
        return process.strip(), url.strip()

    def release(self) -> None:
        """Give the right to write back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Ballast:
    """Bytes on disk that are given up when it is full, so that there is room to delete.

    To delete means to append to the write-ahead log, and the log can be used again from its beginning only
    after what it holds has gone into the database, which may grow by as much. So the ballast grows with the
    log, and where the disk has no room for that, the log has to be emptied instead.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0

    def require_plain(self) -> None:
        """Refuse a symbolic link in the file's place, before anything is written.

        Raises:
            Unavailable: There is one.
        """
        if self._path.is_symlink():
            raise Unavailable(f"{self._path} can't be used: {private.LINK}")

    def cover(self, log_bytes: int) -> bool:
        """Have enough ballast on disk for a log of this size; False if the disk does not have the room."""
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
            with contextlib.suppress(OSError):  # a part that was had must not take the last room
                os.ftruncate(file, self._size)
            return False
        self._size = wanted
        return True

    def drop(self) -> bool:
        """Give the room up; whether there was any."""
        self._size = 0
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


def keep_private(path: Path) -> None:
    """Make a database that nobody else can read, or close one that is there to others, with its log.

    SQLite gives its log the mode of the database. Whoever calls holds the right to write, and the files are
    not opened unless they are new: see `holdfast.private`.
    """
    database = os.path.realpath(path)  # the log lies beside the file that a symbolic link leads to
    try:
        os.close(private.create(database))
    except OSError:  # it is there, or SQLite will say why it can't be
        files = [database + suffix for suffix in ("", "-wal", "-shm", "-journal")]
        exposed = [file for file in files if private.tighten(file)]
        if exposed:
            _log.warning(
                "other users of this machine could access %s; restricted it to its owner",
                ", ".join(exposed),
            )
