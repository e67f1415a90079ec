"""Tells watches and followers about changes that other processes have made to the file.

A process that has changed something writes to the file of the turn, and Linux tells those who listen. Changes
by programs that don't, and changes on other systems, are found by looking every tenth of a second. Which
namespaces have changed is read from the store. A bell that rings for nothing does no harm.

A watch names its namespace. A follower is told of all of them, and only when others have written: reading the
versions of all namespaces takes a while if there are many.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from holdfast import seams
from holdfast.errors import HoldfastError

LISTEN_SECONDS: Final = 0.1
"""The interval at which a process that watches looks for changes that it was not told of."""
NAMES: Final = 500
"""The number of namespaces to ask for in one statement."""
FOLLOW_SECONDS: Final = 0.005
"""The shortest time between two looks of a follower. A process hears itself, too."""
REST: Final = 10
"""The length of the pause after the versions of all namespaces were read, as a multiple of the time taken."""
_IN_MODIFY: Final = 2


class NamespaceBells:
    """Rings the bells of namespaces that have changed. Loop only.

    Args:
        connection: Returns a connection that may be used on the loop, or None once the file is closed.
        turn: Returns the descriptor of the file of the turn.
        written_by_others: Returns a number that changes if other processes write, and only then.
        heads: Returns the newest version of every namespace.
    """

    def __init__(
        self,
        connection: Callable[[], sqlite3.Connection | None],
        turn: Callable[[], int],
        *,
        written_by_others: Callable[[], Awaitable[int]],
        heads: Callable[[], Awaitable[list[tuple[str, int]]]],
    ) -> None:
        self._connection = connection
        self._turn = turn
        self._written_by_others = written_by_others
        self._heads = heads
        self._rings: dict[str, dict[Callable[[], None], None]] = {}
        self._followers: dict[asyncio.Event, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def hang(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` when a namespace may have changed. Return a function that stops this."""
        self._rings.setdefault(namespace, {})[ring] = None
        self._begin()

        def stop() -> None:
            rings = self._rings.get(namespace, {})
            rings.pop(ring, None)
            if not rings:
                self._rings.pop(namespace, None)
            self._end_if_unused()

        return stop

    def follow(self, changed: Callable[[Sequence[tuple[str, int]]], None]) -> Callable[[], None]:
        """Call `changed` with all versions at first, and when others have written; see `LocalFile.follow`."""
        written = asyncio.Event()
        written.set()
        following = self._follow(written, changed)
        self._followers[written] = asyncio.get_running_loop().create_task(following, name="holdfast follower")
        self._begin()

        def stop() -> None:
            task = self._followers.pop(written, None)
            if task is not None:
                task.cancel()
            self._end_if_unused()

        return stop

    def _begin(self) -> None:
        if self._task is None or self._task.done():  # the program may have cancelled all its tasks
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="holdfast bells")

    def _end_if_unused(self) -> None:
        if not self._rings and not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def aclose(self) -> None:
        """Stop listening."""
        tasks = [*self._followers.values(), *([] if self._task is None else [self._task])]
        self._followers.clear()
        self._task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _listen(self) -> None:
        heard = asyncio.Event()
        version, revisions = -1, dict[str, int]()
        with _inotify(self._turn(), heard.set):
            while (connection := self._connection()) is not None:
                with contextlib.suppress(sqlite3.Error):  # locked for a moment: look again
                    [latest] = connection.execute("PRAGMA data_version").fetchone()
                    if latest != version:
                        for written in self._followers:
                            written.set()
                        names = list(self._rings)
                        found = _revisions(connection, names)
                        self._ring([name for name in names if found.get(name) != revisions.get(name)])
                        version, revisions = latest, found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LISTEN_SECONDS):
                        await heard.wait()
                heard.clear()

    async def _follow(
        self, written: asyncio.Event, changed: Callable[[Sequence[tuple[str, int]]], None]
    ) -> None:
        known: int | None = None
        while await written.wait():
            written.clear()
            started = seams.monotonic()
            try:
                number = await self._written_by_others()
                if number != known:
                    changed(await self._heads())
                    known = number
            except HoldfastError:  # another process is stopped in its turn, or the file is gone: look again
                written.set()
                await asyncio.sleep(LISTEN_SECONDS)
            await asyncio.sleep(max(FOLLOW_SECONDS, REST * (seams.monotonic() - started)))

    def _ring(self, names: Sequence[str]) -> None:
        for name in names:
            for ring in list(self._rings.get(name, ())):
                ring()


def _revisions(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(names), NAMES):
        some = names[start : start + NAMES]
        places = ", ".join("?" * len(some))
        found.update(
            connection.execute(
                f"SELECT name, revision FROM holdfast_namespaces WHERE name IN ({places})", some
            ).fetchall()
        )
    return found


@contextlib.contextmanager
def _inotify(file: int, heard: Callable[[], None]) -> Iterator[None]:
    """Call `heard` on the loop when a file is written to, where the system has inotify."""
    # late: it takes 3 ms, and only a program that watches needs it
    import ctypes

    try:
        system = ctypes.CDLL(None)
        queue: int = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        queue = -1
    if queue < 0:
        yield
        return

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(queue, 65_536)
        heard()

    loop = asyncio.get_running_loop()
    try:
        # By its descriptor: the path may be relative, or another file may be there by now.
        system.inotify_add_watch(queue, os.fsencode(f"/proc/self/fd/{file}"), _IN_MODIFY)
        loop.add_reader(queue, read)
        yield
    finally:
        loop.remove_reader(queue)
        os.close(queue)
