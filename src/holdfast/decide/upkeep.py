"""What time and operators do to a namespace: entries expire, records go, policies are set.

Law: upkeep is asked for by commands like any other change. It never removes anything early on the word of its
caller: each row is looked at again, in its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.commands import Done, Expire, Removed, SetPolicy, Trim
from holdfast.decide.entries import expire
from holdfast.rows import REQUEST, Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.decide.draft import Draft, Needs


def _expire(draft: Draft, command: Expire) -> Removed:
    count = 0
    for key in command.keys:
        address = Address(draft.name, command.space, key)
        row = draft.row(address)
        if row is None or row.expires_at is None:
            continue
        if isinstance(key, str):
            if not row.alive(draft.now):
                expire(draft, key, row)
                count += 1
        elif row.expires_at <= max(draft.now, command.before or 0):
            draft.put(address, None)
            if command.space == REQUEST:
                draft.namespace.requests -= 1
            count += 1
    return Removed(count)


def _trim(draft: Draft, command: Trim) -> Removed:
    upto = min(command.upto, draft.namespace.revision)
    dropped = upto - draft.namespace.journal_floor
    if dropped <= 0:
        return Removed(0)
    draft.trim(upto)
    return Removed(dropped)


def _set_policy(draft: Draft, command: SetPolicy) -> Done:
    draft.namespace.policy = command.policy
    return Done()


def _needs_rows(wanted: Needs, command: Expire) -> None:
    for key in command.keys:
        wanted.row(Address(command.namespace, command.space, key))


def _needs_nothing(wanted: Needs, command: Trim | SetPolicy) -> None:
    """The namespace's own row says enough."""


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Expire: _needs_rows,
    Trim: _needs_nothing,
    SetPolicy: _needs_nothing,
}
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {Expire: _expire, Trim: _trim, SetPolicy: _set_policy}
