"""`holdfast list`, `tree`, `watch`, `history` and `trash`: the keys of a namespace and their changes.

Rows are printed as they arrive wherever possible, however many there are. Only sorting and a table on a
terminal need all rows at once.

The journal and the audit keep no values. So at most two values of a key are known: that of the current entry,
and the one that the trash keeps of the last deletion or expiry. A value that was overwritten is gone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from cyclopts import Group, Parameter

import holdfast
from holdfast.edges.cli.options import (
    ALL_PAGES,
    FIRST_PAGE,
    Key,
    Long,
    MaybeWhole,
    Paging,
    require_from_one,
)
from holdfast.edges.cli.output import document, line, on_terminal, records, rows, say, shown_key, shown_time
from holdfast.edges.cli.target import HERE, Target
from holdfast.edges.screen import harmless

Order = Literal["key", "size", "version", "ttl", "updated"]


@Parameter(name="*", group=Group("Envelope", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class EntryFilters:
    """The filters for entries, by their envelope; all that are given must match."""

    purpose: str | None = None
    """Only entries with this purpose."""

    producer: str | None = None
    """Only entries of this producer."""

    writer: str | None = None
    """Only entries whose last writer is this one."""

    spec_ref: str | None = None
    """Only entries that refer to this document."""

    expires_before: str | None = None
    """Only entries with a deadline before this time, such as 2031-05-01T12:30:00Z."""


ANY: Final = EntryFilters()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a listing; fields other than the key are set only if requested."""

    key: str
    size: int | msgspec.UnsetType = msgspec.UNSET
    version: int | msgspec.UnsetType = msgspec.UNSET
    ttl: int | msgspec.UnsetType | None = msgspec.UNSET
    updated_at: datetime | msgspec.UnsetType = msgspec.UNSET


ORDERS: Final[dict[str, Callable[[Any], Any]]] = {
    "key": lambda row: row.key.encode(),
    "size": lambda row: row.size,
    "version": lambda row: row.version,
    "ttl": lambda row: (row.ttl is None, row.ttl),
    "updated": lambda row: row.updated_at,
}
"""The sort keys; entries without a deadline come after all others."""


async def list_keys(
    prefix: str = "",
    /,
    *,
    paging: Paging = FIRST_PAGE,
    long: Annotated[bool, Long] = False,
    sort: Order = "key",
    reverse: bool = False,
    after: MaybeWhole = None,
    filters: EntryFilters = ANY,
    target: Target = HERE,
) -> None:
    """List the keys of a namespace that begin with a prefix.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    long
        Print size in bytes, version, seconds left and time of the last change too.
    sort
        Sort by this. Without --all, only the page is sorted.
    reverse
        Reverse the order: the last key comes first.
    after
        List the items of a log after this number; the prefix is the log's name and a slash.
    """
    values, everything = long or sort != "key", paging.everything
    backwards = reverse and sort == "key"
    at_once = not everything or sort != "key" or (long and not target.json and on_terminal())
    gathered: list[Listed] = []
    async with target.look() as store:
        keys = target.keys(store)
        fields: dict[str, Any] = {"reverse": backwards, "values": values, **asdict(filters)}

        async def read(*, limit: int | None, cursor: str | None) -> holdfast.Page:
            start = after if cursor == paging.cursor else None  # a further page begins at its cursor
            return await keys.list(prefix, limit=limit, cursor=cursor, after=start, **fields)

        async for page in paging.pages(read):
            gathered += _listed(page, store.now())
            if not at_once:
                _print(gathered, target, long=long)
                gathered.clear()
    if not backwards:
        gathered.sort(key=ORDERS[sort])
        if reverse:
            gathered.reverse()
    if target.json and not everything:
        content = {"keys": [row.key for row in gathered], "count": len(gathered)}
        content |= {"truncated": page.truncated, "cursor": page.cursor}
        document(content | {"entries": gathered} if long else content)
        return
    _print(gathered, target, long=long)
    if page.truncated and not target.json:
        sure = "are" if filters == ANY else "may be"
        say(f"there {sure} more keys: --all lists them, --cursor {page.cursor} continues")


def _listed(page: holdfast.Page, now: int) -> list[Listed]:
    if page.entries is None:
        return [Listed(key=key) for key in page.keys]
    return [
        Listed(
            key=entry.key,
            size=len(msgspec.json.encode(entry.value)),
            version=entry.version,
            ttl=_left(entry, now),
            updated_at=entry.updated_at,
        )
        for entry in page.entries
    ]


def _left(entry: holdfast.Entry, now: int) -> int | None:
    """Return the whole seconds until the deadline, rounded up."""
    if entry.expires_at is None:
        return None
    return max(0, -((now - round(entry.expires_at.timestamp() * 1000)) // 1000))


def _print(listed: list[Listed], target: Target, *, long: bool) -> None:
    if target.json:
        for row in listed:
            document(row if long else {"key": row.key})
    elif long:
        records("key size version ttl updated=updated_at", listed)
    else:
        for row in listed:
            line(shown_key(row.key))


SEPARATORS: Final = "/:"
_STEP: Final = "  "


class Branch:
    """A part of keys that ends with a separator, or a whole key, and the number of keys below it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys = 0
        self.branches: dict[str, Branch] = {}

    def document(self) -> dict[str, Any]:
        """Return the branch and those below it as a document."""
        below = {"branches": [branch.document() for branch in self.branches.values()]}
        return {"name": self.name, "keys": self.keys, **(below if self.branches else {})}


async def tree(
    prefix: str = "",
    /,
    *,
    depth: MaybeWhole = None,
    separators: str = SEPARATORS,
    target: Target = HERE,
) -> None:
    """Print the keys of a namespace as a tree, with the number of keys in each branch.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    depth
        Number of levels to show; all if not given.
    separators
        The characters after which keys branch: / and : if not given.
    """
    if depth is not None:
        require_from_one(depth, "depth")
    root = Branch(prefix)
    ends = re.escape(separators)
    parts = re.compile(f"[^{ends}]*[{ends}]|.+" if ends else ".+", re.DOTALL)
    async with target.look() as store:
        async for page in ALL_PAGES.pages(partial(target.keys(store).list, prefix)):
            for key in page.keys:
                _add(root, parts.findall(key), depth)
    if target.json:
        document(root.document())
    else:
        _print_tree(root, "")


def _add(root: Branch, parts: list[str], depth: int | None) -> None:
    branch = root
    branch.keys += 1
    for part in parts[:depth]:
        branch = branch.branches.setdefault(part, Branch(part))
        branch.keys += 1


def _print_tree(branch: Branch, indent: str) -> None:
    for name, one in branch.branches.items():
        line(f"{indent}{shown_key(name)}" + (f" ({one.keys})" if one.branches or one.keys > 1 else ""))
        _print_tree(one, indent + _STEP)


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
    since: MaybeWhole = None,
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
    limit: MaybeWhole = None,
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
        records("time=at op version key writer=last_writer", changes)


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
    cells = ((*_change_cells(change), _value(change, known)) for change in changes)
    rows([names[at] for at in order], ([row[at] for at in order] for row in cells))


def _left_by(change: holdfast.Change, known: dict[int, KnownValue]) -> KnownValue | None:
    """Return the value that a change left, if known."""
    return known.get(change.version) if change.op in LEAVES else None


def _with_value(change: holdfast.Change, known: dict[int, KnownValue]) -> dict[str, Any]:
    """Return a change as a document, with the value that it left, if known."""
    left = _left_by(change, known)
    more = {} if left is None else {"value": left.value, "value_from": left.place}
    return msgspec.structs.asdict(change) | more


def _value(change: holdfast.Change, known: dict[int, KnownValue]) -> str | None:
    left = _left_by(change, known)
    return None if left is None else harmless(msgspec.json.encode(left.value).decode())


def _change_cells(change: holdfast.Change) -> tuple[str, str, int, str, str | None]:
    return shown_time(change.at), change.op, change.version, shown_key(change.key), change.last_writer


def _line(change: holdfast.Change) -> str:
    """Return a change as a line: in columns on a terminal, otherwise with tabs between its cells."""
    at, op, version, key, writer = _change_cells(change)
    who = harmless(writer or "-")
    if on_terminal():
        return f"{at}  {op:<8}  {version:>7}  {key}  {who}"
    return f"{at}\t{op}\t{version}\t{key}\t{who}"


async def list_trash(
    prefix: str = "", /, *, paging: Paging = FIRST_PAGE, values: bool = False, target: Target = HERE
) -> None:
    """List deleted and expired entries that can be restored: how, when and by whom they were removed.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    values
        Include the values; only with --json.
    """
    async with target.look() as store:
        read = partial(store.trash, target.keys(store).namespace, prefix, values=values)
        async for page in paging.pages(read):
            if target.json:
                for content in page.entries if paging.everything else (page,):
                    document(content)
            else:
                records("key op at by version purpose purged=purged_at", page.entries)
    if page.cursor is not None and not target.json:
        say(f"there is more in the trash: --all lists it, --cursor {page.cursor} continues")
