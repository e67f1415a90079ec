"""The dialects: how names and errors are spelled in each, and which subjects speak it.

Law: one table. A dialect changes spelling only, never meaning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.wire.errors import error_fields
from holdfast.wire.payload import decode, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import HoldfastError


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one family of subjects spells fields, replies and errors."""

    name: str
    camel: bool = False
    nested: bool = False

    def fields(self, payload: bytes) -> dict[str, Any]:
        """The fields of a request under their own names."""
        fields = fields_of(payload)
        return _renamed(fields, _snake, DEEPEST) if self.camel else fields

    def request(self, fields: dict[str, Any]) -> bytes:
        """A request as it is sent."""
        return _ENCODE(_renamed(fields, _camel, DEEPEST) if self.camel else fields)

    def event(self, fields: dict[str, Any]) -> bytes:
        """A record of the journal as it is told."""
        return self.request(_lowered(fields)) if self.camel else _ENCODE(fields)

    def answer(self, payload: bytes) -> dict[str, Any]:
        """The fields of a reply under their own names, for whoever asked."""
        fields: dict[str, Any] = decode(payload)
        return _renamed(fields, _snake, DEEPEST) if self.camel else fields

    def reply(self, fields: dict[str, Any]) -> bytes:
        """A success as it is sent."""
        if self.nested:
            return _ENCODE({"success": True, "data": _nested(fields)})
        if self.camel:
            fields = _renamed(_lowered(fields), _camel, DEEPEST)
        return _ENCODE({"success": True, **fields})

    def spelled(self, name: str) -> str:
        """The name of a field, or a path of names, as this dialect spells it."""
        return _camel(name) if self.camel else name

    def message(self, error: HoldfastError) -> str:
        """The message of an error, with the names of fields as this dialect spells them."""
        return _reworded(error.message, _camel) if self.camel else error.message

    def refusal(self, error: HoldfastError, *, bare: bool = False) -> bytes:
        """An error as it is sent: what a caller can act on, never an exception's text.

        A bare one does not show what is there instead of what was expected.
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
"""Fields whose content is the user's own: names within them are left as they are."""
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
    *("last_writer", "request_id", "spec_ref", "ttl_seconds"),
)
"""The fields whose names dialects spell in two ways, as far as messages speak of them."""
DEEPEST: Final = 16
"""No name of ours lies deeper than this in a message; what does is nobody's, and left as it is."""


def _snake(name: str) -> str:
    return _HUMP.sub(lambda match: "_" + match[1].lower(), name)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


_NAMES: Final = re.compile(
    rf"(?<!\w)(?:'[^']*'|\"[^\"]*\")|\b({'|'.join((*_FIELDS, *map(_camel, _FIELDS)))})\b"
)
"""The names of fields in a message, or what it quotes."""


def _renamed(fields: Any, rename: Callable[[str], str], room: int) -> Any:
    if room == 0:
        return fields
    if isinstance(fields, dict):
        return {rename(name): _within(name, field, rename, room) for name, field in fields.items()}
    return [_renamed(member, rename, room - 1) for member in fields] if isinstance(fields, list) else fields


def _within(name: str, field: Any, rename: Callable[[str], str], room: int) -> Any:
    """What a field holds: the name of another, as an error tells it, is spelled as that is."""
    if name == "field" and isinstance(field, str):
        return rename(field)
    if name == "message" and isinstance(field, str):
        return _reworded(field, rename)
    return field if name in _UNTOUCHED else _renamed(field, rename, room - 1)


def _reworded(message: str, rename: Callable[[str], str]) -> str:
    """A message with the names of fields in it spelled otherwise, but for what it quotes of a caller's."""
    return _NAMES.sub(lambda match: rename(match[1]) if match[1] else match[0], message)


def _nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with each of their results as its single verb answers in a dialect that nests."""
    if "results" in fields:
        fields = fields | {"results": [_nested_member(member) for member in fields["results"]]}
    return fields


def _nested_member(member: dict[str, Any]) -> dict[str, Any]:
    """A flat success or refusal with all but `success` in an object of its own."""
    fields = dict(member)
    if fields.pop("success"):
        return {"success": True, "data": fields}
    return {"success": False, "error": {"code": fields.pop("error_code"), **fields}}


def _lowered(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with their error's code in lower case, and those of their results and changes."""
    if "error_code" in fields:
        fields = fields | {"error_code": fields["error_code"].lower()}
    for several in ("results", "changes"):
        if several in fields:
            fields = fields | {several: [_lowered(member) for member in fields[several]]}
    return fields
