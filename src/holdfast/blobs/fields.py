"""The fields and replies of calls on blobs: what is legal in a field, and what schemas show of it."""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.blobs.manifest import MAX_BLOB_BYTES, PART_BYTES, checksum_of, parts_in
from holdfast.declare import missing
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.forms import TEXT, unsaid
from holdfast.replies import EntryReply

ANY_BYTES: Final = "application/octet-stream"
"""The content type of a blob that is put without one."""
MAX_METADATA_BYTES: Final = 8_192
_CONTENT_TYPE: Final = re.compile(r"[ -~]{1,255}")
_CHECKSUM: Final = re.compile(r"[0-9a-f]{64}")
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
_SHA256: Final = "^[0-9a-f]{64}$"

Data = Annotated[
    bytes,
    Meta(
        description="The bytes, at most 262,144.",
        max_length=262_144,
        extra_json_schema={"pattern": _BASE64},
    ),
]
PartData = Annotated[
    bytes,
    Meta(
        description="The bytes, at most 262,144.",
        min_length=1,
        max_length=262_144,
        extra_json_schema={"pattern": _BASE64},
    ),
]
UploadId = Annotated[int, Meta(description="The id of the upload.", ge=1, le=rules.MAX_VERSION)]
Number = Annotated[
    int, Meta(description="The number of the part, from 0.", ge=0, lt=parts_in(MAX_BLOB_BYTES))
]
PutNumber = Annotated[
    Number,
    Meta(extra_json_schema=unsaid("a `number` far ahead of the parts that are there, or after a short part")),
]
Checksum = Annotated[str, Meta(description="The SHA-256 of the bytes, in hexadecimal.", pattern=_SHA256)]
GivenChecksum = Annotated[
    str,
    Meta(
        description="The SHA-256 of the bytes, in hexadecimal. Bytes with another one are refused.",
        pattern=_SHA256,
        extra_json_schema=unsaid("a `checksum` of other bytes"),
    ),
]
WholeChecksum = Annotated[str, Meta(description="The checksum of the whole blob.", pattern=_SHA256)]
Size = Annotated[
    int,
    Meta(
        description="The number of bytes of all parts.",
        ge=0,
        le=MAX_BLOB_BYTES,
        extra_json_schema=unsaid("a `size` or `checksum` that is not that of the parts"),
    ),
]
ContentType = Annotated[
    Annotated[str, Meta(min_length=1, max_length=255, pattern="^[ -~]+$")],
    Meta(description="The content type; `application/octet-stream` if not given."),
]
Metadata = Annotated[dict[str, str], Meta(description="Texts by name, of at most 8,192 bytes as JSON.")]
Source = Annotated[
    str,
    Meta(
        description="The name of the blob to copy. `key` is that of the copy.",
        min_length=1,
        max_length=rules.MAX_KEY_CHARACTERS,
        pattern=TEXT,
    ),
]
Position = Annotated[int, Meta(ge=0, le=rules.MAX_VERSION)]
Start = Annotated[Position, Meta(description="The position of the first byte; 0 if not given.")]
End = Annotated[Position, Meta(description="The position after the last byte; the end if not given.")]


class BegunReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `begin`."""

    upload: UploadId
    part_bytes: Annotated[int, Meta(description="The size of every part but the last.")]


class PartStoredReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `put_part`."""

    checksum: Checksum


class PartReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `get_part`."""

    exists: Annotated[bool, Meta(description="Whether the part is there.")]
    checksum: Checksum | UnsetType = UNSET
    data: Annotated[bytes | UnsetType, Meta(description="The bytes, as the payload.")] = UNSET


class GetBlobReply(EntryReply, kw_only=True):
    """The reply to `get`. `value` describes the blob."""

    start: Annotated[int | UnsetType, Meta(description="The position of the first byte of `data`.")] = UNSET
    end: Annotated[int | UnsetType, Meta(description="The position after the last byte of `data`.")] = UNSET
    data: Annotated[
        bytes | UnsetType, Meta(description="The bytes, as the payload; no more than 262,144 at a time.")
    ] = UNSET


def content_type(text: object) -> str:
    """Return the content type of a blob."""
    if text is None:
        return ANY_BYTES
    if not isinstance(text, str) or not _CONTENT_TYPE.fullmatch(text):
        raise ValidationError(
            f"content_type must be 1 to 255 ASCII characters such as image/png, not {rules.shown(text)}",
            field="content_type",
        )
    return text


def metadata(value: object) -> str:
    """Return the metadata of a blob, an object whose members are texts, as JSON text."""
    if value is None:
        return "{}"
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) for member in value.items() for text in member
    ):
        raise ValidationError("metadata must be an object whose members are texts", field="metadata")
    return rules.encode_value(dict(value), most=MAX_METADATA_BYTES, field="metadata")[0]


def size(number: object) -> int:
    """Return the size of a blob."""
    if type(number) is not int or number < 0:
        raise ValidationError(f"size must be a whole number from 0, not {rules.shown(number)}", field="size")
    if number > MAX_BLOB_BYTES:
        raise ValueTooLarge(f"a blob has at most {MAX_BLOB_BYTES} bytes", field="size")
    return number


def checksum(text: object) -> str:
    """Return a checksum: SHA-256 as 64 hexadecimal digits."""
    if not isinstance(text, str) or not _CHECKSUM.fullmatch(text):
        raise ValidationError("checksum must be 64 hexadecimal digits in lower case", field="checksum")
    return text


def data(content: object, given_checksum: object = None) -> tuple[bytes, str]:
    """Return the bytes of a part and their checksum, which must be the one given, if any.

    Where a door has only text, bytes are base64.
    """
    if content is UNSET:
        raise missing("data")
    if isinstance(content, str):
        try:
            content = binascii.a2b_base64(content, strict_mode=True)
        except (binascii.Error, ValueError):
            raise ValidationError("data must be base64 where it is text", field="data") from None
    if not isinstance(content, bytes):
        raise ValidationError("data must be bytes", field="data")
    if len(content) > PART_BYTES:
        raise ValueTooLarge(f"a part has at most {PART_BYTES} bytes, not {len(content)}", field="data")
    actual = checksum_of(content)
    require_checksum(actual, given_checksum)
    return content, actual


def require_checksum(actual: str, expected: object) -> None:
    """Refuse bytes whose checksum is not the one that the caller gave, if any."""
    if expected is not None and checksum(expected) != actual:
        raise ValidationError(
            f"the checksum of the bytes that arrived is {actual}, not {expected}", field="checksum"
        )


def upload(number: object) -> int:
    """Return the id of an upload."""
    return rules.positive(number, field="upload")


def part_number(number: object) -> int:
    """Return the number of a part, from 0."""
    if type(number) is not int or not 0 <= number < parts_in(MAX_BLOB_BYTES):
        raise ValidationError(
            f"number must be a whole number from 0 to {parts_in(MAX_BLOB_BYTES) - 1}, "
            f"not {rules.shown(number)}",
            field="number",
        )
    return number


def offset(number: object, *, field: str) -> int:
    """Return a position in a blob."""
    if type(number) is not int or number < 0:
        raise ValidationError(
            f"{field} must be a whole number from 0, not {rules.shown(number)}", field=field
        )
    return number
