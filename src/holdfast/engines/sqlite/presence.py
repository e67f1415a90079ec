"""Checks that the files of a store are still the ones that were opened.

On Unix a file that is removed, moved or replaced stays open in the processes that have it open. They can
still write to it without an error, but what they write can't be found at the path. In WAL mode SQLite does
not notice this, so this module does.

Law: files are checked by path, never opened. Closing any descriptor of a database would drop all locks that
this process's SQLite holds on it.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final

from holdfast.errors import DatabaseError, HoldfastError, OutcomeUnknown

if TYPE_CHECKING:
    from pathlib import Path

INTERVAL: Final = 0.1
"""The seconds for which a check stays valid."""

_log = logging.getLogger("holdfast")


class Presence:
    """Compares device and inode of the database and of its log with those that were opened.

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

    def remember(self) -> None:
        """Record the present files as the ones that were opened.

        The paths are made absolute because the working folder may change. The log is beside the target of a
        symbolic link.
        """
        log = f"{os.path.realpath(self._where)}-wal"
        found = [(os.fsencode(path), _identity(path)) for path in (os.path.abspath(self._where), log)]
        self._known = [(path, identity) for path, identity in found if identity is not None]

    def require(self) -> None:
        """Check the files before a write, unless the last check is still valid.

        Raises:
            DatabaseError: A file is gone. Nothing was written.
        """
        if self._gone is not None or time.monotonic() - self._looked > INTERVAL:
            self.look()

    def look(self) -> None:
        """Check the files now.

        Raises:
            DatabaseError: A file is gone.
        """
        if not self.there():
            raise self._lost(DatabaseError, "nothing is written any more.")

    def lately(self) -> bool:
        """Return whether the files are there, according to a recent or a new check.

        A check releases the interpreter to the writer's thread and has to get it back, which takes longer
        than the check itself. So one check serves all commits within a tenth of a second. A write that is
        acknowledged so soon after a file has vanished is in the open file, from which it can be rescued.
        """
        return time.monotonic() - self._looked < INTERVAL or self.there()

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
            for path, identity in self._known:  # every commit waits for this
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


def _identity(path: str) -> tuple[int, ...] | None:
    """Return inode and device, or None if there is no file."""
    try:
        return os.stat(path)[1:3]
    except OSError:
        return None
