"""Messages about blobs. A message that carries bytes has them as its payload, and its fields in a header.

Bytes within JSON would take a third more room and time. A reply that holds only an error is JSON
like any other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.blobs.commands import VERBS, Begun
from holdfast.blobs.fields import BegunReply, PartStoredReply
from holdfast.blobs.manifest import PART_BYTES
from holdfast.commands import Done, Stored
from holdfast.errors import InvalidJson
from holdfast.origin import origin_fields
from holdfast.replies import Nothing, StoredReply
from holdfast.rows import PARTS, Address, Row
from holdfast.wire.payload import fields_of
from holdfast.wire.replies import row_of
from holdfast.wire.writes import Write, message_of, result_of, show_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.commands import WriteCommand
    from holdfast.declare import Declaration
    from holdfast.verbs.caller import NamespaceCaller

FIELDS: Final = "Holdfast-Fields"
"""The header that holds the fields of a message whose payload is bytes."""
_KINDS: Final = frozenset(declaration.kind for declaration in VERBS.values())
HEADER: Final = f"\r\n{FIELDS}:".encode()


def with_data(head: bytes, payload: bytes) -> dict[str, Any]:
    """Return the fields of a request that may have its bytes as the payload."""
    _, found, rest = head.partition(HEADER)
    if not found:
        return fields_of(payload)
    text, _, more = rest.partition(b"\r\n")
    if HEADER in b"\r\n" + more:
        raise InvalidJson(f"the request has more than one header {FIELDS}")
    return {**fields_of(text.strip(b" ")), "data": payload}


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a message for its header, without its bytes."""
    told = {name: field for name, field in fields.items() if name != "data"}
    return msgspec.json.encode(told).decode()


def in_ascii(text: str) -> str:
    """Return the text of fields for the headers of HTTP, which hold nothing but ASCII."""
    return text if text.isascii() else json.dumps(msgspec.json.decode(text), separators=(",", ":"))


def blob_write(declaration: Declaration, caller: NamespaceCaller, fields: Mapping[str, Any]) -> Write:
    """Build the write that the fields of a call on blobs ask for, with its bytes as `data`."""
    message: Any = declaration.of_fields(fields)
    command: WriteCommand = declaration.make(
        caller, message, caller.origin_of(message, fields.get("deadline"))
    )
    envelope, show = fields.get("envelope"), _CODECS[declaration.reply].show
    return Write(command, lambda result: show(command, result, envelope))


def blob_message(command: WriteCommand) -> tuple[str, dict[str, Any]]:
    """Convert a command to a verb and the fields of its request, with its bytes as `data`."""
    if type(command) not in _KINDS:  # it is a call of one of the verbs of keys
        return message_of(command)
    declaration = command.declared
    fields = declaration.fields_of(command)
    if "envelope" in declaration.names:
        fields["envelope"] = True
    return declaration.name, fields | origin_fields(command.origin)


def blob_result(command: WriteCommand, reply: Mapping[str, Any]) -> Any:
    """Convert a successful reply to the result of its command."""
    if type(command) not in _KINDS:
        return result_of(command, reply)
    return _CODECS[command.declared.reply].read(reply)


class _Codec(msgspec.Struct, frozen=True):
    """How a reply is made of a command, its result and the `envelope` of the call, and how it is read."""

    show: Callable[[Any, Any, object], dict[str, Any]]
    read: Callable[[Mapping[str, Any]], Any]


def _done(reply: Mapping[str, Any]) -> Done:
    return Done()


_CODECS: Final[Mapping[Any, _Codec]] = {
    StoredReply: _Codec(
        lambda command, result, envelope: show_stored(result, envelope),
        lambda reply: Stored(reply["key"], row_of(reply)),
    ),
    BegunReply: _Codec(
        lambda command, result, envelope: {"upload": result.upload, "part_bytes": PART_BYTES},
        lambda reply: Begun(reply["upload"]),
    ),
    PartStoredReply: _Codec(lambda command, result, envelope: {"checksum": command.checksum}, _done),
    Nothing: _Codec(lambda command, result, envelope: {}, _done),
}
"""How each kind of reply to a write of blobs is made and read."""


def part_fields(address: Address) -> dict[str, Any]:
    """Return the fields of the request for a part at an address."""
    assert isinstance(address.key, bytes)
    return {
        "upload": int(address.space.removeprefix(PARTS)),
        "number": int.from_bytes(address.key, "big"),
    }


def part_of(reply: Mapping[str, Any]) -> Row:
    """Rebuild the row of a part from the reply."""
    data: bytes = reply.get("data", b"")
    checksum: str = reply["checksum"]
    return Row(
        value=checksum,
        size=len(checksum) + len(data),
        version=0,
        created_at=0,
        updated_at=0,
        data=data,
    )
