"""The output of a command: data to stdout, everything else to stderr.

Only terminals get tables and colours; `drawing` draws the tables. Elsewhere a row is a line with tabs between
its cells, for other programs to read.
"""

from __future__ import annotations

import errno
import re
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from holdfast.edges.screen import HARMFUL, colours, harmless
from holdfast.errors import ConditionFailed, HoldfastError, StorageFull, ValidationError, VersionConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast.edges.cli.drawing import Cell
    from holdfast.model import Item

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


def rows(columns: Sequence[str], cells: Iterable[Sequence[Cell]]) -> None:
    """Print rows: as a table on a terminal, else with tabs and without a heading."""
    if on_terminal():
        # late: it takes 30 ms, and only a terminal needs it
        from holdfast.edges.cli.drawing import draw

        left_out = draw(columns, cells)
        if left_out:
            say(f"the screen is too narrow for: {', '.join(left_out)}; --json shows everything")
        return
    for row in cells:
        print("\t".join("-" if cell is None else harmless(str(cell)) for cell in row))
    print(end="", flush=True)


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
