"""The rows that the verbs on keys read.

Law: a verb is looked up in `NEEDS`, and in `FURTHER` if the rows that were loaded show that more are needed.
`holdfast.decide.keys` says what the verbs mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.commands import (
    Batch,
    Delete,
    Get,
    Guard,
    Incr,
    Load,
    Many,
    Restore,
    Set,
    SetTtl,
    Touch,
)
from holdfast.decide.entries import need_trash
from holdfast.rows import GUARD, KV, TRASH, Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.commands import WriteCommand
    from holdfast.decide.draft import Loaded, Needs


def _needs_key(wanted: Needs, command: Any) -> None:
    """Request the entry, with its value if a reply or the trash may need it."""
    blind = isinstance(command, Set) and command.expected is None and not command.origin.repeatable
    wanted.row(Address(command.namespace, KV, command.key), value=not blind)


def _needs_restore(wanted: Needs, command: Restore) -> None:
    _needs_key(wanted, command)
    wanted.row(Address(command.namespace, TRASH, command.key.encode()), value=True)


def _needs_batch(wanted: Needs, command: Batch) -> None:
    for check in command.checks:
        wanted.row(Address(command.namespace, KV, check.key))
    for write in command.writes:
        NEEDS[type(write)](wanted, write)


def _need_conflicts(more: Needs, command: Batch, loaded: Loaded) -> None:
    """Request the values of entries that fail a check, as far as the reply has room for them."""
    _need_trash_of(more, command.writes, loaded)
    room = rules.MAX_TRANSFER_BYTES
    for check in command.checks:
        address = Address(command.namespace, KV, check.key)
        row = loaded.rows.get(address)
        if row is None or address in more.rows:
            continue
        if row.version != check.version or not check.version:
            room -= row.size
            if room < 0:
                return
            more.row(address, value=True)


def _need_trash(more: Needs, command: Delete, loaded: Loaded) -> None:
    need_trash(more, command.namespace, command.key, loaded)


def _need_trash_of_many(more: Needs, command: Many, loaded: Loaded) -> None:
    _need_trash_of(more, command.items, loaded)


def _need_trash_of(more: Needs, writes: Iterable[WriteCommand], loaded: Loaded) -> None:
    for write in writes:
        if isinstance(write, Delete):
            need_trash(more, write.namespace, write.key, loaded)


def _needs_many(wanted: Needs, command: Many) -> None:
    for item in command.items:
        _needs_key(wanted, item)


def _needs_load(wanted: Needs, command: Load) -> None:
    for key, _ in command.entries:
        wanted.row(Address(command.namespace, KV, key))


def _needs_guard(wanted: Needs, command: Guard) -> None:
    """Request the guard, because its size is counted."""
    wanted.row(Address(command.namespace, GUARD, command.lock.encode()))


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Get: _needs_key,
    Set: _needs_key,
    Delete: _needs_key,
    Incr: _needs_key,
    SetTtl: _needs_key,
    Touch: _needs_key,
    Restore: _needs_restore,
    Guard: _needs_guard,
    Batch: _needs_batch,
    Many: _needs_many,
    Load: _needs_load,
}

FURTHER: Final[dict[type, Callable[[Needs, Any, Loaded], None]]] = {
    Batch: _need_conflicts,
    Delete: _need_trash,
    Many: _need_trash_of_many,
}
"""Functions that request more rows, once the first ones are loaded."""
