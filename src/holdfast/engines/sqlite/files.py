"""The files beside a SQLite store: who may write, and room kept for deleting when the disk is full.

Law: the lock file says which process writes, and holds as long as that process lives; the database is never
opened for writing without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

BALLAST_STEP: Final = 1024 * 1024
"""By how many bytes the ballast grows."""


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
        """Take the right to write if nobody has it."""
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def holder(self) -> str:
        """The process that holds the lock, for a message."""
        try:
            text = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if text == str(os.getpid()):
            return f"this process ({text}), which has opened it already"
        return f"process {text}" if text.isdecimal() else "another process"

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

    def cover(self, log_bytes: int) -> bool:
        """Have enough ballast on disk for a log of this size; False if the disk does not have the room."""
        wanted = (log_bytes // BALLAST_STEP + 2) * BALLAST_STEP
        if wanted <= self._size:
            return True
        try:
            with self._path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, wanted)
        except OSError:
            with contextlib.suppress(OSError):  # a part that was had must not take the last room
                os.truncate(self._path, self._size)
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
