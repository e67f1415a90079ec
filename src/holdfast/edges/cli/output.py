"""What a command leaves behind: its output, the files that it writes, and its exit code.

Data goes to stdout, everything else to stderr. Only terminals get tables and colours. Elsewhere a row is a
line with tabs between its cells, for other programs to read. A table on a terminal is fitted to its width: a
value is never broken letter by letter. Only the widest column may be folded, down to a readable width. If
that does not suffice, columns are dropped from the right, and the user is told which.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TextIO

import msgspec

from holdfast import private, seams
from holdfast.edges.screen import HARMFUL, colours, harmless
from holdfast.engine import Movable
from holdfast.errors import ConditionFailed, HoldfastError, StorageFull, ValidationError, VersionConflict
from holdfast.model import Item

if TYPE_CHECKING:
    from rich.table import Table

Cell = str | int | float | None

OK: Final = 0
ERROR: Final = 1
"""An error that neither a retry nor a different request fixes."""
USAGE: Final = 2
"""The command line is not understood, or asks for something that is not allowed."""
NOT_FOUND: Final = 3
CONFLICT: Final = 4
"""Another writer came first: read again, then decide."""
UNAVAILABLE: Final = 5
"""The same command may succeed later."""
FORBIDDEN: Final = 6
INTERRUPTED: Final = 130
"""Ctrl-C, by the convention of shells: 128 plus the number of the signal."""
PIPE_CLOSED: Final = 141
"""The reader of the output has gone; numbered in the same way."""

_ERRORS: Final = {
    USAGE: "INVALID_JSON MISSING_FIELD INVALID_SUBJECT INVALID_PLUGIN_NAME VALIDATION_ERROR VALUE_TOO_LARGE"
    " TOO_EXPENSIVE",
    NOT_FOUND: "KEY_NOT_FOUND TABLE_NOT_FOUND ITEM_NOT_FOUND INDEX_NOT_FOUND",
    CONFLICT: "VERSION_CONFLICT CONDITION_FAILED FENCED TABLE_EXISTS",
    UNAVAILABLE: "RATE_LIMITED BUSY TIMEOUT UNAVAILABLE STORAGE_FULL OUTCOME_UNKNOWN",
    FORBIDDEN: "PERMISSION_DENIED",
    ERROR: "TTL_NOT_CONFIGURED QUOTA_EXCEEDED UNSUPPORTED DATABASE_ERROR INTERNAL_ERROR",
}
EXIT_CODES: Final = {code: number for number, codes in _ERRORS.items() for code in codes.split()}
"""The exit code of every error."""


def exit_code(error: HoldfastError) -> int:
    """Return the exit code of a command that failed with this error."""
    return EXIT_CODES[error.code]


_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33"}
_DELICATE: Final = re.compile(f'^"|{HARMFUL.pattern}')


def document(content: object) -> None:
    """Print a document as one line of JSON, and flush."""
    print(document_text(content), flush=True)


def document_text(content: object) -> str:
    """Return a document as one line of JSON that does nothing to a terminal."""
    return harmless(msgspec.json.encode(content).decode())


def value(content: object) -> None:
    """Print a value as JSON: indented on a terminal, otherwise on one line."""
    text = msgspec.json.encode(content)
    if on_terminal():
        print(harmless(msgspec.json.format(text, indent=2).decode(), lines=True))
    else:
        document(content)


def raw_value(content: object) -> None:
    """Print text without quotes and any other value as JSON, both escaped on a terminal."""
    if not isinstance(content, str):
        value(content)
    else:
        print(harmless(content, lines=True) if on_terminal() else content)


def line(text: object) -> None:
    """Print a line of data."""
    print(harmless(str(text), lines=True))


def answer(as_json: bool, content: object, text: object) -> None:
    """Print the answer of a command: as a document, or else as a line of text."""
    if as_json:
        document(content)
    else:
        line(text)


def report(as_json: bool, content: object, message: str) -> None:
    """Print the same as a document, or else tell the user what was done."""
    if as_json:
        document(content)
    else:
        say(message)


def say(text: str, *, colour: str | None = None) -> None:
    """Print a message for the user, which is not data, to stderr."""
    name = "holdfast:" if colour is None else coloured("holdfast:", colour, sys.stderr)
    print(f"{name} {harmless(text, lines=True)}", file=sys.stderr)


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """Return text in a colour if the stream is a terminal and colours are not disabled; else unchanged."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colours(stream) else text


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def rows(columns: Sequence[str], cells: Iterable[Sequence[Any]]) -> None:
    """Print rows: as a table on a terminal, else with tabs and without a heading."""
    lines = ([_cell(cell) for cell in row] for row in cells)
    if on_terminal():
        left_out = draw(columns, lines)
        if left_out:
            say(f"the screen is too narrow for: {', '.join(left_out)}; --json shows everything")
        return
    for row in lines:
        print("\t".join("-" if cell is None else harmless(str(cell)) for cell in row))
    print(end="", flush=True)


def records(columns: str, shown: Iterable[object]) -> None:
    """Print rows of records. A column is a field of them, as in `key`, or has another heading, `time=at`."""
    names = [word.rpartition("=") for word in columns.split()]
    rows([heading or field for heading, _, field in names], (_cells(record, names) for record in shown))


def _cells(record: object, names: list[tuple[str, str, str]]) -> list[Any]:
    cells = ((field, getattr(record, field)) for _, _, field in names)
    return [shown_key(cell) or None if field == "key" else cell for field, cell in cells]


def _cell(content: Any) -> Cell:
    """Return the content of a cell for people."""
    if isinstance(content, bool):
        return "yes" if content else "no"
    if content is None or isinstance(content, (str, int, float)):
        return content
    return shown_time(content) if hasattr(content, "isoformat") else str(content)


def field_rows(content: Mapping[str, Any], *, heading: str = "content") -> None:
    """Print the fields of one thing, a row each."""
    rows(("field", heading), content.items())


def amount(count: int, one: str, several: str = "") -> str:
    """Return a number of things in words, as in `1 key` and `2 keys`."""
    return f"1 {one}" if count == 1 else f"{count} {several or one + 's'}"


def shown_key(key: str) -> str:
    """Return a key in readable form; one that would break a line or affect a terminal becomes JSON."""
    if not _DELICATE.search(key):
        return key
    # late: it takes 2 ms, and such keys are rare
    import json

    return json.dumps(key)


def shown_time(moment: datetime) -> str:
    """Return a time to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def complain(error: HoldfastError, *, as_json: bool) -> None:
    """Report an error on stderr: as a line for people, or as a document."""
    if not as_json:
        say(error.message, colour="red")
        return
    print(document_text(refusal(error)), file=sys.stderr)


def refusal(error: HoldfastError) -> dict[str, Any]:
    """Return an error as a document for scripts."""
    fields: dict[str, Any] = {
        "error_code": error.code,
        "message": error.message,
        "field": error.field,
        "retryable": error.retryable,
    }
    if isinstance(error, VersionConflict):
        fields["current"] = error.current if error.item is None else item_document(error.item)
    if isinstance(error, ConditionFailed):
        fields["current"] = None if error.current is None else item_document(error.current)
    extra = {name: getattr(error, name, None) for name in ("reason", "retry_after")}
    return fields | {name: content for name, content in extra.items() if content is not None}


def item_document(item: Item) -> dict[str, Any]:
    """Return an item as a document."""
    return {"item": item.value, "version": item.version, "expires_at": item.expires_at}


def file_trouble(error: OSError, path: object, *, field: str) -> HoldfastError:
    """Convert an operating system error about a file that the user named."""
    if error.errno == errno.ENOSPC:
        return StorageFull(f"there is no room left for {path}", field=field)
    reason = (error.strerror or "it can't be used").lower()
    return ValidationError(f"{path}: {reason}", field=field)


READABLE: Final = 20
"""Minimum width of a folded column."""
GAP: Final = 3
"""The space between two columns."""
EDGES: Final = 2
"""The space at both sides of a table."""
_MILLISECONDS: Final = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{3}Z$")
"""A time as JSON and pipes have it; a table shows it to the second, so that it fits."""


def draw(columns: Sequence[str], cells: Iterable[Sequence[Cell]]) -> Sequence[str]:
    """Draw a table. Returns the names of the columns that did not fit."""
    # late: it takes 30 ms, and only a terminal needs it
    from rich.console import Console

    console = Console()
    drawn = table(columns, cells, width=console.width)
    console.print(drawn)
    return columns[len(drawn.columns) :]


def table(columns: Sequence[str], cells: Iterable[Sequence[Cell]], *, width: int) -> Table:
    """Return a table of at most this width; columns of numbers are right-aligned."""
    # late: it takes 30 ms, and only a terminal needs it
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    all_rows = [list(row) for row in cells]
    texts = [[_text(cell) for cell in row] for row in all_rows]
    natural = [
        max(cell_len(text) for text in (name, *(row[position] for row in texts)))
        for position, name in enumerate(columns)
    ]
    widths = fitted(natural, width)
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    for position, wide in enumerate(widths):
        numeric = all(not isinstance(row[position], str) for row in all_rows)
        drawn.add_column(
            columns[position], justify="right" if numeric else "left", overflow="fold", width=wide
        )
    for row in texts:
        drawn.add_row(*map(Text, row[: len(widths)]))
    return drawn


def fitted(natural: Sequence[int], width: int) -> list[int]:
    """Return the widths of the leading columns that fit."""
    for kept in range(len(natural), 1, -1):
        widths = list(natural[:kept])
        widest = widths.index(max(widths))
        room = width - EDGES - GAP * (kept - 1) - (sum(widths) - widths[widest])
        if room >= min(widths[widest], READABLE):
            widths[widest] = min(widths[widest], room)
            return widths
    return [min(one, width - EDGES) for one in natural[:1]]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, (int, float)):
        return str(cell)
    return _MILLISECONDS.sub(r"\1Z", harmless(cell))


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


@contextlib.contextmanager
def opened_input(name: str | Path, *, field: str) -> Iterator[IO[bytes]]:
    """Open a file that the user named.

    Raises:
        ValidationError: It can't be read.
    """
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise file_trouble(error, name, field=field) from None


def require_free(name: str | Path | None, *, force: bool, field: str = "out") -> None:
    """Refuse to overwrite a file before any work is done for it.

    Raises:
        ValidationError: The file exists, and `force` is not set.
    """
    if name is not None and not force and os.path.lexists(name):
        raise ValidationError(f"{name} already exists; --force replaces it", field=field)


@contextlib.contextmanager
def whole_file(path: Path, *, field: str = "out", force: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that gets its name once it is complete and durable, and that only its owner can read.

    Raises:
        ValidationError: The file can't be written, or it exists and `force` is not set.
    """
    # A process that was killed in this may have had the id of this one: a container's is always the same.
    unfinished = path.parent / f".{path.name}.{seams.token(4)}"
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with open(private.create(unfinished), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        require_free(path, force=force, field=field)
        unfinished.replace(path)
        private.sync(path.parent)
    except OSError as error:
        raise file_trouble(error, path, field=field) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


class Screen:
    """A terminal, to which text is written escaped."""

    def write(self, line: bytes, /) -> None:
        sys.stdout.write(harmless(line.decode(), lines=True))

    def writelines(self, lines: Iterable[bytes], /) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def opened_output(name: str | None, *, force: bool) -> Iterator[IO[bytes] | Screen]:
    """Open stdout, or a file that gets its name once it is complete."""
    if name is None:
        yield Screen() if on_terminal() else sys.stdout.buffer
        return
    with whole_file(Path(name), force=force) as file:
        yield file


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
