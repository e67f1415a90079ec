"""Whether the files of a store are still where they were opened.

On Unix a file that is removed, moved or replaced stays open for whoever has it open: writing to it goes on
without an error, and nobody will ever find what was written. SQLite does not notice in WAL mode, so we do.

Law: files are looked at by path, never opened. Closing any descriptor of a database would drop the locks that
SQLite holds on it for this whole process.
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
"""For how many seconds a look is good enough."""

_log = logging.getLogger("holdfast")


class Presence:
    """Compares device and inode of the database and of its log with those that were opened.

    SQLite keeps its own locks by device and inode, so a file system where these change by themselves can't
    hold a database anyway. The number of a file that is open is not given to another one.

    Args:
        path: The database.
    """

    def __init__(self, path: Path) -> None:
        self._where = str(path)
        self._known: list[tuple[bytes, tuple[int, ...]]] = []
        self._looked = 0.0
        self._gone: str | None = None

    def remember(self) -> None:
        """Take what is there now for what was opened.

        The log lies beside the file that a symbolic link leads to, and the working folder may change.
        """
        log = f"{os.path.realpath(self._where)}-wal"
        found = [(os.fsencode(path), _identity(path)) for path in (os.path.abspath(self._where), log)]
        self._known = [(path, identity) for path, identity in found if identity is not None]

    def require(self) -> None:
        """Before a write: look, unless that has been done a moment ago.

        Raises:
            DatabaseError: A file is gone. Nothing was written.
        """
        if self._gone is not None or time.monotonic() - self._looked > INTERVAL:
            self.look()

    def look(self) -> None:
        """Look now.

        Raises:
            DatabaseError: A file is gone.
        """
        if not self.there():
            raise self._lost(DatabaseError, "nothing is written any more.")

    def lately(self) -> bool:
        """Whether the files are there, as far as a look of the last moment tells.

        A look gives the interpreter to the writer's thread and has to get it back, which takes longer than
        the look. So one look serves the commits of a tenth of a second. What is acknowledged so soon after a
        file has vanished is in the file that is open, from where it can be saved.
        """
        return time.monotonic() - self._looked < INTERVAL or self.there()

    def loss(self, *, wrote: bool) -> HoldfastError:
        """What a caller is told whose files are gone after the commit, before anybody has heard of it.

        What was written is in the file that is open, and may be saved: then the outcome is unknown.
        """
        if wrote:
            return self._lost(OutcomeUnknown, "this write went into the open file.")
        return self._lost(DatabaseError, "nothing is written any more.")

    def there(self) -> bool:
        """Whether every file is the one that was opened. A change of that is logged once."""
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
    """Inode and device; None where nothing is."""
    try:
        return os.stat(path)[1:3]
    except OSError:
        return None
