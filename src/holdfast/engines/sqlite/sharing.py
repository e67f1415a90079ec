"""What the processes that share a SQLite file agree on, through locks on three small files beside it.

- `.lock`: every process that has the store open holds it, shared. Whoever creates, migrates, replaces or
  resets the store holds it alone, and older versions of Holdfast do while they have it open.
- `.turn`: a process holds it for the length of a write transaction or of a checkpoint.
- `.upkeep`: the process that holds it expires entries and tidies up for all of them. A lock on a single byte
  of it says which process publishes the changes of all on a message bus.

They are `flock` locks, which end with their process, however that ends. SQLite has a lock of its own for
writing, which is taken too. It would not do alone. Those who wait for it poll with growing pauses, so that
one process may starve. It is lost when any part of the program opens and closes the database file. And before
version 3.51.3 of SQLite, a commit during a checkpoint by another connection may corrupt the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from holdfast import private, seams
from holdfast.clock import NEVER
from holdfast.errors import Busy, Unavailable

OPENING_SECONDS: Final = 5.0
"""How long a process that opens a store waits for another one that is just creating or migrating it."""
POLL_SECONDS: Final = 0.01
CHECK_SECONDS: Final = 0.1
"""The seconds after which a process that takes its turn looks at the file of the turn again."""
UPKEEP_PAUSE: Final = 0.5
"""Seconds between two attempts to take over the upkeep, and between two signs of life of its leader."""
UPKEEP_STOPPED: Final = 3.0
"""Seconds without a sign of life after which the leader of the upkeep counts as stopped."""
COUNT_PAGES: Final = 256
"""The number of pages that a process adds to the log before it tells the others."""
COMPANY_SECONDS: Final = 5.0
"""Seconds after which a process that shares a store looks whether the others are still there."""

_BYTE_LOCKS: Final = sys.platform == "linux" and struct.calcsize("P") == 8
"""Whether the system has locks on single bytes that belong to the open file, like those of `flock`."""
_PRESENT: Final = 2**40
"""The byte of `.lock` that every process which has the store open locks, shared."""
_COUNT_BYTES: Final = 8

_files: Final[weakref.WeakSet[LockFile]] = weakref.WeakSet()


class LockFile:
    """A file that processes lock with `flock`. It is created on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._flock: Callable[[int, int], bool] = _flock
        self.held = False
        """True if this process holds the lock, shared or alone."""
        _files.add(self)

    def attempt(self, how: int = fcntl.LOCK_EX) -> bool:
        """Take the lock if that is possible now. If it was held in another way, it may be lost by this."""
        self.held = self._flock(self._file or self.opened(), how | fcntl.LOCK_NB)
        return self.held

    def release(self) -> None:
        """Release the lock. The file stays open."""
        if self.held:
            self.held = False
            assert self._file is not None
            self._flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock and close the file."""
        self.held = False
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def opened(self) -> int:
        """Return the descriptor, which is opened on first use.

        Raises:
            Unavailable: The file is a symbolic link.
            OSError: The file can't be opened.
        """
        if self._file is None:
            try:
                self._file = private.opened(self.path, os.O_RDWR)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise Unavailable(f"{self.path} can't be used: {private.LINK}") from None
                raise
        return self._file

    def holders(self) -> list[int]:
        """Return the other processes that hold a lock on the file, as far as the system tells.

        This is for messages only. While Linux lists its locks, no process of the machine can take or release
        one. That takes up to 0.2 s on a busy machine.
        """
        try:
            inode = str(os.stat(self.path).st_ino)
            locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return []
        pids: dict[int, None] = {}
        for lock in locks:  # 1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF
            words = lock.split()
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == inode:
                pids[int(words[4])] = None
        return [pid for pid in pids if pid > 0 and pid != seams.pid()]


def _flock(file: int, how: int) -> bool:
    """Lock or unlock a file. Return False if another process holds the lock and this one does not wait."""
    try:
        seams.flock(file, how)
    except BlockingIOError:
        return False
    return True


@cache
def _quick_flock() -> Callable[[int, int], bool]:
    """Return `_flock` for calls that don't wait, without releasing the interpreter if that is possible."""
    flock = seams.quick_flock()
    if flock is None:
        return _flock

    def locked(file: int, how: int) -> bool:
        # What went wrong is found by asking again.
        return flock(file, how) == 0 or _flock(file, how)

    return locked


def _after_fork_in_child() -> None:
    """Close the child's copies of the descriptors. Otherwise its parent's locks would outlive the parent."""
    for file in list(_files):
        file.close()


os.register_at_fork(after_in_child=_after_fork_in_child)


class StoreLock(LockFile):
    """Says which processes have a store open, and lets one of them have it alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.alone = False
        """True if this process holds the lock alone."""

    def acquire(self) -> bool:
        """Take the lock alone if no other process holds it. Return whether that succeeded.

        Raises:
            Unavailable: The lock file is a symbolic link.
            OSError: The lock file can't be opened.
        """
        self.alone = self.attempt(fcntl.LOCK_EX)
        if self.alone:
            self._sign()
            self._show_presence()
        return self.alone

    def join(self) -> bool:
        """Take the lock beside others. Return False if a process keeps it for itself."""
        until = seams.monotonic() + OPENING_SECONDS
        while not self.attempt(fcntl.LOCK_SH):
            if seams.monotonic() > until:
                return False
            seams.sleep(POLL_SECONDS)
        self.alone = False
        self._show_presence()
        return True

    def share(self) -> None:
        """Let others have the store open, too. Between the two locks, another process may have had it alone.

        Raises:
            Unavailable: Another process has it alone, and keeps it.
        """
        if self.alone and not self.join():
            raise Unavailable(f"{self.path} is held by {self.holder()}")

    def close(self) -> None:
        """Release the lock and close the file."""
        self.alone = False
        super().close()

    def keep(self) -> None:
        """Notice that the file was removed or replaced, and hold the lock on the one that is there now.

        Raises:
            Unavailable: Another process has taken it alone meanwhile.
        """
        if os.fstat(self.opened()).st_nlink:
            return
        self.close()
        if not self.attempt(fcntl.LOCK_SH):
            raise Unavailable(f"{self.path} was removed, and is held by {self.holder()} now")
        self._show_presence()

    @property
    def taken(self) -> bool:
        """True if any process holds the lock, alone or beside others. Checking creates no file."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            seams.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def is_only_holder(self) -> bool:
        """Return whether this process alone has the store open. False if the system does not tell."""
        if not _BYTE_LOCKS:
            return False
        in_the_way = fcntl.fcntl(self.opened(), fcntl.F_OFD_GETLK, _byte_lock(fcntl.F_WRLCK, _PRESENT))
        kind: int = _BYTE_LOCK.unpack(in_the_way)[0]
        return kind == fcntl.F_UNLCK

    def _show_presence(self) -> None:
        """Let `is_only_holder` of other processes find this one."""
        if _BYTE_LOCKS:
            with contextlib.suppress(OSError):  # then others are told of changes a moment later
                fcntl.fcntl(self.opened(), fcntl.F_OFD_SETLK, _byte_lock(fcntl.F_RDLCK, _PRESENT))

    def holder(self) -> str:
        """Describe the processes that have the store open, for a message."""
        pids = self.holders()
        if not pids:  # the system does not tell, or it is this process
            pid, _ = self._signature()
            pids = [] if pid is None else [pid]
        if pids == [seams.pid()]:
            return f"this process ({seams.pid()}), which has opened it already"
        return described(pids)

    def announce(self, url: str) -> None:
        """Publish the URL at which this process serves the store."""
        if self.held:
            self._sign(f"{url}\n")

    def served_at(self) -> str | None:
        """Return the URL at which a process that has the store open serves it; None if there is none."""
        pid, url = self._signature()
        if not url or not self.taken:
            return None
        holders = self.holders()
        return url if not holders or pid in holders else None

    def _sign(self, more: str = "") -> None:
        """Write down this process, for older versions and for systems that don't tell who holds a lock."""
        file = self.opened()
        with contextlib.suppress(OSError):  # on a full disk the lock holds without this
            os.ftruncate(file, 0)
            os.pwrite(file, f"{seams.pid()}\n{more}".encode(), 0)

    def _signature(self) -> tuple[int | None, str]:
        """Read which process has signed, and the URL of its service."""
        try:
            pid, url, *_ = *self.path.read_text(encoding="ascii").splitlines(), "", ""
            return int(pid), url.strip()
        except (OSError, ValueError):
            return None, ""


class Turn(LockFile):
    """The turn to write. Only the writer's thread takes and leaves it.

    If the file is removed or replaced, the next process that takes its turn notices, and uses the new file.
    The file holds the number of pages that all processes have added to the log since a checkpoint.

    Args:
        path: The file.
        lock: Says which processes have the store open. If not given, there may always be some.
    """

    def __init__(self, path: Path, lock: StoreLock | None = None) -> None:
        super().__init__(path)
        self._lock = lock
        self.waiting_since: float | None = None
        """Since when this process has been waiting for its turn, by `seams.monotonic`. None if it is not."""
        self.shared = lock is None
        """True if other processes have the store open, as far as this one knows."""
        self._untouched = 0
        self._checked = NEVER
        self._company = NEVER
        self._taken = False
        self.log_pages = 0
        """The number of pages in the log, as far as this process knows."""
        self._uncounted = 0
        self._was_alone = False

    def join(self, *, alone: bool) -> None:
        """Tell the other processes that this one has the store open. `alone` says whether there are any."""
        file = self.opened()
        self.shared = not alone
        self._was_alone = alone
        self._company = seams.monotonic()
        now = seams.wall_ns()  # more exact than the system's own "now", which two processes might share
        os.utime(file, ns=(now, now))
        self._untouched = os.fstat(file).st_mtime_ns

    def take(self) -> None:
        """Wait for the turn, unless this process has it already.

        Raises:
            Unavailable: Another process has the store alone, because the file of its lock was removed. Or the
                folder is gone.
        """
        while not self.held:
            if not super().attempt():
                self.waiting_since = seams.monotonic()
                try:
                    seams.flock(self.opened(), fcntl.LOCK_EX)
                finally:
                    self.waiting_since = None
                self.held = True
            if seams.monotonic() - self._checked > CHECK_SECONDS:
                try:
                    self._check()
                except OSError as error:
                    self._checked = NEVER
                    self.release()
                    raise Unavailable(f"{self.path} can't be used: {error.strerror}") from error
                except BaseException:
                    self._checked = NEVER
                    self.release()
                    raise
        if not self._taken:
            self._taken = True
        elif self._flock is _flock:  # a program that writes once does without what it takes
            self._flock = _quick_flock()

    def attempt(self, how: int = fcntl.LOCK_EX) -> bool:
        """Take the turn if it is free, or if this process has it already."""
        return self.held or super().attempt(how)

    def leave(self, *, pages: int = 0) -> None:
        """Give the turn to the next process.

        If something has changed, `pages` is about the number of pages that were added to the log, and those
        who watch are told.
        """
        if not self.held:
            return
        try:
            if pages:
                self.log_pages += pages
                self._uncounted += pages
                if self.shared:
                    # They also look by themselves. Another program may have written any number into the file.
                    with contextlib.suppress(OSError, OverflowError):
                        self._tell()
        finally:
            self.release()

    def checkpointed(self, left: int) -> None:
        """Note how many pages of the log a checkpoint has left. Only in this process's turn."""
        self.log_pages, self._uncounted = left, 0
        if self.shared:
            with contextlib.suppress(OSError):
                os.pwrite(self.opened(), left.to_bytes(_COUNT_BYTES, "big"), 0)

    def _tell(self) -> None:
        """Write to the file, which Linux tells those who watch; now and then, the number of pages."""
        if self._was_alone:  # the file has not counted what this process alone has added
            self._was_alone, self._uncounted = False, 0
        elif self._uncounted < COUNT_PAGES:
            os.pwrite(self.opened(), b"\n", _COUNT_BYTES)
            return
        else:
            counted = int.from_bytes(os.pread(self.opened(), _COUNT_BYTES, 0), "big")
            self.log_pages, self._uncounted = counted + self._uncounted, 0
        os.pwrite(self.opened(), self.log_pages.to_bytes(_COUNT_BYTES, "big"), 0)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Have the turn for the length of a block, on a thread that can wait.

        Raises:
            Busy: Another process has kept it for all this time.
        """
        until = seams.monotonic() + seconds
        while not self.attempt():
            if seams.monotonic() > until:
                raise Busy(f"{self.path} is held by {self.holder()}", retry_after=1.0)
            seams.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            self.leave(pages=1)
            self.close()

    def holder(self) -> str:
        """Describe the process whose turn it is, for a message."""
        return described(self.holders())

    def _check(self) -> None:
        """Notice that the file was replaced, and whether other processes have the store open."""
        status = os.fstat(self.opened())
        now = self._checked = seams.monotonic()
        if self._lock is not None:
            self._lock.keep()
        if not status.st_nlink:
            self._checked = NEVER
            self.close()
        elif not self.shared:
            self.shared = status.st_mtime_ns != self._untouched
            self._company = now
        elif now - self._company > COMPANY_SECONDS:
            self._company = now
            # Whoever opens the store later touches the file after this, and is noticed by that.
            self._untouched = status.st_mtime_ns
            self.shared = self._lock is None or not self._lock.is_only_holder()
            self._was_alone = not self.shared


class UpkeepLease(LockFile):
    """Chooses the process that does the upkeep of a store: the one that holds the lock.

    The leader touches the file. If it has not done so for a while, it is stopped, and others do the work too
    until it continues: everything that belongs to it may be done twice.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._asked = float("-inf")
        self._leads = False

    def leads(self) -> bool:
        """Return whether this process does the upkeep, after having tried to take it over."""
        now = seams.monotonic()
        if now - self._asked >= UPKEEP_PAUSE:
            self._asked = now
            try:
                self._leads = self._ask()
            except OSError:  # the folder is gone or can't be written to
                self._leads = False
        return self._leads

    def _ask(self) -> bool:
        file = self.opened()
        if self.held or self.attempt():
            os.utime(file)
            return True
        return seams.wall() - os.fstat(file).st_mtime > UPKEEP_STOPPED


class PublisherLease(LockFile):
    """Chooses the process that publishes the changes of a store on a message bus, for all that have it open.

    Processes may be connected to different buses, and each bus needs one of them. So they lock not the file
    but a byte of it, which the name of the bus chooses. That takes Linux; elsewhere each of them publishes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._bus: str | None = None

    def leads(self, bus: str) -> bool:
        """Return whether this process publishes on a bus, after having tried to take that over."""
        if self.held and bus != self._bus:
            self.close()
        if not self.held:
            self._bus = bus
            try:
                self.held = _lock_byte(self.opened(), bus)
            except OSError:  # the folder is gone or can't be written to
                return False
        return self.held


_BYTE_LOCK: Final = struct.Struct("hhqqi0q")
"""The layout of `struct flock`."""


def _byte_lock(kind: int, place: int) -> bytes:
    """Describe a lock on one byte of a file. It belongs to the open file and not to the process."""
    return _BYTE_LOCK.pack(kind, os.SEEK_SET, place, 1, 0)


def _lock_byte(file: int, name: str) -> bool:
    """Lock the byte of a file that a name chooses. Return False if another process holds it."""
    if not _BYTE_LOCKS:
        return True
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _byte_lock(fcntl.F_WRLCK, zlib.crc32(name.encode())))
    except (BlockingIOError, PermissionError):
        return False
    return True


def described(pids: Sequence[int]) -> str:
    """Name processes by number and command, for a message."""
    if not pids:
        return "another process"
    names = [f"{pid} ({command})" if (command := _command(pid)) else str(pid) for pid in pids]
    return f"process {names[0]}" if len(names) == 1 else f"processes {', '.join(names)}"


def _command(pid: int) -> str:
    """Return how a process was started, without its arguments, which may hold secrets."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    names = [os.path.basename(word.decode(errors="replace")) for word in words[:2]]
    return " ".join(name for name in names if name and not name.startswith("-"))
