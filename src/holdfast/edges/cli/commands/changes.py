"""`holdfast watch` and `history`: the changes of keys.

Law: a change is printed as the journal has it, one line each. A watch runs until it is interrupted or its
output has no reader.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.revert import CLOSED, ENTRY, LEAVES, KnownValue, past_of
from holdfast.edges.cli.options import Key, number
from holdfast.edges.cli.output import document, on_terminal, rows, say, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.screen import harmless

_TAB: Final = "\t"
_GAP: Final = "  "


async def watch(
    prefix: str = "",
    /,
    *,
    since: Annotated[int | None, Parameter(converter=number)] = None,
    values: bool = False,
    target: Target = HERE,
) -> None:
    """Print changes as they happen, until Ctrl-C: time, operation, version, key and writer.

    An expiry is shown when a process that writes to the store, such as `holdfast up`, has noticed it.

    Parameters
    ----------
    prefix
        Prefix of the keys to watch; all if not given.
    since
        Start after this version instead of now; 0 starts with the oldest change in the journal.
    values
        Also print the value, if it still exists when the change is shown.
    """
    logging.getLogger("holdfast.watch").setLevel(logging.WARNING)
    async with target.look(required=True) as store:
        kv = target.keys(store)
        async for change in kv.watch(prefix, since=since):
            entry = await kv.get(change.key) if values and change.op in LEAVES else None
            found = {entry.version: KnownValue(entry.value, ENTRY)} if entry is not None else {}
            if target.json:
                document(_with_value(change, found) if values else change)
            else:
                cell = f"{_GAP if on_terminal() else _TAB}{_value(change, found) or '-'}" if values else ""
                print(_line(change) + cell, flush=True)


async def history(
    key: Key,
    /,
    *,
    limit: Annotated[int | None, Parameter(converter=number)] = None,
    values: bool = False,
    target: Target = HERE,
) -> None:
    """Print the recorded changes of a key, newest first.

    Parameters
    ----------
    limit
        Return at most this many, 1 to 10000; 1000 if not given.
    values
        Also print the values that the store still has: the current one, and the one in the trash. A value
        that was overwritten is not kept. In the JSON, value_from says where a value comes from.
    """
    async with target.look() as store:
        kv = target.keys(store)
        changes = await kv.history(key, limit=limit)
        past = await past_of(store, kv, key) if values else None
    found = {} if past is None else past.values
    if target.json:
        document({"changes": [_with_value(one, found) for one in changes] if values else changes})
    elif values:
        _print_values(changes, found)
        if past is not None and not past.trash_seen:
            say(CLOSED)
    else:
        rows(("time", "op", "version", "key", "writer"), map(_cells, changes))


def _print_values(changes: list[holdfast.Change], found: dict[int, KnownValue]) -> None:
    """Print changes with their values. A narrow terminal drops the last columns, so values come before keys
    there."""
    names = ("time", "op", "version", "key", "writer", "value")
    order = (0, 1, 2, 5, 3, 4) if on_terminal() else range(len(names))
    cells = ((*_cells(one), _value(one, found)) for one in changes)
    rows([names[at] for at in order], ([row[at] for at in order] for row in cells))


def _with_value(change: holdfast.Change, found: dict[int, KnownValue]) -> dict[str, Any]:
    """Return a change as a document, with the value that it left, if known."""
    told = msgspec.structs.asdict(change)
    if change.op not in LEAVES or change.version not in found:
        return told
    value, place = found[change.version]
    return told | {"value": value, "value_from": place}


def _value(change: holdfast.Change, found: dict[int, KnownValue]) -> str | None:
    if change.op not in LEAVES or change.version not in found:
        return None
    return harmless(msgspec.json.encode(found[change.version].value).decode())


def _cells(change: holdfast.Change) -> tuple[str, str, int, str, str | None]:
    return shown_time(change.at), change.op, change.version, shown_key(change.key), change.last_writer


def _line(change: holdfast.Change) -> str:
    """Return a change as a line: in columns on a terminal, otherwise with tabs between its cells."""
    at, op, version, key, writer = _cells(change)
    who = harmless(writer or "-")
    if on_terminal():
        return f"{at}  {op:<8}  {version:>7}  {key}  {who}"
    return f"{at}\t{op}\t{version}\t{key}\t{who}"
