"""SQLite's write-ahead log, as it is seen from outside: the header of its index, and the room at its end.

SQLite documents the format of both files. Nothing that SQLite has written is ever changed here.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from holdfast import seams

Span: TypeAlias = tuple[bytes, bytes]
"""The header within a transaction and after its commit."""

PAGE: Final = 4096
"""The bytes of a page, unless another program has made the file. Estimates count pages of this size."""
FRAME_HEAD: Final = 24
FRAME: Final = FRAME_HEAD + PAGE
"""The bytes that a page takes in the log."""
YOUNG: Final = 32 * FRAME
"""The size up to which a log gets no room: a program that creates a store and writes little does without."""
ROOM: Final = 512 * 1024
"""The largest number of bytes by which a log is extended beyond what a commit needs."""
MOST_PAGES: Final = 32
"""The size of a commit, in pages, above which it extends the log itself: writing it twice would cost more."""

_HEADER_BYTES: Final = 48
_COMMITS: Final = struct.Struct("=8xI36x").unpack
"""Reads the number of commits from a header."""
_SIZES: Final = struct.Struct("=14xHI28x").unpack
"""Reads the size of a page, and the number of pages in the log, from a header."""


class LogHeader:
    """The header of the index of SQLite's log, in memory that all processes share.

    POSIX drops all locks of a process on a file when the process closes any descriptor of that file, and the
    locks of SQLite are on this one. So a descriptor is closed only once the file is deleted, which the last
    process that uses it does; until then it waits for the next store of this process on the same file.
    """

    _known: Final[dict[tuple[int, int], LogHeader]] = {}
    _changing: Final = seams.Lock()

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _HEADER_BYTES, access=mmap.ACCESS_READ)
        self._view = memoryview(self._memory)
        self.read: Callable[[], bytes] = self._view.tobytes
        """Returns the header as it is now. The connections of the store must be open."""
        self._stores = 0

    @classmethod
    def of(cls, path: Path) -> LogHeader | None:
        """Return the header of an open file of a store, or None if it has none."""
        with cls._changing:
            try:
                there = os.stat(path)
                header = cls._known.get((there.st_dev, there.st_ino))
                if header is None:
                    descriptor = os.open(path, os.O_RDONLY)
                    there = os.fstat(descriptor)
                    header = cls._known[there.st_dev, there.st_ino] = cls(descriptor)
            except (OSError, ValueError):
                return None
            header._stores += 1
            return header

    def leave(self) -> None:
        """Stop using the header, after the connections of the store are closed."""
        with self._changing:
            self._stores -= 1
            for key, header in list(self._known.items()):
                if not header._stores and not os.fstat(header._descriptor).st_nlink:
                    del self._known[key]
                    header._view.release()
                    header._memory.close()
                    os.close(header._descriptor)


class LogRoom:
    """Keeps room at the end of the log, so that commits overwrite zeros instead of extending the file.

    After a commit has extended a file, its sync must also write the file's new size, which the file system
    does in a transaction of its own. On ext4 the sync then takes up to twice as long. The log doubles up to a
    step of `ROOM`, and stays as it is when SQLite begins it anew.

    Zeros after the last commit mean nothing to SQLite. It finds the end of a log by salts and checksums, as
    it does in a log that it has begun anew, where older commits follow.

    Args:
        path: The log, which SQLite has open. What may be put in its place later is left alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def provide(self, header: bytes, pages: int) -> None:
        """Extend the log if a commit of this many pages would, by the size that pages have in this file.

        Only within a write transaction.

        The lock of the transaction keeps all others from writing to the log. An error, such as a full disk,
        changes nothing.
        """
        size, frames = _SIZES(header)
        page = (size & 0xFE00) + ((size & 1) << 16)  # from 512 to 65,536, for which the last bit stands
        used = frames * (FRAME_HEAD + page)
        if used >= YOUNG and pages <= MOST_PAGES:
            needed = used + pages * max(1, PAGE // page) * (FRAME_HEAD + page)
            try:
                self._extend(needed, needed + min(used, ROOM))
            except OSError:
                return  # the commit extends the log, or is refused

    def _extend(self, needed: int, size: int) -> None:
        """Extend the log to a size if it is shorter than what is needed."""
        if self._file is not None and (end := os.fstat(self._file).st_size) < needed:
            os.pwrite(self._file, bytes(size - end), end)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def one_commit_later(before: bytes, after: bytes) -> bool:
    """Return whether one commit is between two headers. Their counter begins again after 2**32."""
    [first], [last] = _COMMITS(before), _COMMITS(after)
    return bool(last == (first + 1) % 2**32)
