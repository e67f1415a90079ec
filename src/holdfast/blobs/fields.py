"""The limits and legal forms of what is said about a blob.

Law: as in `holdfast.rules`, for the fields that only blobs have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from holdfast import rules
from holdfast.blobs.manifest import MAX_BLOB_BYTES, PART_BYTES, checksum_of, parts_in
from holdfast.errors import ValidationError, ValueTooLarge

ANY_BYTES: Final = "application/octet-stream"
"""The content type of a blob that is put without one."""
MAX_METADATA_BYTES: Final = 8_192
_CONTENT_TYPE: Final = re.compile(r"[ -~]{1,255}")
_CHECKSUM: Final = re.compile(r"[0-9a-f]{64}")


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


def metadata(given: object) -> str:
    """Return the metadata of a blob, an object whose members are texts, as JSON text."""
    if given is None:
        return "{}"
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) for member in given.items() for text in member
    ):
        raise ValidationError("metadata must be an object whose members are texts", field="metadata")
    return rules.encode_value(dict(given), most=MAX_METADATA_BYTES, field="metadata")[0]


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


def data(given: object, *, given_checksum: object = None) -> tuple[bytes, str]:
    """Return the bytes of a part and their checksum, which must be the one given, if any."""
    if not isinstance(given, bytes):
        raise ValidationError("data must be bytes", field="data")
    if len(given) > PART_BYTES:
        raise ValueTooLarge(f"a part has at most {PART_BYTES} bytes, not {len(given)}", field="data")
    found = checksum_of(given)
    require_checksum(found, given_checksum)
    return given, found


def require_checksum(found: str, given: object) -> None:
    """Refuse bytes whose checksum is not the one that the caller gave, if any."""
    if given is not None and checksum(given) != found:
        raise ValidationError(
            f"the checksum of the bytes that arrived is {found}, not {given}", field="checksum"
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
