"""A disk that loses what was not synced: a VFS for the SQLite that Python's `sqlite3` uses.

A file has two contents: what programs see, and what is on the medium. Writes between two syncs are kept in a
list. When the power fails, each of their sectors reaches the medium or does not, as the seed decides. When
only a process dies, the operating system still has everything, and nothing is lost.

The VFS is made of ctypes callbacks, so that it needs neither a compiler nor SQLite's headers. The functions
of the SQLite library are looked up through the extension module of `sqlite3`, which makes sure that they are
those of the library that `sqlite3` calls.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import zlib
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_uint, c_void_p
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

SECTOR: Final = 512
"""The bytes that a medium writes at once or not at all."""
LOCKS: Final = 8
"""The locks of a write-ahead log's index."""

OK, BUSY, IOERR, NOTFOUND, FULL, CANTOPEN = 0, 5, 10, 12, 13, 14
IOERR_READ, IOERR_SHORT_READ, IOERR_WRITE, IOERR_FSYNC, IOERR_DELETE_NOENT = (
    10 | 1 << 8,
    10 | 2 << 8,
    10 | 3 << 8,
    10 | 4 << 8,
    10 | 23 << 8,
)
OPEN_CREATE, OPEN_DELETE_ON_CLOSE = 4, 8
SHM_UNLOCK, SHM_EXCLUSIVE = 1, 8
POWERSAFE_OVERWRITE = 0x1000
TRACE_STATEMENTS = 1
COMMIT: Final = b"COMMIT"


class NoDisk(Exception):
    """The functions of SQLite can't be called from here."""


def library() -> ctypes.CDLL:
    """The SQLite library that `sqlite3` uses.

    Raises:
        NoDisk: Its functions can't be called.
    """
    try:
        found = ctypes.CDLL(_sqlite3.__file__)
        found.sqlite3_vfs_register  # noqa: B018 - raises if it is hidden
    except (OSError, AttributeError, TypeError):
        raise NoDisk(
            "the SQLite of this Python can't be called through ctypes: no disk is simulated"
        ) from None
    return found


class _Methods(Structure):
    _fields_ = [("version", c_int)] + [
        (name, c_void_p)
        for name in (
            *("close", "read", "write", "truncate", "sync", "size", "lock", "unlock", "reserved"),
            *("control", "sector", "device", "shm_map", "shm_lock", "shm_barrier", "shm_unmap"),
        )
    ]


class _Vfs(Structure):
    _fields_ = [
        *(("version", c_int), ("file_bytes", c_int), ("longest_path", c_int), ("next", c_void_p)),
        *(("name", c_char_p), ("data", c_void_p)),
        *(
            (name, c_void_p)
            for name in (
                *("open", "delete", "access", "full_path", "dl_open", "dl_error", "dl_sym", "dl_close"),
                *("randomness", "sleep", "time", "last_error", "time64"),
            )
        ),
    ]


class _Handle(Structure):
    _fields_ = [("methods", c_void_p), ("number", c_int64)]


class Inode:
    """A file: its content as programs see it, as the medium has it, and the writes in between."""

    def __init__(self, path: str, host: int) -> None:
        self.path = path
        self.host = host
        self.content = bytearray()
        self.medium = bytearray()
        self.unsynced: list[tuple[int, bytes | None]] = []
        """Offsets with data; an offset with None is a truncation to it."""
        self.open: list[OpenFile] = []
        self.regions: list[ctypes.Array[Any]] = []
        self.shared: list[set[int]] = [set() for _ in range(LOCKS)]
        self.exclusive: list[int | None] = [None] * LOCKS

    def sync(self) -> None:
        """Bring every write to the medium."""
        for offset, data in self.unsynced:
            _apply(self.medium, offset, data)
        self.unsynced.clear()


class OpenFile:
    """A file that a process has open."""

    def __init__(self, number: int, inode: Inode, machine: int, *, temporary: bool) -> None:
        self.number = number
        self.inode = inode
        self.machine = machine
        self.temporary = temporary
        self.lock = 0
        self.dead = False


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(max(0, offset - len(content))))
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _never(operation: str, machine: int, amount: int) -> bool:
    return False


class Disk:
    """The disks of all machines. It becomes the default VFS of SQLite in this process, for good.

    Attributes:
        here: The number of the machine that runs now.
        hosts: The disk of each machine, by its number. Processes of one machine share it.
        step: Called before a write, a sync, a truncation and a sleep, with the machine and the bytes or
            microseconds. Others may run meanwhile. Returns True if the operation must fail.
        room: The bytes by which the files of a disk may still grow.
        failing_reads: Whether the next reads of a file fail, by its path, the last of them first.
        failing_writes: The writes of a machine until one fails.
        broken: The machines whose writes all fail.
        failing_syncs: What to call when the next sync of a machine has failed.
    """

    def __init__(self) -> None:
        self.here = 0
        self.hosts: dict[int, int] = {}
        self.step: Callable[[str, int, int], bool] = _never
        self.room: dict[int, int] = {}
        self.failing_reads: dict[str, list[bool]] = {}
        self.failing_writes: dict[int, int] = {}
        self.broken: set[int] = set()
        self.failing_syncs: dict[int, Callable[[], object]] = {}
        self.random = Random(0)
        self.fates = Random(0)
        self.hash = 0
        self.operations = self.syncs = self.lost_sectors = 0
        self._syncing: Inode | None = None
        self._inodes: dict[str, Inode] = {}
        self._files: dict[int, OpenFile] = {}
        self._number = 0
        self._traces: list[Any] = []
        self._kept = self._registered()

    def seed(self, seed: int | str) -> None:
        """Begin anew with an empty disk."""
        self.random, self.fates = Random(f"sqlite {seed}"), Random(f"disk {seed}")
        self._inodes.clear()
        self.room.clear()
        self.failing_reads.clear()
        self.failing_writes.clear()
        self.failing_syncs.clear()
        self.hash = self.operations = self.syncs = self.lost_sectors = 0
        self._library.sqlite3_randomness(0, None)

    def kill(self, machine: int) -> None:
        """The process of a machine dies: its locks are free, and nothing is lost."""
        for file in self._files.values():
            if file.machine == machine and not file.dead:
                file.dead = True
                inode = file.inode
                inode.open.remove(file)
                self._unlock_index(file, 0, LOCKS)
                self._drop_unused_index(inode)

    def _drop_unused_index(self, inode: Inode) -> None:
        """Forget the index of a log that nobody has open. The next process makes it anew."""
        if not inode.open:
            self._kept_regions.append(inode.regions)
            inode.regions = []

    def files(self, host: int) -> list[str]:
        """The paths of the files on a disk."""
        return [path for path, inode in self._inodes.items() if inode.host == host]

    def read(self, path: str) -> bytes:
        """Bring a file to the medium, and return all of it."""
        inode = self._inodes[path]
        inode.sync()
        return bytes(inode.content)

    def put(self, path: str, content: bytes) -> None:
        """Put a file in a place, on the medium as well."""
        inode = self._inodes[path] = Inode(path, self.hosts.get(self.here, self.here))
        inode.content, inode.medium = bytearray(content), bytearray(content)

    def rename(self, path: str, new: str) -> None:
        """Give a file another name, on the medium as well, if it is there."""
        if (inode := self._inodes.pop(path, None)) is not None:
            inode.path = new
            self._inodes[new] = inode

    def sync_now(self) -> None:
        """Do the sync that is under way."""
        assert self._syncing is not None
        self._syncing.sync()

    def lose_power(self, host: int) -> None:
        """A disk loses what was not synced. No process has a file of it open."""
        for inode in self._inodes.values():
            if inode.host == host:
                self._lose(inode)

    def _lose(self, inode: Inode) -> None:
        """Decide for every unsynced sector whether it reaches the medium.

        Each file has one of four fates: all is lost, nearly all arrives, or sectors arrive with a chance of
        a half or of three quarters, independently, so that writes are torn and out of order.
        """
        chance = self.fates
        fate = chance.randrange(4)
        for offset, data in inode.unsynced:
            if fate == 0:
                self.lost_sectors += 1
            elif data is None:
                if chance.random() < 0.5:
                    _apply(inode.medium, offset, None)
            elif fate == 1 and chance.random() < 0.9:
                _apply(inode.medium, offset, data)
            else:
                for start in range(0, len(data), SECTOR):
                    if chance.random() < (0.5 if fate == 2 else 0.75):
                        _apply(inode.medium, offset + start, data[start : start + SECTOR])
                    else:
                        self.lost_sectors += 1
        inode.unsynced.clear()
        inode.content = bytearray(inode.medium)

    def index(self, path: str) -> ctypes.Array[Any] | None:
        """The memory in which processes share the beginning of the index of a file's log, if they do."""
        inode = self._inodes.get(path)
        return inode.regions[0] if inode is not None and inode.regions else None

    def extend(self, path: str, needed: int, size: int) -> None:
        """Extend a file to a size with zeros if it is shorter than what is needed, without SQLite."""
        inode = self._inodes[path]
        if (end := len(inode.content)) < needed:
            zeros = bytes(size - end)
            inode.unsynced.append((end, zeros))
            inode.content += zeros

    def trace(self, connection: sqlite3.Connection, before: Callable[[bool], object]) -> None:
        """Call a function before each statement of a connection, with whether it is a commit.

        This is what `set_trace_callback` does, which costs a third of a run: it makes a text of each
        statement with all values in it.
        """

        def called(event: int, context: int, statement: int, text: int) -> int:
            before(ctypes.string_at(text, len(COMMIT)) == COMMIT)
            return OK

        if not self._traces:
            self._traces.append(CFUNCTYPE(c_int, c_uint, c_void_p, c_void_p, c_void_p)(called))
        database = c_void_p.from_address(id(connection) + object.__basicsize__)
        self._library.sqlite3_trace_v2(database, TRACE_STATEMENTS, self._traces[0], None)

    # What SQLite calls. The first argument of the methods of a file is the address of its handle.

    def _file(self, at: int) -> OpenFile:
        return self._files[_Handle.from_address(at).number]

    def _begin(self, operation: str, file: OpenFile, amount: int) -> bool:
        """Let others run before an operation; True if it must fail."""
        self.operations += 1
        return file.dead or self.step(operation, file.machine, amount) or file.dead

    def _open(self, vfs: int, name: bytes | None, at: int, flags: int, out: int) -> int:
        handle = _Handle.from_address(at)
        handle.methods = None
        inode = None if name is None else self._inodes.get(name.decode())
        if inode is None:
            if name is not None and not flags & OPEN_CREATE:
                return CANTOPEN
            inode = Inode("" if name is None else name.decode(), self.hosts.get(self.here, self.here))
            if name is not None:
                self._inodes[inode.path] = inode
        self._number += 1
        temporary = name is None or bool(flags & OPEN_DELETE_ON_CLOSE)
        file = self._files[self._number] = OpenFile(self._number, inode, self.here, temporary=temporary)
        inode.open.append(file)
        handle.number = file.number
        handle.methods = self._methods_at
        if out:
            c_int.from_address(out).value = flags
        return OK

    def _close(self, at: int) -> int:
        file = self._files.pop(_Handle.from_address(at).number)
        if not file.dead:
            inode = file.inode
            inode.open.remove(file)
            self._unlock_index(file, 0, LOCKS)
            self._drop_unused_index(inode)
            if file.temporary:
                self._inodes.pop(inode.path, None)
        return OK

    def _read(self, at: int, to: int, count: int, offset: int) -> int:
        file = self._file(at)
        if file.dead:
            return IOERR
        failing = self.failing_reads.get(file.inode.path)
        if failing and failing.pop():
            return IOERR_READ
        data = bytes(file.inode.content[offset : offset + count])
        ctypes.memmove(to, data, len(data))
        if len(data) < count:
            ctypes.memset(to + len(data), 0, count - len(data))
            return IOERR_SHORT_READ
        return OK

    def _write(self, at: int, source: int, count: int, offset: int) -> int:
        file = self._file(at)
        data = ctypes.string_at(source, count)
        inode, machine = file.inode, file.machine
        room, host = self.room, inode.host
        self.hash = zlib.crc32(data, self.hash ^ offset)
        if self._begin("write", file, count) or machine in self.broken:
            return IOERR_WRITE
        if (left := self.failing_writes.get(machine, 0)) > 0:
            self.failing_writes[machine] = left - 1
            if left == 1:
                return IOERR_WRITE
        growth = offset + count - len(inode.content)
        if growth > 0 and host in room:
            if room[host] < growth:
                return FULL
            room[host] -= growth
        _apply(inode.content, offset, data)
        inode.unsynced.append((offset, data))
        return OK

    def _truncate(self, at: int, size: int) -> int:
        file = self._file(at)
        if self._begin("truncate", file, size):
            return IOERR
        inode = file.inode
        if inode.host in self.room:
            self.room[inode.host] += max(0, len(inode.content) - size)
        _apply(inode.content, size, None)
        inode.unsynced.append((size, None))
        return OK

    def _sync(self, at: int, flags: int) -> int:
        file = self._file(at)
        self.syncs += 1
        self._syncing = file.inode
        if self._begin("sync", file, 0):
            return IOERR_FSYNC
        if (failed := self.failing_syncs.pop(file.machine, None)) is not None:
            failed()
            return IOERR_FSYNC
        file.inode.sync()
        return OK

    def _size(self, at: int, out: int) -> int:
        c_int64.from_address(out).value = len(self._file(at).inode.content)
        return OK

    def _lock(self, at: int, level: int) -> int:
        file = self._file(at)
        if file.dead:
            return IOERR
        for other in file.inode.open:
            if other is file or level <= file.lock:
                continue
            if other.lock >= 3 or (level >= 2 and other.lock >= 2):
                return BUSY
            if level == 4 and other.lock >= 1:
                file.lock = 3
                return BUSY
        file.lock = max(file.lock, level)
        return OK

    def _unlock(self, at: int, level: int) -> int:
        file = self._file(at)
        file.lock = min(file.lock, level)
        return OK

    def _reserved(self, at: int, out: int) -> int:
        c_int.from_address(out).value = any(other.lock >= 2 for other in self._file(at).inode.open)
        return OK

    def _control(self, at: int, operation: int, argument: int) -> int:
        return NOTFOUND

    def _sector(self, at: int) -> int:
        return 4096

    def _device(self, at: int) -> int:
        return POWERSAFE_OVERWRITE

    def _shm_map(self, at: int, region: int, size: int, extend: int, out: int) -> int:
        file = self._file(at)
        if file.dead:
            return IOERR
        regions = file.inode.regions
        place = c_void_p.from_address(out)
        place.value = None
        if region >= len(regions) and not extend:
            return OK
        while region >= len(regions):
            regions.append(ctypes.create_string_buffer(size))
        place.value = ctypes.addressof(regions[region])
        return OK

    def _shm_lock(self, at: int, first: int, count: int, flags: int) -> int:
        file = self._file(at)
        if file.dead:
            return IOERR
        if flags & SHM_UNLOCK:
            self._unlock_index(file, first, count)
            return OK
        inode, number = file.inode, file.number
        for place in range(first, first + count):
            if inode.exclusive[place] not in (None, number):
                return BUSY
            if flags & SHM_EXCLUSIVE and inode.shared[place] - {number}:
                return BUSY
        for place in range(first, first + count):
            if flags & SHM_EXCLUSIVE:
                inode.exclusive[place] = number
            else:
                inode.shared[place].add(number)
        return OK

    def _unlock_index(self, file: OpenFile, first: int, count: int) -> None:
        inode = file.inode
        for place in range(first, first + count):
            inode.shared[place].discard(file.number)
            if inode.exclusive[place] == file.number:
                inode.exclusive[place] = None

    def _shm_barrier(self, at: int) -> None:
        pass

    def _shm_unmap(self, at: int, delete: int) -> int:
        file = self._file(at)
        if file.dead:
            return IOERR
        self._unlock_index(file, 0, LOCKS)
        if delete:
            self._kept_regions.append(file.inode.regions)
            file.inode.regions = []
        return OK

    def _delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        return IOERR_DELETE_NOENT if self._inodes.pop(name.decode(), None) is None else OK

    def _access(self, vfs: int, name: bytes, flags: int, out: int) -> int:
        inode = self._inodes.get(name.decode())
        c_int.from_address(out).value = inode is not None and bool(flags or inode.content)
        return OK

    def _full_path(self, vfs: int, name: bytes, room: int, out: int) -> int:
        ctypes.memmove(out, name + b"\0", min(len(name) + 1, room))
        return OK

    def _randomness(self, vfs: int, count: int, out: int) -> int:
        ctypes.memmove(out, self.random.randbytes(count), count)
        return count

    def _sleep(self, vfs: int, microseconds: int) -> int:
        self.step("sleep", self.here, microseconds)
        return microseconds

    def _time(self, vfs: int, out: int) -> int:
        c_double.from_address(out).value = 2_440_587.5
        return OK

    def _time64(self, vfs: int, out: int) -> int:
        c_int64.from_address(out).value = 210_866_760_000_000
        return OK

    def _last_error(self, vfs: int, count: int, out: int) -> int:
        return 0

    def _registered(self) -> list[Any]:
        """Make this the default VFS, and return what must not be collected."""
        self._kept_regions: list[list[ctypes.Array[Any]]] = []
        self._library = library()
        register = self._library.sqlite3_vfs_register
        at, number, size = c_void_p, c_int, c_int64
        methods, vfs = (
            _Methods(version=2),
            _Vfs(version=2, file_bytes=ctypes.sizeof(_Handle), longest_path=1024),
        )
        vfs.name = b"simulated"
        kept: list[Any] = [methods, vfs]
        for name, *arguments in (
            *(("close", at), ("read", at, at, number, size), ("write", at, at, number, size)),
            *(("truncate", at, size), ("sync", at, number), ("size", at, at), ("lock", at, number)),
            *(("unlock", at, number), ("reserved", at, at), ("control", at, number, at), ("sector", at)),
            *(("device", at), ("shm_map", at, number, number, number, at), ("shm_barrier", at)),
            *(("shm_lock", at, number, number, number), ("shm_unmap", at, number)),
        ):
            _install(methods, name, getattr(self, f"_{name}"), arguments, kept)
        for name, *arguments in (
            *(("open", at, c_char_p, at, number, at), ("delete", at, c_char_p, number)),
            *(("access", at, c_char_p, number, at), ("full_path", at, c_char_p, number, at)),
            *(("randomness", at, number, at), ("sleep", at, number), ("time", at, at)),
            *(("last_error", at, number, at), ("time64", at, at)),
        ):
            _install(vfs, name, getattr(self, f"_{name}"), arguments, kept)
        self._methods_at = ctypes.addressof(methods)
        register.argtypes = [POINTER(_Vfs), c_int]
        if register(ctypes.byref(vfs), 1) != OK:
            raise NoDisk("SQLite does not take another VFS")
        return kept


def _install(table: Structure, name: str, method: Any, arguments: list[Any], kept: list[Any]) -> None:
    callback = CFUNCTYPE(None if name == "shm_barrier" else c_int, *arguments)(method)
    kept.append(callback)
    setattr(table, name, ctypes.cast(callback, c_void_p))
