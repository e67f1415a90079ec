"""What a command prints: data to stdout, everything else to stderr.

Law: tables and colours are for terminals alone; tables are drawn in `drawing`. Elsewhere a row is a line with
tabs between its cells, for other programs to read.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from holdfast.edges.screen import HARMFUL, harmless
from holdfast.errors import ConditionFailed, HoldfastError, StorageFull, ValidationError, VersionConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast.edges.cli.drawing import Cell
    from holdfast.model import Item

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33"}
_DELICATE: Final = re.compile(f'^"|{HARMFUL.pattern}')


def document(content: object) -> None:
    """Print something as one line of JSON, at once."""
    print(_json(content), flush=True)


def value(content: object) -> None:
    """Print a value as JSON: set out over lines for eyes, on one line for programs."""
    text = msgspec.json.encode(content)
    if on_terminal():
        print(harmless(msgspec.json.format(text, indent=2).decode(), lines=True))
    else:
        document(content)


def raw_value(content: object) -> None:
    """Print text without quotes, and any other value as JSON. A terminal is given nothing to obey."""
    if not isinstance(content, str):
        value(content)
    else:
        print(harmless(content, lines=True) if on_terminal() else content)


def line(text: object) -> None:
    """Print a line of data."""
    print(harmless(str(text), lines=True))


def say(text: str, *, colour: str | None = None) -> None:
    """Tell the user something that is no data."""
    name = "holdfast:" if colour is None else coloured("holdfast:", colour, sys.stderr)
    print(f"{name} {harmless(text, lines=True)}", file=sys.stderr)


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """Text in a colour where somebody sees it and did not ask for none; elsewhere as it is."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def on_terminal() -> bool:
    """Whether somebody looks at the data."""
    return sys.stdout is not None and sys.stdout.isatty()


def rows(columns: Sequence[str], cells: Iterable[Sequence[Cell]]) -> None:
    """Print rows: as a table on a terminal, else with tabs and without a heading."""
    if on_terminal():
        from holdfast.edges.cli.drawing import draw

        left_out = draw(columns, cells)
        if left_out:
            say(f"the screen is too narrow for: {', '.join(left_out)}; --json shows everything")
        return
    for row in cells:
        print("\t".join("-" if cell is None else harmless(str(cell)) for cell in row))
    print(end="", flush=True)


def shown_key(key: str) -> str:
    """A key as people read it; one that would disturb a line or a terminal is written as JSON."""
    if not _DELICATE.search(key):
        return key
    import json  # for such a key alone: every command would wait for it

    return json.dumps(key)


def shown_time(moment: datetime) -> str:
    """A time to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def complain(error: HoldfastError, *, as_json: bool) -> None:
    """Tell of an error on stderr: one line for people, or a document."""
    if not as_json:
        say(error.message, colour="red")
        return
    print(_json(refusal(error)), file=sys.stderr)


def refusal(error: HoldfastError) -> dict[str, Any]:
    """An error as a document: what a script can act on."""
    told: dict[str, Any] = {
        "error_code": error.code,
        "message": error.message,
        "field": error.field,
        "retryable": error.retryable,
    }
    if isinstance(error, VersionConflict):
        told["current"] = error.current if error.item is None else item_document(error.item)
    if isinstance(error, ConditionFailed):
        told["current"] = None if error.current is None else item_document(error.current)
    extra = {name: getattr(error, name, None) for name in ("reason", "retry_after")}
    return told | {name: content for name, content in extra.items() if content is not None}


def item_document(item: Item) -> dict[str, Any]:
    """An item as JSON shows it."""
    return {"item": item.value, "version": item.version, "expires_at": item.expires_at}


def file_trouble(error: OSError, path: object, *, field: str) -> HoldfastError:
    """The error of ours for one of the operating system about a file that the user named."""
    if error.errno == errno.ENOSPC:
        return StorageFull(f"there is no room left for {path}", field=field)
    reason = (error.strerror or "it can't be used").lower()
    return ValidationError(f"{path}: {reason}", field=field)


def _json(content: object) -> str:
    """JSON in which nothing stands as it is that a terminal would obey."""
    return harmless(msgspec.json.encode(content).decode())
