"""Calls of the verbs that write keys: fields become a command, and its result becomes the reply's fields.

Law: the service and the retry of a dead letter both build their commands here, so that the same call has the
same meaning. The client's side, which turns a command into a message, is `holdfast.wire.writes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.commands import Deleted, Missed, Results, Stored, WriteCommand
from holdfast.errors import HoldfastError, MissingField, ValidationError
from holdfast.stored import look_over
from holdfast.verbs.fields import Several, as_object, required, ttl_field
from holdfast.verbs.keys import Verbs
from holdfast.wire.errors import ERRORS, error_fields
from holdfast.wire.replies import row_fields, stored_fields
from holdfast.wire.writes import BARE, escalation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Write(msgspec.Struct, frozen=True):
    """A writing call: its command (None if no part is valid), and the function that shows its result."""

    command: WriteCommand | None
    show: Callable[[Any], dict[str, Any]]


_PROVENANCE: Final = frozenset({"request_id", "last_writer", "spec_ref", "fence"})
"""The fields that identify the request and its writer. A service adds the `deadline` that it computed."""


def write_of(verb: str, verbs: Verbs, fields: Mapping[str, Any]) -> Write | None:
    """Build the write that a message asks for. Returns None if the verb does not write."""
    make = WRITES.get(verb)
    return None if make is None else make(verbs, fields)


def provenance(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deadline and, if the caller gives any of them, the other fields of provenance."""
    if _PROVENANCE.isdisjoint(fields):
        return {"deadline": fields.get("deadline")}
    return {
        "deadline": fields.get("deadline"),
        "request_id": fields.get("request_id"),
        "writer": fields.get("last_writer"),
        "spec_ref": fields.get("spec_ref"),
        "fence": fields.get("fence"),
    }


def _set(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    key, value, ttl = required(fields, "key"), required(fields, "value"), ttl_field(fields)
    if _PROVENANCE.isdisjoint(fields):
        origin = verbs.origin(deadline=fields.get("deadline"))
    else:
        origin = verbs.origin(**provenance(fields))
    expected, semantics = fields.get("expected_version"), fields.get("semantics")
    command = verbs.set_by(origin, key, value, ttl=ttl, expected_version=expected, semantics=semantics)
    return Write(command, _shown_stored(fields))


def _delete(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    expected = fields.get("expected_version")
    return Write(
        verbs.delete(required(fields, "key"), expected_version=expected, **provenance(fields)),
        _shown_deleted,
    )


def _incr(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = verbs.incr(
        required(fields, "key"),
        fields.get("by", 1),
        ttl=ttl_field(fields),
        only_if_exists=fields.get("only_if_exists", False),
        expected_version=fields.get("expected_version"),
        **provenance(fields),
    )
    shown = _shown_stored(fields)
    return Write(command, lambda result: {**shown(result), "value": look_over(result.key, result.row)})


def _set_ttl(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = verbs.set_ttl(
        required(fields, "key"),
        _seconds(fields),
        expected_version=fields.get("expected_version"),
        **provenance(fields),
    )
    return Write(command, _shown_stored(fields))


def _touch(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = verbs.touch(
        required(fields, "key"),
        _seconds(fields),
        expected_version=fields.get("expected_version"),
        **provenance(fields),
    )
    shown = _shown_stored(fields)
    return Write(
        command,
        lambda result: (
            {"touched": False} if isinstance(result, Missed) else {"touched": True, **shown(result)}
        ),
    )


def _seconds(fields: Mapping[str, Any]) -> Any:
    seconds = ttl_field(fields)
    return required(fields, "ttl_seconds") if seconds is None else seconds


def _remove_ttl(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    expected = fields.get("expected_version")
    command = verbs.remove_ttl(required(fields, "key"), expected_version=expected, **provenance(fields))
    return Write(command, _shown_stored(fields))


def _restore(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = verbs.restore(
        required(fields, "key"),
        ttl=ttl_field(fields),
        expected_version=fields.get("expected_version"),
        **provenance(fields),
    )
    return Write(command, _shown_stored(fields))


def _set_many(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command, members = verbs.set_many(required(fields, "items"), **provenance(fields))
    return Write(command if command.items else None, _shown_many(members, _shown_stored(fields)))


def _delete_many(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command, members = verbs.delete_many(required(fields, "keys"), **provenance(fields))
    return Write(command if command.items else None, _shown_many(members, _shown_deleted))


def _batch(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    command = verbs.batch(
        checks=fields.get("checks", ()), writes=required(fields, "writes"), **provenance(fields)
    )
    return Write(command, lambda result: {"versions": list(result.versions)})


def _escalate(verbs: Verbs, fields: Mapping[str, Any]) -> Write:
    """Build the command that stores a call that was given up, which must be valid and have a request id."""
    code = str(required(fields, "error_code")).upper()
    if code not in ERRORS:
        raise ValidationError(f"there is no error code {rules.shown(code)}", field="error_code")
    command = escalation(
        verbs,
        _given_up(verbs, fields),
        error_code=code,
        message=fields.get("message", ""),
        attempts=required(fields, "attempts"),
        **provenance(fields),
    )
    return Write(command, lambda result: {"letter": result.number})


def _given_up(verbs: Verbs, fields: Mapping[str, Any]) -> WriteCommand:
    verb, request = required(fields, "verb"), as_object(required(fields, "request"), field="request")
    make = WRITES.get("set" if verb == "put" else verb) if isinstance(verb, str) else None
    if make is None or make is _escalate:
        raise ValidationError("verb must be one that writes", field="verb")
    given = {name: field for name, field in request.items() if field is not None or name == "value"}
    given.pop("deadline", None)  # the deadline of a call that was given up has passed
    command = make(verbs, given)
    if command.command is None:
        raise ValidationError("the request would write nothing", field="request")
    if not command.command.origin.repeatable:
        raise MissingField("the request has no request_id", field="request.request_id")
    return command.command


def _shown_stored(fields: Mapping[str, Any]) -> Callable[[Stored], dict[str, Any]]:
    """Return the function that shows a stored entry: its version and deadline, or more with `envelope`.

    `envelope` true shows the whole entry, `BARE` all but its value.
    """
    wanted = fields.get("envelope")
    if wanted is True:
        return lambda result: {"key": result.key, **row_fields(result.key, result.row)}
    return _bare if wanted == BARE else _stored


def _bare(result: Stored) -> dict[str, Any]:
    fields = {"key": result.key, **row_fields(result.key, result.row)}
    del fields["value"]
    return fields


def _stored(result: Stored) -> dict[str, Any]:
    return stored_fields(result.row)


def _shown_deleted(result: Deleted) -> dict[str, Any]:
    return {"deleted": False} if result.version is None else {"deleted": True, "version": result.version}


def _shown_many(
    members: Several[Any], show: Callable[[Any], dict[str, Any]]
) -> Callable[[Results | None], dict[str, Any]]:
    def shown(member: Any) -> dict[str, Any]:
        if isinstance(member, HoldfastError):
            return {"success": False, **error_fields(member)}
        return {"success": True, **show(member)}

    return lambda result: {
        "results": [shown(member) for member in members.merge(() if result is None else result.items)]
    }


WRITES: Final[dict[str, Callable[[Verbs, Mapping[str, Any]], Write]]] = {
    "set": _set,
    "delete": _delete,
    "incr": _incr,
    "set_ttl": _set_ttl,
    "touch": _touch,
    "remove_ttl": _remove_ttl,
    "restore": _restore,
    "set_many": _set_many,
    "delete_many": _delete_many,
    "batch": _batch,
    "escalate": _escalate,
}
"""The verbs on keys that write, each with the function that builds its command."""
