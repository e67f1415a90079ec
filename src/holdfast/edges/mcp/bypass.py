"""Arguments and results of tools that bypass the SDK.

The SDK decodes a request with a slow parser, and validates and copies a result several times, object by
object. A `put` of 1 MB took about 160 ms, and a page of values about 290 ms. So the SDK gets a mark in
place of the arguments, and puts a mark in place of the result; only the door and the tool see what the marks
stand for.

Arguments are decoded once, where their verb is called, and a result is encoded once. A mark is random, so
that no caller can name one.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast import seams
from holdfast.bounded import Bounded
from holdfast.errors import Busy, InvalidJson, ValidationError

MOST_ENVELOPE: Final = 131_072
"""Maximum number of bytes of a request besides the arguments of a tool: the SDK looks at every one."""
CALL: Final = "tools/call"
KEPT: Final = 1_024
"""Number of marks of one server over stdio. One over HTTP has two for each request."""


class _Message(msgspec.Struct, kw_only=True):
    """A request or notification of JSON-RPC. What is in its parameters is not decoded."""

    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: str
    params: dict[str, Raw] | UnsetType = UNSET


_SPLIT: Final = msgspec.json.Decoder(_Message).decode


class Envelope(msgspec.Struct, frozen=True):
    """What the SDK gets of a request. `method` is empty if the request could not be taken apart."""

    body: bytes
    method: str = ""


class SdkBypass:
    """The arguments and results of one connection, kept while the SDK handles marks in their place."""

    def __init__(self) -> None:
        self._kept: Bounded[str, bytes] = Bounded(KEPT)

    def take(self, body: bytes) -> Envelope:
        """Keep the arguments of a call, and return the request with a mark in their place.

        A request that is not one of JSON-RPC, or holds numbers or text that JSON does not have, is left
        whole: the SDK refuses it, or the rules do.
        """
        try:
            message = _SPLIT(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Envelope(body)
        params = message.params
        if message.method != CALL or params is UNSET or "arguments" not in params:
            return Envelope(body, message.method)
        arguments = bytes(params["arguments"])
        if not arguments.startswith(b"{"):
            return Envelope(body, message.method)  # not an object, which the SDK says
        params["arguments"] = Raw(msgspec.json.encode({self._mark(arguments): 0}))
        return Envelope(msgspec.json.encode(message), message.method)

    def arguments(self, decoded: dict[str, Any]) -> bytes:
        """Return the arguments of a call as JSON, from what the SDK has of them.

        Raises:
            Busy: So many calls are under way that the arguments were let go.
        """
        if len(decoded) == 1:
            [(mark, argument)] = decoded.items()
            if (payload := self._kept.pop(mark, None)) is not None:
                return payload
            if argument == 0 and _is_mark(mark):
                raise Busy("too many calls are under way", retry_after=1.0)
        return as_json(decoded)

    def result(self, fields: bytes) -> tuple[str, dict[str, Any]]:
        """Keep a result, and return what the SDK gets as its text and as its structured content."""
        mark = self._mark(fields)
        return mark, {mark: 0}

    def give(self, message: bytes) -> bytes:
        """Return a message of the SDK with results in place of their marks."""
        for mark, fields in list(self._kept.items()):
            structured = b'{"%b":0}' % mark.encode()
            if structured in message:
                del self._kept[mark]
                text = msgspec.json.encode(fields.decode())
                message = message.replace(structured, fields).replace(b'"%b"' % mark.encode(), text)
        return message

    def _mark(self, kept: bytes) -> str:
        mark = _SIGN + seams.token(16)
        self._kept.keep(mark, kept)
        return mark


class NoBypass(SdkBypass):
    """The arguments and results of a server whose messages are not split: all go through the SDK."""

    def result(self, fields: bytes) -> tuple[str, dict[str, Any]]:
        """Return the text and the structured content of a result."""
        return fields.decode(), msgspec.json.decode(fields)


_SIGN: Final = "holdfast:"


def _is_mark(name: str) -> bool:
    return name.startswith(_SIGN) and len(name) == len(_SIGN) + 32


def as_json(arguments: dict[str, Any]) -> bytes:
    """Encode arguments that the SDK has decoded. Not with msgspec: it would turn NaN into null.

    Raises:
        InvalidJson: They are nested too deeply.
        ValidationError: They hold an integer with too many digits.
    """
    try:
        return json.dumps(arguments).encode()
    except RecursionError:
        raise InvalidJson("the arguments are nested too deeply") from None
    except ValueError:
        raise ValidationError("the arguments hold an integer with too many digits") from None
