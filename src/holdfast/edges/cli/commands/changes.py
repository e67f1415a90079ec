"""`holdfast watch` and `history`: the changes of keys.

The journal and the audit keep no values. So at most two values of a key are known: that of the current entry,
and the one that the trash keeps of the last deletion or expiry. A value that was overwritten is gone.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.options import Key, number
from holdfast.edges.cli.output import document, on_terminal, rows, say, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.screen import harmless

ENTRY: Final = "entry"
TRASH: Final = "trash"
LEAVES: Final = frozenset({"set", "restored"})
"""The kinds of change that leave a value."""
CLOSED: Final = "the trash may have more, but only operators are shown it"
_TAB: Final = "\t"
_GAP: Final = "  "


class KnownValue(NamedTuple):
    """A value that still exists, and its place: the entry or the trash."""

    value: Any
    place: str


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
            known = {entry.version: KnownValue(entry.value, ENTRY)} if entry is not None else {}
            if target.json:
                document(_with_value(change, known) if values else change)
            else:
                cell = f"{_GAP if on_terminal() else _TAB}{_value(change, known) or '-'}" if values else ""
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
        known, trash_seen = await _known_values(store, kv, key) if values else ({}, True)
    if target.json:
        document({"changes": [_with_value(change, known) for change in changes] if values else changes})
    elif values:
        _print_values(changes, known)
        if not trash_seen:
            say(CLOSED)
    else:
        rows(("time", "op", "version", "key", "writer"), map(_cells, changes))


async def _known_values(
    store: holdfast.Store, kv: holdfast.KV, key: str
) -> tuple[dict[int, KnownValue], bool]:
    """Return the values of a key that the store still has by version, and whether it showed the trash."""
    full = kv.verbs.key(key)
    known: dict[int, KnownValue] = {}
    try:
        page = await store.trash(kv.namespace, full, limit=1, values=True)
    except (holdfast.PermissionDenied, holdfast.Unavailable):
        page = None
    for removed in () if page is None else page.entries:
        if removed.key == full and removed.value is not msgspec.UNSET:
            known[removed.version] = KnownValue(removed.value, TRASH)
    entry = await kv.get(key)
    if entry is not None:
        known[entry.version] = KnownValue(entry.value, ENTRY)
    return known, page is not None


def _print_values(changes: list[holdfast.Change], known: dict[int, KnownValue]) -> None:
    """Print changes with their values. A narrow terminal drops the last columns, so values come before keys
    there."""
    names = ("time", "op", "version", "key", "writer", "value")
    order = (0, 1, 2, 5, 3, 4) if on_terminal() else range(len(names))
    cells = ((*_cells(change), _value(change, known)) for change in changes)
    rows([names[at] for at in order], ([row[at] for at in order] for row in cells))


def _with_value(change: holdfast.Change, known: dict[int, KnownValue]) -> dict[str, Any]:
    """Return a change as a document, with the value that it left, if known."""
    fields = msgspec.structs.asdict(change)
    if change.op not in LEAVES or change.version not in known:
        return fields
    value, place = known[change.version]
    return fields | {"value": value, "value_from": place}


def _value(change: holdfast.Change, known: dict[int, KnownValue]) -> str | None:
    if change.op not in LEAVES or change.version not in known:
        return None
    return harmless(msgspec.json.encode(known[change.version].value).decode())


def _cells(change: holdfast.Change) -> tuple[str, str, int, str, str | None]:
    return shown_time(change.at), change.op, change.version, shown_key(change.key), change.last_writer


def _line(change: holdfast.Change) -> str:
    """Return a change as a line: in columns on a terminal, otherwise with tabs between its cells."""
    at, op, version, key, writer = _cells(change)
    who = harmless(writer or "-")
    if on_terminal():
        return f"{at}  {op:<8}  {version:>7}  {key}  {who}"
    return f"{at}\t{op}\t{version}\t{key}\t{who}"
