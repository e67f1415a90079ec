"""Responses of the HTTP door: status, headers and body.

The status of an error comes from the one table of codes, `holdfast.wire.errors.NUMBERS`. Only four
refusals have a status of their own, because HTTP has a word for them: a failed precondition is 412, a caller
without a token 401, a wrong method 405, and a range outside of a blob 416.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from holdfast.edges.http.requests import WrongMethod, tagged
from holdfast.errors import HoldfastError, PermissionDenied, ValidationError, VersionConflict
from holdfast.wire.blobs import FIELDS, fields_text, in_ascii
from holdfast.wire.errors import NUMBERS, error_fields

Header = tuple[bytes, bytes]

JSON: Final[Header] = (b"content-type", b"application/json")
BYTES: Final[Header] = (b"content-type", b"application/octet-stream")
PROBLEM: Final[Header] = (b"content-type", b"application/problem+json")
ALWAYS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""The headers of every response. Stored values are neither cached nor taken for a web page."""

_ALWAYS: Final = b"".join(b"%b: %b\r\n" % header for header in ALWAYS)
_STATUS: Final = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}

encode: Final = msgspec.json.Encoder().encode


class NoToken(PermissionDenied):
    """The caller showed no token, or none that is valid."""


class Unsatisfiable(ValidationError):
    """The caller asked for a range of bytes that the blob does not have. `size` is that of the blob."""

    size: int = 0


class Response(NamedTuple):
    """A response."""

    status: int
    headers: list[Header]
    body: bytes


def spelled(response: Response, *more: Iterable[Header]) -> bytes:
    """Return a response with more headers, as it is sent over a connection that is kept."""
    status, headers, body = response
    parts = [_STATUS[status], _ALWAYS]
    parts += [b"%b: %b\r\n" % header for header in chain(headers, *more)]
    parts.append(b"\r\n" if status == 304 else b"content-length: %d\r\n\r\n" % len(body))
    parts.append(body)
    return b"".join(parts)


def warned(warning: str) -> Header:
    """Return the header of a warning, which may hold names that the caller made up."""
    text = warning.encode("ascii", "backslashreplace").replace(b"\r", b" ").replace(b"\n", b" ")
    return b"holdfast-warning", text


def plain(fields: Mapping[str, Any]) -> Response:
    """Return the reply to a verb, with its fields as JSON."""
    return Response(200, [JSON], encode(fields))


def with_bytes(fields: Mapping[str, Any]) -> Response:
    """Return the reply to a verb on blobs: bytes as the body, and the other fields in a header."""
    if "data" not in fields:
        return plain(fields)
    said = in_ascii(fields_text({"success": True, **fields})).encode()
    return Response(200, [BYTES, (FIELDS.lower().encode(), said)], fields["data"])


def shown(fields: Mapping[str, Any]) -> Response:
    """Return an entry: its value as the body, and its envelope as headers."""
    return Response(200, [JSON, *about(fields)], bytes(fields["value"]))


def about(fields: Mapping[str, Any]) -> list[Header]:
    """Return the envelope of an entry as headers."""
    headers = [*_tag(fields), (b"last-modified", _http_date(fields["updated_at"]))]
    if fields["expires_at"] is not None:
        headers.append((b"holdfast-expires-at", fields["expires_at"].isoformat().encode()))
    return headers


def whole(fields: Mapping[str, Any]) -> Response:
    """Return an entry or a write as JSON, with its version as the entity tag."""
    return Response(200, [JSON, *_tag(fields)], encode(fields))


def unchanged(fields: Mapping[str, Any]) -> Response:
    """Return the response to a caller that already has this version."""
    return Response(304, _tag(fields), b"")


def page(fields: Mapping[str, Any], path: bytes, query: Mapping[str, Any]) -> Response:
    """Return a page of keys, with a link to the next page."""
    headers = [JSON]
    if fields["cursor"] is not None:
        following = urlencode(
            {name: _spelled(value) for name, value in query.items()} | {"cursor": fields["cursor"]}
        )
        headers.append((b"link", b"<" + path + b"?" + following.encode() + b'>; rel="next"'))
    return Response(200, headers, encode(fields))


def problem(error: HoldfastError, *, conditional: bool = False) -> Response:
    """Return an error as a problem document; see RFC 9457.

    With `conditional` the caller sent a precondition, so that a conflict means that it failed.
    """
    fields = error_fields(error)
    status = _status(error, conditional=conditional)
    code, message = fields.pop("error_code"), fields.pop("message")
    about = {
        "type": f"urn:holdfast:error:{code.lower()}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": message,
        "code": code,
    }
    headers = [PROBLEM, *_complaint(error), *_tag(fields.get("current") or {})]
    return Response(status, headers, encode(about | fields))


def _status(error: HoldfastError, *, conditional: bool) -> int:
    if isinstance(error, WrongMethod):
        return 405
    if isinstance(error, NoToken):
        return 401
    if isinstance(error, Unsatisfiable):
        return 416
    if conditional and isinstance(error, VersionConflict) and error.reason is None:
        return 412
    return NUMBERS[error.code]


def _complaint(error: HoldfastError) -> list[Header]:
    after = getattr(error, "retry_after", None)
    headers = [] if after is None else [(b"retry-after", str(max(1, math.ceil(after))).encode())]
    if isinstance(error, WrongMethod):
        headers.append((b"allow", error.allowed.encode()))
    if isinstance(error, Unsatisfiable):
        headers.append((b"content-range", f"bytes */{error.size}".encode()))
    if isinstance(error, NoToken):
        headers.append((b"www-authenticate", b'Bearer realm="holdfast"'))
    return headers


def _tag(fields: Mapping[str, Any]) -> list[Header]:
    version = fields.get("version")
    return [] if version is None else [(b"etag", tagged(version).encode())]


def _spelled(said: object) -> object:
    return str(said).lower() if isinstance(said, bool) else said


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _http_date(at: Any) -> bytes:
    """Return a time in the form of HTTP, which is in English whatever the locale."""
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day}, {at.day:02} {month} {at.year} {at.hour:02}:{at.minute:02}:{at.second:02} GMT".encode()
