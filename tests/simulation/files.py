"""What processes of one machine tell each other through small files: times, and that something was written.

The files are real. Each simulated process opens them for itself, so that `flock` keeps processes apart.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from holdfast.engines.sql import migrate
from holdfast.engines.sqlite import bells, sharing
from holdfast.engines.sqlite.cache import LogHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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

    LogHeader.of = header_of  # type: ignore[assignment, method-assign]
    os.pwrite, os.utime = pwrite, utime  # type: ignore[assignment]
    bells._inotify = listening
    # A process that is killed in a migration would keep this lock from all others.
    migrate._ALONE = contextlib.nullcontext()  # type: ignore[assignment, misc]
    # What the system tells of real processes would differ between runs.
    sharing.LockFile.holders = lambda file: []  # type: ignore[assignment, method-assign]
    sharing._command = lambda pid: ""
