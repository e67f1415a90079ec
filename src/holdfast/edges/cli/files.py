"""Files that commands read and write, and the bar that shows how far a command has come."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from holdfast import private
from holdfast.edges.cli.output import file_trouble, on_terminal
from holdfast.edges.screen import harmless
from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from holdfast.engine.raw import Movable

_LONGEST: Final = 16 * 1024 * 1024
"""Maximum number of bytes of a line. No entry has so many, even if each of its characters is escaped."""


def lines_of(file: IO[bytes], *, field: str) -> Iterator[bytes]:
    """Yield the lines of a file, of which memory holds one at a time.

    Raises:
        ValidationError: A line is too long to be one of ours.
    """
    number = 1
    while line := file.readline(_LONGEST + 1):
        if len(line) > _LONGEST:
            raise ValidationError(f"line {number} has more than {_LONGEST} bytes", field=field)
        yield line
        number += 1


def require_free(name: str | Path | None, *, force: bool, field: str = "out") -> None:
    """Refuse to overwrite a file before any work is done for it.

    Raises:
        ValidationError: The file exists, and `force` is not set.
    """
    if name is not None and not force and os.path.lexists(name):
        raise ValidationError(f"{name} already exists; --force replaces it", field=field)


@contextlib.contextmanager
def whole_file(path: Path, *, field: str = "out", force: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that gets its name once it is complete, and that only its owner can read.

    Raises:
        ValidationError: The file can't be written, or it exists and `force` is not set.
    """
    unfinished = path.parent / f".{path.name}.{os.getpid()}"
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with open(private.create(unfinished), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        require_free(path, force=force, field=field)
        unfinished.replace(path)
    except OSError as error:
        raise file_trouble(error, path, field=field) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


@contextlib.contextmanager
def opened_output(name: str | None, *, force: bool) -> Iterator[Output]:
    """Open stdout, or a file that gets its name once it is complete."""
    if name is None:
        yield _Screen() if on_terminal() else sys.stdout.buffer
        return
    with whole_file(Path(name), force=force) as file:
        yield file


class Output(Protocol):
    """A destination for lines of JSON."""

    def write(self, line: bytes, /) -> object:
        """Write a line."""

    def writelines(self, lines: Iterable[bytes], /) -> object:
        """Write several lines."""


class _Screen:
    """A terminal, to which text is written escaped."""

    def write(self, line: bytes, /) -> None:
        sys.stdout.write(harmless(line.decode(), lines=True))

    def writelines(self, lines: Iterable[bytes], /) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def progress(what: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts entries or bytes, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    # late: it takes 35 ms, and only a terminal needs it
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    far = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = TextColumn("{task.description}"), BarColumn(), far, TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)
            done, most = bar.tasks[task].completed, bar.tasks[task].total
            if most is not None and done > most:  # the store grows meanwhile
                bar.update(task, total=done)

        yield advance


async def counted(store: Movable) -> int | None:
    """Return how many things a store holds, for a progress bar; None where no bar is shown."""
    if not sys.stderr.isatty():
        return None
    async with store.snapshot() as snapshot:
        return await snapshot.count()
