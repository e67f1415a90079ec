"""Files and folders that only their owner can read, whatever the umask.

Everything made here is private from the start, and no symbolic link is followed. A file that SQLite may have
open in this process is changed by its path and never opened: closing any descriptor of it would release the
locks that SQLite holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

FOLDER: Final = 0o700
FILE: Final = 0o600
OTHERS: Final = 0o077
"""The mode bits that give other users access."""
_NOT_SYNCED: Final = frozenset(
    {errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
)
"""The errors of systems that can't sync a folder."""
LINK: Final = "it is a symbolic link, and only a plain file is used here: remove the link"


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents. An existing folder is left as it is.

    Raises:
        OSError: It can't be created.
    """
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_folder(path.parent)
    try:
        path.mkdir(mode=FOLDER)
    except FileExistsError:
        if not path.is_dir():  # otherwise another process has just created it
            raise
    else:
        path.chmod(FOLDER)


def create(path: Path | str) -> int:
    """Create a file and open it for writing.

    Raises:
        FileExistsError: A file or link of that name exists.
        OSError: It can't be created.
    """
    return _closed_to_others(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    )


def sync(path: Path) -> None:
    """Return once a file, or the names in a folder, survive a power cut.

    Some file systems sync no folders, and a folder that this user may write to but not read can't be opened
    for that. Its names are then as safe as the system makes them.

    Raises:
        OSError: The disk failed, or it is full.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno not in _NOT_SYNCED or not path.is_dir():
            raise


def opened(path: Path, flags: int) -> int:
    """Open a file, and create it if it does not exist. Access by other users is removed.

    Raises:
        OSError: It can't be opened, or it is a symbolic link, in which case the error says so.
    """
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINK) from None
        raise
    return _closed_to_others(file)


def tighten(path: str) -> bool:
    """Remove other users' access to a file.

    Returns whether they had any. Ignores non-files and others' files.
    """
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or not mode & OTHERS:
            return False
        os.chmod(path, mode & FILE)
    except OSError:
        return False
    return True


def _closed_to_others(file: int) -> int:
    if stat.S_IMODE(os.fstat(file).st_mode) != FILE:
        with contextlib.suppress(PermissionError):  # the file of another user who lets us write to it
            os.fchmod(file, FILE)
    return file
