"""The dialects: the spelling of names and errors in each family of subjects.

A dialect changes only spelling, never meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.wire.errors import error_fields
from holdfast.wire.payload import decode, fields_of


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The spelling of fields, replies and errors in one family of subjects."""

    name: str
    camel: bool = False
    nested: bool = False

    def fields(self, payload: bytes) -> dict[str, Any]:
        """Decode the fields of a request, under their canonical names."""
        fields = fields_of(payload)
        return _renamed(fields, _snake, DEEPEST) if self.camel else fields

    def request(self, fields: dict[str, Any]) -> bytes:
        """Encode a request."""
        return _ENCODE(_renamed(fields, _camel, DEEPEST) if self.camel else fields)

    def event(self, fields: dict[str, Any]) -> bytes:
        """Encode a record of the journal for publishing."""
        return self.request(_lowered(fields)) if self.camel else _ENCODE(fields)

    def answer(self, payload: bytes) -> dict[str, Any]:
        """Decode the fields of a reply, under their canonical names."""
        fields: dict[str, Any] = decode(payload)
        return _renamed(fields, _snake, DEEPEST) if self.camel else fields

    def reply(self, fields: dict[str, Any]) -> bytes:
        """Encode a successful reply."""
        if self.nested:
            return _ENCODE({"success": True, "data": _nested(fields)})
        if self.camel:
            fields = _renamed(_lowered(fields), _camel, DEEPEST)
        return _ENCODE({"success": True, **fields})

    def spelled(self, name: str) -> str:
        """Return the name of a field, or a path of names, in this dialect's spelling."""
        return _camel(name) if self.camel else name

    def message(self, error: HoldfastError) -> str:
        """Return the message of an error, with the names of fields in this dialect's spelling."""
        return _reworded(error.message, _camel) if self.camel else error.message

    def refusal(self, error: HoldfastError, *, bare: bool = False) -> bytes:
        """Encode an error: what a caller can act on, never an exception's text.

        With `bare`, the reply does not show the current state that conflicts with the expected one.
        """
        fields = error_fields(error)
        if bare:
            fields = {name: field for name, field in fields.items() if name not in ("current", "conflicts")}
        if self.nested:
            return _ENCODE(_nested_member({"success": False, **fields}))
        if self.camel:
            fields = _renamed(_lowered(fields), _camel, DEEPEST)
        return _ENCODE({"success": False, **fields})


PLUGIN: Final = Dialect(name="plugin")
PAYLOAD: Final = Dialect(name="payload", nested=True)
SEMANTIC: Final = Dialect(name="semantic", camel=True)
ADMIN: Final = Dialect(name="admin")

_ENCODE: Final = msgspec.json.Encoder().encode
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_UNTOUCHED: Final = frozenset({"value", "item"})
"""Fields whose content belongs to the user: names inside them are left unchanged."""
_FIELDS: Final = (
    *(
        "consumer_hints",
        "deadline_ms",
        "dry_run",
        "error_code",
        "expected_version",
        "expires_before",
        "keep_ttl",
    ),
    *("last_writer", "only_if_exists", "request_id", "spec_ref", "ttl_seconds"),
)
"""The fields that messages mention and whose names differ between dialects."""
DEEPEST: Final = 16
"""The depth below which a message has no names of ours. Names below it are left unchanged."""


def _snake(name: str) -> str:
    return _HUMP.sub(lambda match: "_" + match[1].lower(), name)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


_NAMES: Final = re.compile(
    rf"(?<!\w)(?:'[^']*'|\"[^\"]*\")|\b({'|'.join((*_FIELDS, *map(_camel, _FIELDS)))})\b"
)
"""The names of fields in a message, or quoted text."""


def _renamed(fields: Any, rename: Callable[[str], str], room: int) -> Any:
    if room == 0:
        return fields
    if isinstance(fields, dict):
        return {rename(name): _within(name, field, rename, room) for name, field in fields.items()}
    return [_renamed(member, rename, room - 1) for member in fields] if isinstance(fields, list) else fields


def _within(name: str, field: Any, rename: Callable[[str], str], room: int) -> Any:
    """Rename within a field. A field of an error that names another field is respelled, too."""
    if name == "field" and isinstance(field, str):
        return rename(field)
    if name == "message" and isinstance(field, str):
        return _reworded(field, rename)
    return field if name in _UNTOUCHED else _renamed(field, rename, room - 1)


def _reworded(message: str, rename: Callable[[str], str]) -> str:
    """Respell the names of fields in a message, except in text that it quotes from a caller."""
    return _NAMES.sub(lambda match: rename(match[1]) if match[1] else match[0], message)


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Nest each of the results, in the form in which its single verb would answer."""
    if "results" in fields:
        fields = fields | {"results": [_nested_member(member) for member in fields["results"]]}
    return fields


def _nested_member(member: dict[str, Any]) -> dict[str, Any]:
    """Move all fields but `success` of a flat success or refusal into a nested object."""
    fields = dict(member)
    if fields.pop("success"):
        return {"success": True, "data": fields}
    return {"success": False, "error": {"code": fields.pop("error_code"), **fields}}


def _lowered(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert error codes to lower case, including those in results and changes."""
    if "error_code" in fields:
        fields = fields | {"error_code": fields["error_code"].lower()}
    for several in ("results", "changes"):
        if several in fields:
            fields = fields | {several: [_lowered(member) for member in fields[several]]}
    return fields
