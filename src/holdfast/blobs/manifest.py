"""The description of a blob, and the record of its parts.

The value of a blob's entry is its manifest. The bytes are in parts: rows of the space `part/<upload>`,
numbered from 0, all of `PART_BYTES` but the last. The row of the upload, in the space `upload`, says which
parts have arrived and how many manifests refer to them.

The id of an upload is a version of its namespace, so it is never used twice,
and parts are never changed: a manifest therefore always describes the bytes that were put with it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from holdfast.errors import DatabaseError

PART_BYTES: Final = 262_144
"""Size of every part but the last."""
MAX_BLOB_BYTES: Final = 5 * 1024**3
MOST_AHEAD: Final = 64
"""Number of parts by which a part may be ahead of the first one that is missing."""
UPLOAD_IDLE: Final = 3_600
"""Seconds after its last part at which an unfinished upload is given up."""
GRACE: Final = 60
"""Seconds for which the parts of a replaced or deleted blob are kept for readers that have begun."""
EMPTY: Final = sha256().hexdigest()
"""The checksum of a blob without bytes."""
_PREFIX: Final = "part/"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a blob's entry.

    `checksum` is that of the whole blob, see `checksum_after`. A blob without bytes has no upload: 0.
    """

    size: int
    content_type: str
    metadata: dict[str, str]
    checksum: str
    parts: int
    part_bytes: int
    upload: int


class Upload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of an upload's row.

    `next` is the number of the first part that is missing, and `chain` the checksum of the parts before it.
    `beyond` holds the checksums of parts that have arrived early, by number. `short` is the number of the
    part that is smaller than the others. `references` counts manifests, including those in the trash; 0 while
    the upload is not finished.
    """

    next: int = 0
    chain: str = EMPTY
    beyond: dict[int, str] = {}
    bytes: int = 0
    short: int | None = None
    references: int = 0


def checksum_of(data: bytes | memoryview) -> str:
    """Return the checksum of a part: SHA-256 in hexadecimal."""
    return sha256(data).hexdigest()


def checksum_after(chain: str, part: str, number: int) -> str:
    """Return the checksum of a blob up to and including a part, from that of the parts before it.

    The checksum up to the first part is that of the part. After that it is the SHA-256 of the checksum so far
    followed by that of the next part, both in binary.
    """
    return part if number == 0 else sha256(bytes.fromhex(chain) + bytes.fromhex(part)).hexdigest()


def part_space(upload: int) -> str:
    """Return the space of an upload's parts."""
    return f"{_PREFIX}{upload}"


def part_key(number: int) -> bytes:
    """Return the key of a part."""
    return number.to_bytes(4, "big")


def upload_key(upload: int) -> bytes:
    """Return the key of an upload's row."""
    return upload.to_bytes(8, "big")


def parts_in(size: int) -> int:
    """Return the number of parts of a blob."""
    return -(-size // PART_BYTES)


def manifest_of(name: str, text: str | None) -> Manifest:
    """Return the manifest in the value of an entry.

    Raises:
        DatabaseError: It can't be read, because it was changed outside Holdfast.
    """
    try:
        return msgspec.json.decode(text or "", type=Manifest)
    except msgspec.DecodeError:
        raise DatabaseError(f"the manifest of blob {name!r} can't be read", field="key") from None


def upload_of(text: str | None) -> Upload:
    """Return the record in the value of an upload's row.

    Raises:
        DatabaseError: It can't be read, because it was changed outside Holdfast.
    """
    try:
        return msgspec.json.decode(text or "", type=Upload)
    except msgspec.DecodeError:
        raise DatabaseError("the record of an upload can't be read") from None
