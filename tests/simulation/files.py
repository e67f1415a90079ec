"""The small files beside a database: the audit's key, reserved space, and what processes tell each other.

The files are real. Each simulated process opens them for itself, so that `flock` keeps processes apart. When
the power fails, they lose what was not synced.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from holdfast.engines.cluster import snapshots
from holdfast.engines.sql import migrate
from holdfast.engines.sqlite import bells, examiner, sharing
from holdfast.engines.sqlite.log import LogHeader, LogRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.world import World


class SimulatedHeader:
    """What `LogHeader` is, for the index of a log on a simulated disk."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def read(self) -> bytes:
        """Return the header as it is now."""
        header: bytes = self._memory[0:48]
        return header

    def leave(self) -> None:
        """Do nothing: there is no descriptor."""


class SmallFiles:
    """What the media of machines have of their small files.

    A medium has the content that a file had when it was synced last, and the names that a folder had when it
    was synced last. When the power fails, a file that has changed since then either keeps the change or falls
    back: to its former content, to none, or its name is gone.

    Args:
        seed: Decides what is lost.
    """

    DATABASES: Final = (".db", ".db-wal", ".db-shm", ".db-journal")
    """The ends of the names of files that are on the simulated disk. The real ones are empty."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(f"small files {seed}")
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._kept: dict[int, int] = {}
        """Descriptors of files that were synced, so that no later file has the number of one of them."""
        os.fsync = self._sync  # type: ignore[assignment]

    def _sync(self, file: int) -> None:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            names = self._names[status.st_ino] = {}
            for path in sorted(Path(f"/proc/self/fd/{file}").resolve().iterdir()):
                if path.is_file():
                    names[path.name] = self._keep(os.open(path, os.O_RDONLY))
        elif stat.S_ISREG(status.st_mode):
            self._contents[self._keep(os.dup(file))] = Path(f"/proc/self/fd/{file}").read_bytes()

    def _keep(self, file: int) -> int:
        """Keep a descriptor for good, unless there is one of its file. Returns the number of the file."""
        number = os.fstat(file).st_ino
        if self._kept.setdefault(number, file) != file:
            os.close(file)
        return number

    def lose_power(self, folder: Path) -> list[str]:
        """Let the files of a folder lose what was not synced. Returns their names."""
        if not folder.is_dir():
            return []
        names = self._names.get(folder.stat().st_ino, {})
        lost = []
        for path in sorted(folder.iterdir()):
            if path.name.endswith(self.DATABASES) or not path.is_file() or self._chance.random() < 0.5:
                continue
            inode = path.stat().st_ino
            content = self._contents.get(inode, b"")
            if names.get(path.name) != inode:
                path.unlink()
            elif path.read_bytes() != content:
                path.write_bytes(content)
            else:
                continue
            lost.append(path.name)
        return lost


def share_files(world: World) -> None:
    """Let files have the world's time, and tell processes that listen to a file when it is written to."""
    write, touch = os.pwrite, os.utime
    listeners: list[tuple[int, Any, int, Callable[[], None]]] = []
    """The file, the machine that listens, its life, and what it calls."""

    def pwrite(file: int, data: bytes, offset: int) -> int:
        count = write(file, data, offset)
        inode = os.fstat(file).st_ino
        for listener in list(listeners):
            written, machine, life, heard = listener
            if machine.life != life:
                listeners.remove(listener)
            elif written == inode:
                world.after(machine, world.chance.expovariate(10_000), heard)
        return count

    def utime(path: Any, times: Any = None, *, ns: Any = None) -> None:
        now = int(world.wall() * 1e9)
        touch(path, ns=(now, now) if times is None and ns is None else ns)

    @contextlib.contextmanager
    def listening(file: int, heard: Callable[[], None]) -> Iterator[None]:
        listener = (os.fstat(file).st_ino, world.here, world.here.life, heard)
        listeners.append(listener)
        yield
        listeners.remove(listener)

    def header_of(path: Path) -> SimulatedHeader | None:
        memory = world.disk.index(str(path).removesuffix("-shm"))
        return None if memory is None else SimulatedHeader(memory)

    def extend(room: LogRoom, needed: int, size: int) -> None:
        world.disk.extend(str(room._path), needed, size)

    def name(unfinished: Path, target: Path) -> None:
        """Name a copy that SQLite has made, for programs that read it as a file and for SQLite."""
        named(unfinished, target)
        world.fault("made copy", world.here.name)
        target.write_bytes(world.disk.read(str(unfinished)))
        world.disk.rename(str(unfinished), str(target))

    def replace_file(path: Path, new: Path) -> None:
        for suffix in ("", "-wal"):
            world.disk.rename(f"{path}{suffix}", f"{path}.replaced{suffix}")
        world.disk.put(str(path), new.read_bytes())
        world.fault("installed snapshot", world.here.name)
        replaced(path, new)

    named, replaced = examiner._name, snapshots.replace_file
    examiner._name, snapshots.replace_file = name, replace_file
    LogHeader.of = header_of  # type: ignore[assignment, method-assign]
    LogRoom._extend = extend  # type: ignore[assignment, method-assign]
    os.pwrite, os.utime = pwrite, utime  # type: ignore[assignment]
    bells._inotify = listening
    # A process that is killed in a migration would keep this lock from all others.
    migrate._ALONE = contextlib.nullcontext()  # type: ignore[assignment, misc]
    # What the system tells of real processes would differ between runs.
    sharing.LockFile.holders = lambda file: []  # type: ignore[assignment, method-assign]
    sharing._command = lambda pid: ""
