"""Execution of a group: what its commands need, and what they lead to.

A verb is looked up in a table and applied once, under its fence. Its own module defines what it means. A
repeated request gets the reply of the first one. Only successes are remembered, in the same transaction as
their effect, and only if the caller chose the request id. A refused request is judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast import families, rules
from holdfast.audit.chain import SigningKeys
from holdfast.audit.keyring import NO_KEYS
from holdfast.blobs.commands import Begun
from holdfast.commands import (
    Append,
    Batch,
    Command,
    Deleted,
    Done,
    KeyChange,
    LetterStored,
    Many,
    Missed,
    Result,
    Results,
    Set,
    Stored,
    Versions,
    WriteCommand,
    Written,
)
from holdfast.decide import blobs, items, keys, letters, reveals, tables, upkeep
from holdfast.decide.audit import need_audit, need_audit_by_policy
from holdfast.decide.draft import Draft, Loaded, Needs, Outcome, Paused, Suspended, begun
from holdfast.decide.entries import live
from holdfast.errors import Fenced, HoldfastError, ValidationError, VersionConflict
from holdfast.model import Policy
from holdfast.origin import Fence
from holdfast.rows import GUARD, KV, REQUEST, Address, Row
from holdfast.stored import SeenEntry
from holdfast.tables.commands import (
    Defined,
    ItemDone,
    ItemsDone,
    PutItem,
    Transacted,
    TransactWrite,
    WriteItems,
)
from holdfast.work import SLICE, too_much_loaded


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
    rows = wanted.rows | (more.rows if more is not None else {})
    if draft.bytes_of(rows) > rules.MAX_LOADED_BYTES:
        raise too_much_loaded()


_NEEDS: dict[type, Any] = keys.NEEDS | letters.NEEDS | upkeep.NEEDS | tables.NEEDS | items.NEEDS
_NEEDS |= blobs.NEEDS | reveals.NEEDS
_FURTHER: dict[type, Any] = keys.FURTHER | upkeep.FURTHER | items.FURTHER | reveals.FURTHER
_APPLY: dict[type, Any] = keys.APPLY | letters.APPLY | upkeep.APPLY | tables.APPLY | items.APPLY
_APPLY |= blobs.APPLY | reveals.APPLY
_APPLY.update({kind: _weighed(_APPLY[kind]) for kind in (Batch, Many, TransactWrite, WriteItems)})


def needs(commands: Iterable[Command]) -> Needs:
    """Return everything that `decide` will read for these commands, for an engine to load."""
    wanted = Needs()
    for command in commands:
        wanted.namespaces.add(command.namespace)
        if isinstance(command, WriteCommand):
            origin = command.origin
            if origin.repeatable:
                wanted.row(request_address(command), value=True)
            fence = origin.fence
            if fence is not None:
                locks = families.locks(command.namespace)
                wanted.row(_guard_address(locks, fence))
                if fence.live is True:
                    wanted.row(_lock_address(locks, fence))
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
    locks = families.locks(draft.name)
    guard = draft.row(_guard_address(locks, fence))
    if guard is None:
        raise Fenced(f"lock {fence.lock!r} has never been taken", field="fence")
    if guard.version != fence.token:
        raise Fenced(
            f"lock {fence.lock!r} has been taken by a newer holder: its token is {guard.version}, "
            f"not {fence.token}",
            field="fence",
        )
    if fence.live is True:
        held = draft.row(_lock_address(locks, fence))
        if held is None or not held.alive(draft.now):
            raise Fenced(
                f"lock {fence.lock!r} is no longer held: it has expired or was released", field="fence"
            )


def _lock_address(namespace: str, fence: Fence) -> Address:
    root = rules.semantic_root(namespace) or ""
    return Address(namespace, KV, rules.lock_key(fence.lock, root))


def _guard_address(namespace: str, fence: Fence) -> Address:
    return Address(namespace, GUARD, fence.lock.encode())


class ReplyParts(msgspec.Struct, frozen=True, tag="Several"):
    """The results of a command whose parts are executed one by one; None for a part that was refused."""

    items: tuple[Stored | Deleted | ItemDone | None, ...]


class Memory(msgspec.Struct, frozen=True):
    """The stored memory of a request: a digest of its content, and the reply."""

    content: str
    reply: (
        Stored
        | Missed
        | Deleted
        | Versions
        | LetterStored
        | Written
        | Done
        | ReplyParts
        | Defined
        | ItemDone
        | Transacted
        | Begun
    )


def request_address(command: WriteCommand) -> Address:
    """Return the address at which a command is remembered."""
    return Address(command.namespace, REQUEST, command.origin.request_id.encode())


def once(draft: Draft, command: WriteCommand, apply: Callable[[Draft, Any], Any]) -> Result:
    """Apply a command with an id of its caller, or return its earlier reply if it has been applied.

    The id of a request is bound to the content of the request. That of an intention is bound to the verb
    alone, whose reply it returns.
    """
    address = request_address(command)
    if command.origin.once is True:
        if command.parts is not None:
            raise ValidationError("a call with independent parts takes a request_id, not once", field="once")
        content = f"once {type(command).__name__}"
    else:
        content = blake2b(msgspec.json.encode(command.asked), digest_size=16).hexdigest()
    known = draft.row(address)
    if known is None or not known.alive(draft.now):
        return _remember(draft, command, address, content, apply(draft, command))
    memory = msgspec.json.decode(known.value or "", type=Memory)
    if memory.content != content:
        given = repr(command.origin.request_id)
        raise VersionConflict(
            f"once {given} was already used for another request"
            if command.origin.once is True
            else f"request id {given} was already used for another request",
            current=_current(draft, command),
            reason="request_id_reused",
        )
    if isinstance(memory.reply, ReplyParts):
        return _complete(draft, command, address, content, memory.reply.items, apply)
    replayed: Result = _again(command, memory.reply)
    return replayed


def _remember(draft: Draft, command: WriteCommand, address: Address, content: str, result: Result) -> Result:
    reply = _reply(command, result)
    if isinstance(reply, ReplyParts) and not any(reply.items):
        return result
    value = msgspec.json.encode(Memory(content, reply))
    row = Row(
        value=value.decode(),
        size=len(value),
        version=draft.namespace.revision,
        created_at=draft.now,
        updated_at=draft.now,
        expires_at=draft.now + rules.REQUEST_RETENTION * 1000,
        last_writer=command.origin.writer,
    )
    if draft.row(address) is None:
        draft.namespace.requests += 1
    draft.put(address, row)
    return result


def _reply(command: WriteCommand, result: Any) -> Any:
    """Return a result as it is remembered: without a value that the same request contains again."""
    if command.parts is not None:
        return ReplyParts(
            tuple(
                None if isinstance(item, Exception) else _reply(part, item)
                for part, item in zip(command.parts, result.items, strict=True)
            )
        )
    if _contains_value(command):
        return msgspec.structs.replace(result, row=msgspec.structs.replace(result.row, value=None))
    return result


def _contains_value(command: WriteCommand) -> bool:
    """Return whether a repeated command has the value of its reply. With `once` it may have another one."""
    return isinstance(command, Set | Append | PutItem) and command.origin.once is not True


def _again(command: WriteCommand, reply: Any) -> Any:
    """Return a remembered reply, marked as replayed, with the value that the request itself contains."""
    if _contains_value(command):
        value = command.item if isinstance(command, PutItem) else command.value  # type: ignore[attr-defined]
        row = msgspec.structs.replace(reply.row, value=value)
        return msgspec.structs.replace(reply, row=row, replayed=True)
    return msgspec.structs.replace(reply, replayed=True)


def _complete(  # noqa: PLR0917 - each is another thing
    draft: Draft,
    command: Any,
    address: Address,
    content: str,
    known: tuple[Stored | Deleted | ItemDone | None, ...],
    apply: Callable[[Draft, Any], Any],
) -> Result:
    """Return the remembered results of a command's parts, and apply again those that were refused."""
    field, made = ("items", Results) if isinstance(command, Many) else ("writes", ItemsDone)
    parts = command.parts
    refused = tuple(part for part, reply in zip(parts, known, strict=True) if reply is None)
    if not refused:
        return made(tuple(map(_again, parts, known)), replayed=True)
    fresh = iter(apply(draft, msgspec.structs.replace(command, **{field: refused})).items)
    results = tuple(
        next(fresh) if reply is None else _again(part, reply)
        for part, reply in zip(parts, known, strict=True)
    )
    return _remember(draft, command, address, content, made(results))


def _current(draft: Draft, command: WriteCommand) -> SeenEntry | None:
    if not isinstance(command, KeyChange):
        return None
    row = live(draft, command.key)
    return None if row is None else draft.account.entry(command.key, row)
