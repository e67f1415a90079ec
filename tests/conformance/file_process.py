"""A process that serves a SQLite file over NATS, and opens and closes it as it is told.

    python -m tests.conformance.file_process BUS CLOCK

It reads lines from its standard input: `open PATH` and `close`. It answers each with one line, which is the
number of requests that it has answered so far. Its time is that of a `SharedClock`.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.bus.connection import Connection
from holdfast.clock import ManualClock
from holdfast.edges.nats.service import NatsService, Settings
from tests.conformance.behind import kept_at

if TYPE_CHECKING:
    from collections.abc import Iterator


PATIENCE: Final = 60.0
_TIME: Final = struct.Struct("q")


class SharedClock(ManualClock):
    """A clock that processes read and one of them moves. Its time is in a file that they map."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        super().__init__()
        if new:
            path.write_bytes(_TIME.pack(self._now))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _TIME.size)

    def now(self) -> int:
        """See `ManualClock.now`."""
        return int(_TIME.unpack(self._shared)[0])

    def advance(self, seconds: float) -> None:
        """See `ManualClock.advance`."""
        super().advance(seconds)
        self.show(self._now)

    def restart(self) -> None:
        """Go back to where the clock began, for a new store."""
        self._now = ManualClock().now()
        self.show(self._now)

    def show(self, time: int) -> None:
        """Have all processes read this time, in milliseconds since 1970."""
        _TIME.pack_into(self._shared, 0, time)


class FileProcess:
    """Such a process, as seen by the one that has started it."""

    def __init__(self, bus: str, clock: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.file_process", bus, str(clock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        """Tell it to do something, without waiting for that."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> int:
        """Wait until it has done that. Return how many requests it has answered so far."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """End it."""
        try:
            self._process.communicate(timeout=PATIENCE)
        finally:
            self._process.kill()


class FileProcesses:
    """Several of them, which serve the same file and share the requests."""

    def __init__(self, bus: str, clock: Path, count: int) -> None:
        self.clock = SharedClock(clock, new=True)
        self._processes = [FileProcess(bus, clock) for _ in range(count)]
        self.answered = [0] * count
        self._open = False

    def open(self, path: Path) -> None:
        """Have all of them serve a file, from now on."""
        self._all(f"open {path}")
        self._open = True

    def close(self) -> None:
        """Have all of them close their file, if they have one."""
        if self._open:
            self._all("close")
            self._open = False

    def _all(self, line: str) -> None:
        for process in self._processes:
            process.tell(line)
        self.answered = [process.answer() for process in self._processes]

    def end(self) -> None:
        """End them."""
        for process in self._processes:
            process.end()


@contextlib.contextmanager
def file_processes(bus: str, clock: Path, *, count: int = 3) -> Iterator[FileProcesses]:
    """Processes for the length of a block, all of which must have answered requests at its end."""
    processes = FileProcesses(bus, clock, count)
    try:
        yield processes
        assert all(processes.answered), processes.answered
    finally:
        processes.end()


async def main(bus: str, clock: str) -> None:
    """Do what the lines say until there are no more."""
    shared, answered = SharedClock(Path(clock)), 0
    async with contextlib.AsyncExitStack() as everything:
        opened = await everything.enter_async_context(contextlib.AsyncExitStack())
        while line := await asyncio.to_thread(sys.stdin.readline):
            verb, *arguments = line.split()
            if verb == "open":
                store = await opened.enter_async_context(kept_at(Path(arguments[0]))(shared))
                connection = Connection()
                await connection.reach(bus)
                opened.push_async_callback(connection.close)
                service = NatsService(store, connection, Settings())
                await service.start()
                opened.push_async_callback(service.stop)
            else:
                await opened.aclose()
                answered += sum(endpoint.num_requests for endpoint in service._discovery.endpoints)
            print(answered, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
