"""Idempotency by request id: a repeated request gets the reply of the first one.

Law: only successes are remembered, in the same transaction as their effect, and only if the caller chose the
request id. A refused request is judged again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.blobs.commands import Begun
from holdfast.commands import (
    Deleted,
    Done,
    Kept,
    KeyChange,
    Many,
    Missed,
    Results,
    Set,
    Stored,
    Versions,
    WriteCommand,
    Written,
)
from holdfast.decide.entries import live
from holdfast.errors import VersionConflict
from holdfast.rows import REQUEST, Address, Row
from holdfast.tables.commands import Defined, ItemDone, ItemsDone, PutItem, Transacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.commands import Result
    from holdfast.decide.draft import Draft
    from holdfast.stored import SeenEntry


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
        | Kept
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
    """Apply a command with a request id of its caller, or return its earlier reply if it has been applied."""
    address = request_address(command)
    content = blake2b(msgspec.json.encode(command.asked), digest_size=16).hexdigest()
    known = draft.row(address)
    if known is None or not known.alive(draft.now):
        return _remember(draft, command, content, apply(draft, command))
    memory = msgspec.json.decode(known.value or "", type=Memory)
    if memory.content != content:
        raise VersionConflict(
            f"request id {command.origin.request_id!r} was already used for another request",
            current=_current(draft, command),
            reason="request_id_reused",
        )
    if isinstance(memory.reply, ReplyParts):
        return _complete(draft, command, content, memory.reply.items, apply)
    replayed: Result = _again(command, memory.reply)
    return replayed


def _remember(draft: Draft, command: WriteCommand, content: str, result: Result) -> Result:
    reply = _reply(command, result)
    if isinstance(reply, ReplyParts) and not any(reply.items):
        return result
    address = request_address(command)
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
    """Return a result as it is remembered: without a value that the request itself contains."""
    if command.parts is not None:
        return ReplyParts(
            tuple(
                None if isinstance(found, Exception) else _reply(part, found)
                for part, found in zip(command.parts, result.items, strict=True)
            )
        )
    if isinstance(command, Set | PutItem):
        return msgspec.structs.replace(result, row=msgspec.structs.replace(result.row, value=None))
    return result


def _again(command: WriteCommand, reply: Any) -> Any:
    """Return a remembered reply, marked as replayed, with the value that the request itself contains."""
    if isinstance(command, Set | PutItem):
        value = command.value if isinstance(command, Set) else command.item
        row = msgspec.structs.replace(reply.row, value=value)
        return msgspec.structs.replace(reply, row=row, replayed=True)
    return msgspec.structs.replace(reply, replayed=True)


def _complete(
    draft: Draft,
    command: Any,
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
    return _remember(draft, command, content, made(results))


def _current(draft: Draft, command: WriteCommand) -> SeenEntry | None:
    if not isinstance(command, KeyChange):
        return None
    row = live(draft, command.key)
    return None if row is None else draft.account.entry(command.key, row)
