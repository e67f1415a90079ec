"""Messages about blobs. A message that carries bytes has them as its payload, and its fields in a header.

Bytes within JSON would take a third more room and time. A reply that holds only an error is JSON
like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidJson
from holdfast.rows import PARTS, Address, Row
from holdfast.wire.payload import fields_of

FIELDS: Final = "Holdfast-Fields"
"""The header that holds the fields of a message whose payload is bytes."""
HEADER: Final = f"\r\n{FIELDS}:".encode()


def with_data(head: bytes, payload: bytes) -> dict[str, Any]:
    """Return the fields of a request that may have its bytes as the payload."""
    _, separator, rest = head.partition(HEADER)
    if not separator:
        return fields_of(payload)
    text, _, more = rest.partition(b"\r\n")
    if HEADER in b"\r\n" + more:
        raise InvalidJson(f"the request has more than one header {FIELDS}")
    return {**fields_of(text.strip(b" ")), "data": payload}


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a message for its header, without its bytes."""
    described = {name: field for name, field in fields.items() if name != "data"}
    return msgspec.json.encode(described).decode()


def in_ascii(text: str) -> str:
    """Return the text of fields for the headers of HTTP, which hold nothing but ASCII."""
    return text if text.isascii() else json.dumps(msgspec.json.decode(text), separators=(",", ":"))


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
