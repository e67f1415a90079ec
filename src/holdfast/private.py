"""Files and folders that only their owner can read, whatever the umask says.

Law: what is made here is private from its first moment, and no symbolic link is followed. A file that SQLite
may have open in this process is changed by its path and never opened: closing any descriptor of it would drop
the locks that SQLite holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = 0o700
FILE: Final = 0o600
OTHERS: Final = 0o077
"""The bits of a mode that let other users in."""
LINK: Final = "it is a symbolic link, and only a plain file is used here: remove the link"


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing. A folder that exists is left as it is.

    Raises:
        OSError: It can't be made.
    """
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_folder(path.parent)
    try:
        path.mkdir(mode=FOLDER)
    except FileExistsError:
        if not path.is_dir():  # else another process has just made it
            raise
    else:
        path.chmod(FOLDER)


def create(path: Path | str) -> int:
    """Make a file and open it for writing.

    Raises:
        FileExistsError: There is one already, or a link.
        OSError: It can't be made.
    """
    return _closed_to_others(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    )


def opened(path: Path, flags: int) -> int:
    """Open a file, and make it if there is none. One that others could read is closed to them.

    Raises:
        OSError: It can't be opened; also where it is a symbolic link, and then the error says so.
    """
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINK) from None
        raise
    return _closed_to_others(file)


def tighten(path: str) -> bool:
    """Close a file to others; whether they could get at it. What is no file, or not ours, is left alone."""
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
        with contextlib.suppress(PermissionError):  # another user's file, who let us write to it
            os.fchmod(file, FILE)
    return file
