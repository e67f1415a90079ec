"""Messages about blobs. A message that carries bytes has them as its payload, and its fields in a header.

Bytes within JSON would take a third more room and time. A reply that holds only an error is JSON
like any other.

Law: as in `holdfast.wire.writes`: the fields hold everything that a command holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.blobs.commands import AbortUpload, BeginUpload, Begun, CopyBlob, PutPart, StoreBlob
from holdfast.commands import Done, Stored
from holdfast.errors import InvalidJson
from holdfast.origin import origin_fields
from holdfast.rows import PARTS, Address, Row
from holdfast.wire.payload import fields_of
from holdfast.wire.replies import row_of
from holdfast.wire.writes import message_of, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.commands import WriteCommand

FIELDS: Final = "Holdfast-Fields"
"""The header that holds the fields of a message whose payload is bytes."""
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


def blob_message(command: WriteCommand) -> tuple[str, dict[str, Any]]:
    """Convert a command to a verb and the fields of its request, with its bytes as `data`."""
    match command:
        case StoreBlob():
            return "put" if command.upload is None else "commit", _store_fields(command)
        case BeginUpload():
            return "begin", origin_fields(command.origin)
        case PutPart():
            fields = {
                "upload": command.upload,
                "number": command.number,
                "checksum": command.checksum,
                "data": command.data,
            }
            return "put_part", fields | origin_fields(command.origin)
        case AbortUpload():
            return "abort", {"upload": command.upload} | origin_fields(command.origin)
        case CopyBlob():
            fields = {"key": command.key, "source": command.source, "envelope": True}
            if command.expected is not None:
                fields["expected_version"] = command.expected
            if command.ttl is not None:
                fields["ttl"] = command.ttl
            return "copy", fields | origin_fields(command.origin)
        case _:
            return message_of(command)


def _store_fields(command: StoreBlob) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "key": command.key,
        "checksum": command.checksum,
        "content_type": command.content_type,
        "metadata": msgspec.json.decode(command.metadata),
        "envelope": True,
    }
    if command.upload is None:
        fields["data"] = command.data or b""
    else:
        fields |= {"upload": command.upload, "size": command.size}
    if command.expected is not None:
        fields["expected_version"] = command.expected
    if command.ttl is not None:
        fields["ttl"] = command.ttl
    if command.keep_ttl:
        fields["keep_ttl"] = True
    return fields | origin_fields(command.origin)


def blob_result(command: WriteCommand, reply: Mapping[str, Any]) -> Any:
    """Convert a successful reply to the result of its command."""
    match command:
        case StoreBlob() | CopyBlob():
            return Stored(reply["key"], row_of(reply))
        case BeginUpload():
            return Begun(reply["upload"])
        case PutPart() | AbortUpload():
            return Done()
        case _:
            return result_of(command, reply)


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
