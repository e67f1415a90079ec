"""Calls of the verbs that write keys and blobs, on both sides of the wire.

A client converts a command to the fields of a message, and the reply to the command's result. A service, and
the retry of a dead letter, make the command of the fields and show its result. Both sides are derived from
the declaration of the verb, and replies are shown and read by one pair of functions for each kind of reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from holdfast.blobs.commands import Begun
from holdfast.blobs.fields import BegunReply, PartStoredReply
from holdfast.blobs.manifest import PART_BYTES
from holdfast.commands import Deleted, Done, LetterStored, Missed, Results, Stored, Versions, WriteCommand
from holdfast.declare import DECLARED, Declaration
from holdfast.errors import HoldfastError
from holdfast.model import number_in
from holdfast.origin import origin_fields
from holdfast.replies import (
    AppendReply,
    BatchReply,
    DeletedReply,
    DeleteManyReply,
    EscalateReply,
    IncrReply,
    Nothing,
    SetManyReply,
    StoredReply,
    TouchReply,
)
from holdfast.stored import look_over
from holdfast.verbs.caller import NamespaceCaller
from holdfast.wire.errors import error_fields, error_of
from holdfast.wire.replies import row_fields, row_of, stored_fields

BARE: Final = "bare"
"""The `envelope` that asks for the written entry without its value (the caller already has it)."""


class Write(msgspec.Struct, frozen=True):
    """A writing call: its command (None if no part is valid), and the function that shows its result."""

    command: WriteCommand | None
    show: Callable[[Any], dict[str, Any]]


class Codec(msgspec.Struct, frozen=True):
    """How a reply is made and read.

    Args:
        show: Takes the command, its result and the `envelope` of the call, and returns the fields of the
            reply.
        read: Takes the command and the fields of its reply, and returns the result.
    """

    show: Callable[[Any, Any, object], dict[str, Any]]
    read: Callable[[Any, Mapping[str, Any]], Any]


def write_of(verb: str, caller: NamespaceCaller, fields: Mapping[str, Any]) -> Write | None:
    """Build the write that the fields of a message ask for. Returns None if the verb does not write."""
    declaration = DECLARED.get(verb)
    if declaration is None or not declaration.in_order:
        return None
    return written(declaration, caller, declaration.of_fields(fields), fields.get("deadline"))


def written(declaration: Declaration, caller: NamespaceCaller, message: Any, deadline: int | None) -> Write:
    """Build the write that a message asks for. Its deadline is the one that the service computed."""
    made = declaration.make(caller, message, caller.origin_of(message, deadline))
    show, envelope = CODECS[declaration.reply].show, getattr(message, "envelope", None)
    if not declaration.several:
        return Write(made, lambda result: show(made, result, envelope))
    command, several = made
    return Write(
        command if several.legal else None,
        lambda result: show(command, several.merge(() if result is None else result.items), envelope),
    )


def message_of(command: WriteCommand) -> tuple[str, dict[str, Any]]:
    """Convert a command to a verb and the fields of its request."""
    declaration = command.declared
    fields = declaration.fields_of(command)
    if "envelope" in declaration.names:
        # A known intention returns the value of the first time, which the command need not have.
        bare = declaration.has_value and command.origin.once is not True
        fields["envelope"] = BARE if bare else True
    return declaration.name, fields | origin_fields(command.origin)


def result_of(command: WriteCommand, reply: Mapping[str, Any]) -> Any:
    """Convert a successful reply to the result of its command."""
    return CODECS[command.declared.reply].read(command, reply)


def _show_stored(command: Any, result: Stored, envelope: object) -> dict[str, Any]:
    """Show a stored entry: its version and deadline, or more with `envelope`.

    `envelope` true shows the whole entry, `BARE` all but its value.
    """
    if envelope is True:
        return {"key": result.key, **row_fields(result.key, result.row)}
    if envelope != BARE:
        return stored_fields(result.row)
    fields = {"key": result.key, **row_fields(result.key, result.row)}
    del fields["value"]
    return fields


def _read_stored(command: Any, reply: Mapping[str, Any]) -> Stored:
    return Stored(reply["key"], row_of(reply))


def _read_set(command: Any, reply: Mapping[str, Any]) -> Stored:
    value = None if "value" in reply else getattr(command, "value", None)
    return Stored(reply["key"], row_of(reply, None if value is None else value.encode()))


def _show_appended(command: Any, result: Stored, envelope: object) -> dict[str, Any]:
    reply = _show_stored(command, result, envelope)
    return {"key": result.key, "number": number_in(result.key), **reply}


def _show_sum(command: Any, result: Stored, envelope: object) -> dict[str, Any]:
    return {**_show_stored(command, result, envelope), "value": look_over(result.key, result.row)}


def _show_touched(command: Any, result: Stored | Missed, envelope: object) -> dict[str, Any]:
    if isinstance(result, Missed):
        return {"touched": False}
    return {"touched": True, **_show_stored(command, result, envelope)}


def _read_touched(command: Any, reply: Mapping[str, Any]) -> Stored | Missed:
    return _read_stored(command, reply) if reply["touched"] else Missed()


def _show_deleted(command: Any, result: Deleted, envelope: object) -> dict[str, Any]:
    return {"deleted": False} if result.version is None else {"deleted": True, "version": result.version}


def _read_deleted(command: Any, reply: Mapping[str, Any]) -> Deleted:
    return Deleted(reply.get("version"))


def _show_versions(command: Any, result: Versions, envelope: object) -> dict[str, Any]:
    fields: dict[str, Any] = {"versions": list(result.versions)}
    return fields if result.numbers is UNSET else fields | {"numbers": list(result.numbers)}


def _read_versions(command: Any, reply: Mapping[str, Any]) -> Versions:
    versions = tuple(reply["versions"])
    numbers = tuple(reply["numbers"]) if "numbers" in reply else UNSET
    return Versions(versions, (None,) * len(versions), numbers)


def _show_letter(command: Any, result: LetterStored, envelope: object) -> dict[str, Any]:
    return {"letter": result.number}


def _read_letter(command: Any, reply: Mapping[str, Any]) -> LetterStored:
    return LetterStored(reply["letter"])


def _read_done(command: Any, reply: Mapping[str, Any]) -> Done:
    return Done()


def _show_members(
    show: Callable[[Any, Any, object], dict[str, Any]],
) -> Callable[[Any, Sequence[Any], object], dict[str, Any]]:
    """Return the function that shows the results of several members, and the errors that refused others."""

    def shown(member: Any, envelope: object) -> dict[str, Any]:
        if isinstance(member, HoldfastError):
            return {"success": False, **error_fields(member)}
        return {"success": True, **show(None, member, envelope)}

    return lambda command, members, envelope: {"results": [shown(member, envelope) for member in members]}


def _read_members(command: Any, reply: Mapping[str, Any]) -> Results:
    pairs = zip(command.items, reply["results"], strict=True)
    return Results(
        tuple(result_of(item, result) if result["success"] else error_of(result) for item, result in pairs)
    )


CODECS: Final[Mapping[Any, Codec]] = {
    StoredReply: Codec(_show_stored, _read_set),
    AppendReply: Codec(_show_appended, _read_set),
    IncrReply: Codec(_show_sum, _read_stored),
    TouchReply: Codec(_show_touched, _read_touched),
    DeletedReply: Codec(_show_deleted, _read_deleted),
    SetManyReply: Codec(_show_members(_show_stored), _read_members),
    DeleteManyReply: Codec(_show_members(_show_deleted), _read_members),
    BatchReply: Codec(_show_versions, _read_versions),
    EscalateReply: Codec(_show_letter, _read_letter),
    BegunReply: Codec(
        lambda command, result, envelope: {"upload": result.upload, "part_bytes": PART_BYTES},
        lambda command, reply: Begun(reply["upload"]),
    ),
    PartStoredReply: Codec(lambda command, result, envelope: {"checksum": command.checksum}, _read_done),
    Nothing: Codec(lambda command, result, envelope: {}, _read_done),
}
"""How each kind of reply to a write is made and read."""
