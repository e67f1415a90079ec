"""The statements that load raw contents into a SQLite file; see `holdfast.engine.moving.RawLoader`.

Law: a statement and the rows that it is run with, and nothing else. The same statements load a store of its
own and the replicas of a cluster.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.engines.sql import shelves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.moving import Mark, Shelf

Rows: TypeAlias = "tuple[str, list[tuple[Any, ...]]]"
"""A statement, and the parameters of each of its runs."""

REMEMBER: Final = "INSERT INTO holdfast_meta (name, value) VALUES (?, ?)"
FORGET: Final = "DELETE FROM holdfast_meta WHERE name = ?"
INSIDE: Final = ("inside", "")
"""The mark of a transaction whose changes of entries are the store's own, in the table of facts.

It keeps the triggers quiet that look after what other programs write (`holdfast.engines.sql.outside`), and is
removed at the end of the transaction.
"""


def put(namespace: str, shelf: Shelf, columns: Sequence[Sequence[Any]]) -> Rows:
    """Put things on a shelf, given as `shelves.columns` returns them."""
    owner = shelves.owner_of(namespace, shelf)
    return _put(shelf), [(owner, *values) for values in columns]


def drop(namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> Rows:
    """Remove what is at these marks."""
    owner = shelves.owner_of(namespace, shelf)
    table = shelves.TABLES[shelf]
    sql = f"DELETE FROM {table.table} WHERE {' AND '.join(f'{one} = ?' for one in table.key)}"
    return sql, [(owner, *mark) for mark in marks]


def put_namespaces(columns: Sequence[Sequence[Any]]) -> Rows:
    """Put the rows of namespaces, given in the order of `shelves.NAMESPACE`."""
    names = shelves.NAMESPACE
    sql = f"INSERT OR REPLACE INTO holdfast_namespaces ({', '.join(names)}) VALUES ({places(names)})"
    return sql, [tuple(values) for values in columns]


def drop_namespaces(names: Sequence[str]) -> list[Rows]:
    """Remove namespaces: their rows and everything on their shelves."""
    found = [("DELETE FROM holdfast_namespaces WHERE name = ?", [(name,) for name in names])]
    for shelf, table in shelves.TABLES.items():
        owners = [(shelves.owner_of(name, shelf),) for name in names]
        found.append((f"DELETE FROM {table.table} WHERE {table.owner} = ?", owners))
    return found


def places(columns: Sequence[str]) -> str:
    """Return the question marks for as many parameters as there are columns."""
    return ", ".join("?" * len(columns))


@cache
def _put(shelf: Shelf) -> str:
    table = shelves.TABLES[shelf]
    columns = (*table.key, *table.columns)
    new = ", ".join(f"{name} = excluded.{name}" for name in table.columns)
    return (
        f"INSERT INTO {table.table} ({', '.join(columns)}) VALUES ({places(columns)}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {new}"
    )
