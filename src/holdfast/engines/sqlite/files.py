"""The files of a SQLite store: the reserved disk space, and whether all files are still there."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from holdfast import private, seams
from holdfast.errors import DatabaseError, HoldfastError, OutcomeUnknown, Unavailable, Unsupported

BALLAST_STEP: Final = 1024 * 1024
"""The bytes by which the ballast grows."""

OPENING_BYTES: Final = 256 * 1024
"""The bytes of the ballast that are freed at once to open a store. The index of the log takes 32 KiB."""

CHECK_SECONDS: Final = 0.1
"""The seconds after which the files are also checked before a write, so that nothing of it is written."""

NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "lustre", "gpfs", "beegfs"),
        *("pvfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.davfs", "fuse.s3fs", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.mount.rclone", "fuse.smbnetfs", "fuse.curlftpfs"),
    }
)
"""The file systems whose files other machines may change. Neither locks nor shared memory reach those."""
PERHAPS_NETWORK: Final = frozenset({"9p"})
"""The file systems that may be like that, or a part of this machine that a virtual machine or a container
sees."""
MOUNTS: Final = "/proc/self/mountinfo"

_SUFFIXES: Final = ("-wal", "-shm")
"""The files beside a database: its log, and the log's index, which holds the locks between processes."""
_AT_FDCWD: Final = -100
_STATX_INO: Final = 0x100
_INO_AT: Final = 32
_DEV_AT: Final = 136
"""Where `struct statx` of Linux has the inode and the two halves of the device, on every architecture."""
_STATX_SIZE: Final = 256

_log = logging.getLogger("holdfast")


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

    def look(self) -> None:
        """Look how much is reserved: another process may have freed it."""
        try:
            self._size = os.stat(self._path).st_size
        except OSError:
            self._size = 0

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

    @property
    def released(self) -> bool:
        """True if some of the ballast was freed for deletes, once `cover` has found no room for it again."""
        return self._size > 0

    def _grown(self, file: int, wanted: int) -> bool:
        self._size = os.fstat(file).st_size  # a part may have been freed
        try:
            os.posix_fallocate(file, 0, wanted)
        except OSError:
            with contextlib.suppress(OSError):  # don't keep a partial reservation
                os.ftruncate(file, self._size)
            return False
        self._size = wanted
        return True

    def yield_to_opening(self) -> None:
        """Free what it takes to open a store, if the disk has next to nothing.

        SQLite maps the index of the log. On a file system with blocks of less than 4 KiB, a process dies when
        it writes to the index and there is no block.
        """
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._path.parent)
            if disk.f_bavail * disk.f_frsize < OPENING_BYTES // 4:
                self.shrink()

    def shrink(self) -> bool:
        """Free what it takes to open a store, and keep the rest for deletes. Return whether there was any."""
        return self._shortened(by=OPENING_BYTES)

    def drop(self) -> bool:
        """Free the reserved space. Return whether there was any."""
        return self._shortened(by=sys.maxsize)

    def _shortened(self, *, by: int) -> bool:
        """Shorten the file. A byte stays: it says that there was a ballast, and that it was needed."""
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            self._size = 0
            return False
        try:
            before = os.fstat(file).st_size
            self._size = min(before, max(1, before - by))
            os.ftruncate(file, self._size)
        finally:
            os.close(file)
        return before > 1


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
        others = [os.path.realpath(self._where) + suffix for suffix in _SUFFIXES]
        found = [(os.fsencode(path), _identity(path)) for path in (os.path.abspath(self._where), *others)]
        self._known = [(path, identity) for path, identity in found if identity is not None]

    def require(self) -> None:
        """Check the files before a write, unless the last check is still valid.

        Raises:
            DatabaseError: A file is gone. Nothing was written.
        """
        if self._gone is not None or seams.monotonic() - self._looked > CHECK_SECONDS:
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
                self._looked = seams.monotonic()
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
        self._looked = seams.monotonic()
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
            f"process {seams.pid()} has open. Save it before that process ends: run holdfast rescue NEW_PATH "
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
    looks = [
        (partial(statx, _AT_FDCWD, path, 0, _STATX_INO, address), ino, _halves(dev))
        for path, (ino, dev) in known
    ]

    def look() -> bool:
        for failed, its_inode, its_device in looks:  # every commit waits for this
            if failed() or inode.value != its_inode or device.value != its_device:
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


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to a database.

    If the database is a symbolic link, SQLite keeps its log beside the file that the link leads to. The locks
    are there too, so that whoever opens that file by another name finds them.
    """
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    return path.with_name(path.name + suffix)


def require_local(path: Path) -> None:
    """Refuse a file on a network file system, or warn where that is not certain.

    Raises:
        Unsupported: Other machines may have the file open, and what both write would destroy it.
    """
    kind = _file_system(beside(path, "").parent)
    if kind in NETWORK:
        raise Unsupported(
            f"{path} is on a network file system ({kind}), where processes of several machines don't see "
            "each other's locks and would destroy the store: keep it on a local disk, and let other machines "
            f"use holdfast up. If only this machine uses it, open it as sqlite:///{path}?allow_network=true"
        )
    if kind in PERHAPS_NETWORK:
        _log.warning(
            "%s is on a file system (%s) that may be a network's: let only one machine use it", path, kind
        )


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on; None if the system does not tell."""
    try:
        device = os.stat(folder).st_dev
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            lines = mounts.readlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:  # 36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw
        place, _, what = line.partition(" - ")
        if place.split()[2] == wanted and what:
            return what.split()[0]
    return None


def keep_private(path: Path) -> None:
    """Create a database that only its owner can read, or restrict an existing one and its log to the owner.

    SQLite gives its log the mode of the database. The caller must have the store for itself. Existing files
    are not opened: see `holdfast.private`.
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
