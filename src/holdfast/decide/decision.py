"""Execution of a group: what its commands need, and what they lead to.

Law: a verb is looked up in a table and applied once, under its fence. Its own module defines what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from holdfast import rules
from holdfast.audit.keyring import NO_KEYS
from holdfast.commands import Batch, Many, WriteCommand
from holdfast.decide import blobs, items, key_needs, keys, letters, reveals, tables, upkeep
from holdfast.decide.audit import need_audit, need_audit_by_policy
from holdfast.decide.draft import Draft, Needs, Paused, Suspended
from holdfast.decide.requests import once, request_address
from holdfast.decide.slices import begun
from holdfast.errors import Fenced
from holdfast.origin import Fence
from holdfast.rows import GUARD, Address
from holdfast.tables.commands import TransactWrite, WriteItems
from holdfast.work import SLICE, too_much_loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.audit.chain import SigningKeys
    from holdfast.commands import Command, Result
    from holdfast.decide.draft import Loaded, Outcome
    from holdfast.errors import HoldfastError
    from holdfast.model import Policy


def _weighed(apply: Callable[[Draft, Any], Any]) -> Callable[[Draft, Any], Any]:
    """Wrap the function of a command on many rows, to refuse it if it would have to read too much."""

    def weighed(draft: Draft, command: Any) -> Any:
        if draft.loaded_bytes > rules.MAX_LOADED_BYTES:
            _weigh(draft, command)
        return apply(draft, command)

    return weighed


def _weigh(draft: Draft, command: Command) -> None:
    wanted = needs([command])
    more = further([command], wanted, draft.known)
    asked = wanted.rows | (more.rows if more is not None else {})
    if draft.bytes_of(asked) > rules.MAX_LOADED_BYTES:
        raise too_much_loaded()


_NEEDS: dict[type, Any] = key_needs.NEEDS | letters.NEEDS | upkeep.NEEDS | tables.NEEDS | items.NEEDS
_NEEDS |= blobs.NEEDS | reveals.NEEDS
_APPLY: dict[type, Any] = keys.APPLY | letters.APPLY | upkeep.APPLY | tables.APPLY | items.APPLY
_APPLY |= blobs.APPLY | reveals.APPLY
_APPLY.update({kind: _weighed(_APPLY[kind]) for kind in (Batch, Many, TransactWrite, WriteItems)})
_FURTHER: dict[type, Any] = key_needs.FURTHER | upkeep.FURTHER | items.FURTHER | reveals.FURTHER


def needs(commands: Iterable[Command]) -> Needs:
    """Return everything that `decide` will read for these commands, for an engine to load."""
    wanted = Needs()
    for command in commands:
        wanted.namespaces.add(command.namespace)
        if isinstance(command, WriteCommand):
            if command.origin.repeatable:
                wanted.row(request_address(command), value=True)
            if command.origin.fence is not None:
                wanted.row(_guard_address(command.namespace, command.origin.fence))
        _NEEDS[type(command)](wanted, command)
    need_audit(wanted)
    return wanted


def further(commands: Iterable[Command], wanted: Needs, loaded: Loaded) -> Needs | None:
    """Return what else must be loaded, given what was loaded first; None if that is nothing."""
    more = Needs()
    need_audit_by_policy(more, wanted, loaded)
    for command in commands:
        need = _FURTHER.get(type(command))
        if need is not None:
            need(more, command, loaded)
    return more if more.rows else None


def decide(
    loaded: Loaded,
    commands: Sequence[Command],
    now: int,
    keys: SigningKeys = NO_KEYS,
    defaults: Policy | None = None,
) -> Outcome:
    """Apply the commands in order, each to the state that the previous ones left.

    A refused command leaves nothing but its error among the results. `keys` sign the audit. `defaults` apply
    where the policy of a namespace sets no quota.
    """
    decision = Decision(loaded, now, keys, defaults)
    taken = decision.take(commands)
    while taken < len(commands):
        taken += decision.take(commands[taken:])
    return decision.outcome()


class Decision:
    """`decide` in steps, for an engine that does other work in between.

    The rows that a step needs must be in `loaded` when it is taken. Rows of earlier steps may stay or be
    loaded again.
    """

    def __init__(
        self, loaded: Loaded, now: int, keys: SigningKeys = NO_KEYS, defaults: Policy | None = None
    ) -> None:
        self._draft = Draft(loaded, now, keys, defaults)
        self._results: list[Result | HoldfastError] = []

    def take(self, commands: Sequence[Command]) -> int:
        """Apply the next commands. Returns how many: not all if the slice of work ends early.

        The slice may end in the middle of a command. That command is not counted, and comes first in the next
        call.
        """
        draft, results = self._draft, self._results
        spent = count = 0
        for command in commands:
            draft.command = command
            try:
                results.append(draft.attempt(_apply, command))
            except Paused:
                draft.charged = None
                break
            except Suspended:
                return count  # the undo log stays, for a refusal of the command as a whole
            count += 1
            if draft.charged is not None:
                spent += draft.charged.spent
                draft.charged = None
                if spent >= SLICE:
                    break
        draft.keep()
        return count

    def further(self, commands: Iterable[Command], wanted: Needs) -> Needs | None:
        """Return what else the next step needs, under the policies that the previous steps have left."""
        return further(commands, wanted, self._draft.known)

    def outcome(self) -> Outcome:
        """Return the outcome of all steps."""
        return self._draft.outcome(self._results)


def _apply(draft: Draft, command: Command) -> Result:
    if isinstance(command, WriteCommand):
        origin = command.origin
        if origin.deadline is not UNSET:
            draft.require_time(origin.deadline)
        if origin.repeatable:
            return once(draft, command, _apply_fenced)
        if origin.fence is not None:
            return _apply_fenced(draft, command)
    result: Result = _APPLY[type(command)](draft, command)
    return result


def _apply_fenced(draft: Draft, command: WriteCommand) -> Result:
    if command.origin.fence is not None and not (begun(draft, 0) or begun(draft, 1)):
        _check_fence(draft, command.origin.fence)
    result: Result = _APPLY[type(command)](draft, command)
    return result


def _check_fence(draft: Draft, fence: Fence) -> None:
    guard = draft.row(_guard_address(draft.name, fence))
    if guard is None:
        raise Fenced(f"lock {fence.lock!r} has never been taken", field="fence")
    if guard.version != fence.token:
        raise Fenced(
            f"lock {fence.lock!r} has been taken by a newer holder: its token is {guard.version}, "
            f"not {fence.token}",
            field="fence",
        )


def _guard_address(namespace: str, fence: Fence) -> Address:
    return Address(namespace, GUARD, fence.lock.encode())
