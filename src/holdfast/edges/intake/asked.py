"""A request as the fields of a log line: plugin, verb, key and request id.

Law: a request is decoded for this only when a line about it is written, so a service that logs nothing pays
nothing. No value becomes a field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.rules import MAX_KEY_CHARACTERS
from holdfast.wire.blobs import with_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.edges.intake.lines import Request
    from holdfast.wire.subjects import Route

MOST_READ: Final = 131_072
"""Largest request, in bytes, that is decoded again for a log line. For others only the subject is used."""
LONG: Final = 4_096
"""Size in bytes above which a field is not decoded for a log line: a value of 64 KB takes milliseconds."""
SHOWN: Final = 10
"""Maximum number of keys that a line names for a request about several."""
_SEVERAL: Final = ("keys", "items", "writes")
"""The fields that list the keys or items of a request."""


def asked(request: Request) -> dict[str, Any]:
    """Return the plugin, verb, key and request id of a request, and the TTL if it sets one."""
    route = request.route
    told: dict[str, Any] = {
        "plugin": route.owner,
        "operation": route.verb,
        "verb": route.verb,
        "key": request.key,
        "request_id": None,
    }
    if len(request.payload) > MOST_READ and not request.head:
        return told
    payload, count = _shortened(request.payload)
    try:
        fields = with_data(request.head, b"") if request.head else route.dialect.fields(payload)
    except HoldfastError:
        return told
    told["request_id"] = _text(fields.get("request_id"))
    if route.family == "table":
        return told
    told |= _keys(route, fields)
    if count:
        told["count"] = count
    if route.verb == "set" or not _TTL.isdisjoint(fields):
        told["ttl"] = _ttl(fields)
    return told


_TTL: Final = frozenset({"ttl", "ttl_seconds"})
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _shortened(payload: bytes) -> tuple[bytes, int]:
    """Return a payload without long fields, and the number of keys or items if only the first are left."""
    if len(payload) <= LONG:
        return payload, 0
    try:
        members, count = _MEMBERS(payload), 0
        for name, member in members.items():
            if len(bytes(member)) > LONG:
                members[name] = msgspec.Raw(b"null")
                if name in _SEVERAL:
                    several = _LIST(member)
                    count = len(several)
                    members[name] = msgspec.Raw(msgspec.json.encode(several[:SHOWN]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return payload[:LONG], 0
    return msgspec.json.encode(members), count


def _keys(route: Route, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key, or for several keys the first ones and their number."""
    if "key" in fields:
        return {"key": _whole(route, fields["key"])}
    if "prefix" in fields:
        return {"prefix": _whole(route, fields["prefix"])}
    for name in _SEVERAL:
        if isinstance(members := fields.get(name), list):
            keys = [_whole(route, key) for key in _named(members[:SHOWN])]
            return {"key": keys[0] if keys else "", "keys": keys, "count": len(members)}
    return {}


def _named(members: list[Any]) -> Iterator[Any]:
    for member in members:
        yield member.get("key") if isinstance(member, dict) else member


def _whole(route: Route, key: object) -> str:
    """Return a key as it is stored. A caller may leave out the prefix that all keys of a project share."""
    shown = _text(key) or ""
    if route.root is None or shown.startswith(route.root):
        return shown
    return f"{route.root}{shown}"


def _ttl(fields: Mapping[str, Any]) -> int | None:
    semantics = fields.get("semantics")
    given = [fields.get("ttl"), fields.get("ttl_seconds")]
    if isinstance(semantics, dict):
        given.append(semantics.get("ttl_seconds"))
    return next((ttl for ttl in given if type(ttl) is int), None)


def _text(given: object) -> str | None:
    return given[:MAX_KEY_CHARACTERS] if isinstance(given, str) else None
