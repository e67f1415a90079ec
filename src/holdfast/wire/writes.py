"""Encoding of writes, on the client's side: converts commands to fields and replies to results.

Law: the fields hold everything that a command holds. `holdfast.handles.key_calls` rebuilds the command from
them on the service's side, and a test sends every command there and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.commands import (
    Batch,
    Delete,
    Deleted,
    Got,
    Guard,
    Incr,
    Kept,
    KeyChange,
    Many,
    Missed,
    Origin,
    Results,
    Reveal,
    Set,
    SetTtl,
    Stored,
    Touch,
    Versions,
    WriteCommand,
)
from holdfast.letter_commands import Escalate
from holdfast.verbs.keys import Verbs
from holdfast.verbs.letters import about
from holdfast.wire.errors import error_of
from holdfast.wire.letters import Content, content_fields, content_text
from holdfast.wire.replies import row_of

if TYPE_CHECKING:
    from collections.abc import Mapping


BARE: Final = "bare"
"""The `envelope` that asks for the written entry without its value (the caller already has it)."""
_NOT_GIVEN: Final = (None, msgspec.UNSET)
_VALUE_GIVEN: Final = frozenset({"set", "set_many"})
"""The verbs whose caller already has the value."""


def escalation(
    verbs: Verbs,
    given_up: WriteCommand,
    *,
    error_code: str,
    message: object,
    attempts: object,
    **provenance: Any,
) -> Escalate:
    """Return the command that stores an abandoned command as a dead letter."""
    verb, request = message_of(given_up)
    del request["envelope"]
    content = Content(
        verb=verb,
        request=request,
        key=about(given_up)[0],
        error_code=error_code,
        message=rules.reason(message),
        attempts=rules.positive(attempts, field="attempts", most=rules.MAX_LIMIT),
    )
    return verbs.escalate(
        given_up, letter=content_text(content), error_code=error_code, attempts=attempts, **provenance
    )


def message_of(command: WriteCommand) -> tuple[str, dict[str, Any]]:
    """Convert a command to a verb and the fields of its request."""
    verb, fields = _fields_of(command)
    if verb != "reveal":  # a reveal always returns the whole entry
        fields["envelope"] = BARE if verb in _VALUE_GIVEN else True
    return verb, fields | origin_fields(command.origin)


def origin_fields(origin: Origin) -> dict[str, Any]:
    """Convert the origin to fields, as far as the caller has set it. The service knows the rest."""
    fields: dict[str, Any] = {}
    if origin.repeatable:
        fields["request_id"] = origin.request_id
    if origin.writer:
        fields["last_writer"] = origin.writer
    if origin.spec_ref is not None:
        fields["spec_ref"] = origin.spec_ref
    if origin.fence is not None:
        fields["fence"] = {"lock": origin.fence.lock, "token": origin.fence.token}
    return fields


def _fields_of(command: WriteCommand) -> tuple[str, dict[str, Any]]:
    match command:
        case Set():
            return "set", _set_fields(command)
        case SetTtl(ttl=None):
            return "remove_ttl", _key_fields(command)
        case SetTtl():
            return "set_ttl", _key_fields(command) | {"ttl_seconds": command.ttl}
        case Batch():
            checks = [{"key": check.key, "version": check.version} for check in command.checks]
            return "batch", {"checks": checks, "writes": [_write_fields(write) for write in command.writes]}
        case Many():
            if all(isinstance(item, Set) for item in command.items):
                return "set_many", {"items": [_set_fields(item) for item in command.items]}
            return "delete_many", {"keys": [item.key for item in command.items]}
        case Escalate():
            return "escalate", content_fields(command.letter)
        case Reveal():
            return "reveal", {"key": command.key} | ({} if command.why is None else {"why": command.why})
        case KeyChange(verb=verb) if verb:
            return verb, _key_fields(command) | _own_fields(command)
        case _:
            raise TypeError(f"{type(command).__name__} is no call of a client")


def _key_fields(command: Any) -> dict[str, Any]:
    fields = {"key": command.key}
    if command.expected is not None:
        fields["expected_version"] = command.expected
    return fields


def _own_fields(command: KeyChange) -> dict[str, Any]:
    """Return the fields of a command beyond those that every change of a key has."""
    own = (name for name in command.__struct_fields__ if name not in KeyChange.__struct_fields__)
    return {name: field for name in own if (field := getattr(command, name)) not in _NOT_GIVEN}


def _ttl_fields(ttl: int | None) -> dict[str, Any]:
    return {} if ttl is None else {"ttl": ttl}


def _set_fields(command: Any) -> dict[str, Any]:
    fields = _key_fields(command) | _ttl_fields(command.ttl)
    fields["value"] = msgspec.Raw(command.value.encode())
    if command.keep_ttl:
        fields["keep_ttl"] = True
    if command.semantics is not None:
        fields["semantics"] = msgspec.json.decode(command.semantics)  # not raw: dialects respell its names
    return fields


def _write_fields(write: Set | Delete | Incr | Guard) -> dict[str, Any]:
    match write:
        case Set():
            return _set_fields(write)
        case Delete():
            return {"key": write.key, "delete": True}
        case Incr():
            fields = {"key": write.key, "incr": write.by} | _ttl_fields(write.ttl)
            return fields | {"only_if_exists": True} if write.only_if_exists is True else fields
        case Guard():
            return {"guard": write.lock}


def result_of(command: WriteCommand, reply: Mapping[str, Any]) -> Any:
    """Convert a successful reply to the result of its command."""
    match command:
        case Delete():
            return Deleted(reply.get("version"))
        case Touch() if not reply["touched"]:
            return Missed()
        case Reveal():
            return Got(row_of(reply) if reply["exists"] else None)
        case Escalate():
            return Kept(reply["letter"])
        case Batch():
            versions = tuple(reply["versions"])
            return Versions(versions, (None,) * len(versions))
        case Many():
            return Results(
                tuple(
                    _member(item, found) for item, found in zip(command.items, reply["results"], strict=True)
                )
            )
        case Set():
            return Stored(reply["key"], row_of(reply, command.value.encode()))
        case _:
            return Stored(reply["key"], row_of(reply))


def _member(item: Set | Delete, reply: Mapping[str, Any]) -> Any:
    return result_of(item, reply) if reply["success"] else error_of(reply)
