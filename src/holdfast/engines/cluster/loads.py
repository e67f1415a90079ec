"""Loads: messages of the log that carry raw contents and facts about the store instead of outcomes.

Law: a load is a list of changes in their order, and every replica runs the same statements for it. No I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.engine.moving import UNFINISHED, Facts, Shelf
from holdfast.engines.sql import shelves
from holdfast.engines.sqlite import moving
from holdfast.engines.sqlite.sql import ADD_FACT, DROP_FACT, INSIDE
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from holdfast.engine.moving import Mark, Marked
    from holdfast.engines.sqlite.moving import Loads
    from holdfast.engines.sqlite.sql import Statement
    from holdfast.rows import Namespace

    Change: TypeAlias = tuple[str, str, str, list[Any]]
    """Its kind, the namespace and the shelf where it has any, and its rows, marks or names."""

_PUT: Final = "put"
_DROP: Final = "drop"
_PUT_NAMESPACES: Final = "put namespaces"
_DROP_NAMESPACES: Final = "drop namespaces"
_REMEMBER: Final = "remember"
_CLOCK: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('clock', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)"
)
"""A node's own clock may be later, and never goes back."""


class Standing(msgspec.Struct, frozen=True):
    """What a replica knows of the store as a whole.

    `closed` is the reason for which it accepts no writes.
    """

    closed: str | None = None
    epoch: str | None = None

    @property
    def unfinished(self) -> bool:
        """True while the store can't be used, because a load is not complete."""
        return self.closed is not None and self.closed.startswith(UNFINISHED)

    def require_finished(self, store: str) -> None:
        """Refuse to use a store into which a load is under way.

        Raises:
            Unavailable: The load is not complete.
        """
        if self.unfinished:
            raise Unavailable(f"the store {store} can't be used yet: {self.closed}")

    def require_open(self, store: str) -> None:
        """Refuse to write to a store that is closed.

        Raises:
            Unavailable: The store is closed.
        """
        if self.closed is not None:
            raise Unavailable(f"the store {store} accepts no writes: {self.closed}")


def standing_of(kept: Iterable[Sequence[str]]) -> Standing:
    """Build the standing from the names and values of a replica's table of facts."""
    found = {name: value for name, value in kept}  # noqa: C416 - rows are sequences of two
    return Standing(found.get("closed"), found.get("store_epoch"))


def put(namespace: str, shelf: Shelf, held: Sequence[Marked]) -> Change:
    """Put things on a shelf."""
    return (_PUT, namespace, shelf.value, shelves.columns(shelf, held))


def drop(namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> Change:
    """Remove what is at these marks."""
    return (_DROP, namespace, shelf.value, list(marks))


def put_namespaces(namespaces: Sequence[Namespace]) -> Change:
    """Put the rows of namespaces."""
    return (_PUT_NAMESPACES, "", "", shelves.namespace_columns(namespaces))


def drop_namespaces(names: Sequence[str]) -> Change:
    """Remove namespaces with everything on their shelves."""
    return (_DROP_NAMESPACES, "", "", list(names))


def remember(facts: Facts) -> Change:
    """Replace what the store remembers about itself. The epoch of the log stays as it is."""
    rows = [("store_epoch" if name == "epoch" else name, value) for name, value in shelves.facts_rows(facts)]
    return (_REMEMBER, "", "", rows)


def statements(changes: Iterable[Change]) -> list[Statement]:
    """Return the statements of a load.

    Raises:
        KeyError: This version does not know a kind of change.
    """
    made = [(sql, row) for change in changes for sql, rows in _KINDS[change[0]](*change[1:]) for row in rows]
    if not made:
        return []
    return [(ADD_FACT, INSIDE), *made, (DROP_FACT, INSIDE[:1])]


def loaded(changes: Iterable[Change]) -> list[str]:
    """Return the names of the namespaces whose rows a load puts or drops."""
    found: list[str] = []
    for kind, _, _, rows in changes:
        if kind == _PUT_NAMESPACES:
            found += [row[0] for row in rows]
        elif kind == _DROP_NAMESPACES:
            found += rows
    return found


def _remembered(namespace: str, shelf: str, rows: list[Any]) -> list[Loads]:
    kept = [(name, value) for name, value in rows if name != "clock"]
    return [
        (DROP_FACT, [(name,) for name, _ in kept]),
        (ADD_FACT, [row for row in kept if row[1] is not None]),
        (_CLOCK, [(value,) for name, value in rows if name == "clock"]),
    ]


_KINDS: Final = {
    _PUT: lambda namespace, shelf, rows: [moving.put_rows(namespace, Shelf(shelf), rows)],
    _DROP: lambda namespace, shelf, rows: [moving.drop_rows(namespace, Shelf(shelf), rows)],
    _PUT_NAMESPACES: lambda namespace, shelf, rows: [moving.put_namespaces(rows)],
    _DROP_NAMESPACES: lambda namespace, shelf, rows: moving.drop_namespaces(rows),
    _REMEMBER: _remembered,
}
