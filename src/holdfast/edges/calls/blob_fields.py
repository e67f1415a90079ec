"""The fields and replies of the verbs on blobs.

Only declarations; see `holdfast.edges.calls.catalogue`.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.blobs.manifest import MAX_BLOB_BYTES, parts_in
from holdfast.edges.calls.key_fields import KeyFields
from holdfast.forms import (
    NO_KEEPING,
    TEXT,
    TTLS,
    CallFields,
    ExpectedVersion,
    KeepTtl,
    Key,
    KeyWriteFields,
    Ttl,
    TtlSeconds,
    WriteFields,
    ruled,
    unsaid,
)
from holdfast.replies import EntryReply

_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
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
_SHA256: Final = "^[0-9a-f]{64}$"
Checksum = Annotated[str, Meta(description="The SHA-256 of the bytes, in hexadecimal.", pattern=_SHA256)]
GivenChecksum = Annotated[
    str,
    Meta(
        description="The SHA-256 of the bytes, in hexadecimal. Bytes with another one are refused.",
        pattern=_SHA256,
        extra_json_schema=unsaid("a `checksum` of other bytes"),
    ),
]


Position = Annotated[int, Meta(ge=0, le=rules.MAX_VERSION)]


class ExpectingFields(KeyWriteFields, kw_only=True):
    """A write of one key."""

    key: Key
    expected_version: ExpectedVersion | UnsetType = UNSET


@ruled(*TTLS)
class TtlFields(ExpectingFields, kw_only=True):
    """A write of one key that may set a time to live."""

    ttl: Ttl | UnsetType = UNSET
    ttl_seconds: TtlSeconds | UnsetType = UNSET
    keep_ttl: KeepTtl | UnsetType = UNSET


@ruled(*TTLS)
class AboutFields(TtlFields, kw_only=True):
    """The description of a blob that is stored."""

    content_type: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255, pattern="^[ -~]+$")] | UnsetType,
        Meta(description="The content type; `application/octet-stream` if not given."),
    ] = UNSET
    metadata: Annotated[
        dict[str, str] | UnsetType, Meta(description="Texts by name, of at most 8,192 bytes as JSON.")
    ] = UNSET


@ruled(*TTLS)
class PutBlobFields(AboutFields, kw_only=True):
    """The fields of `put`."""

    data: Data
    checksum: GivenChecksum | UnsetType = UNSET


@ruled(*TTLS)
class CommitFields(AboutFields, kw_only=True):
    """The fields of `commit`."""

    upload: UploadId
    size: Annotated[
        int,
        Meta(
            description="The number of bytes of all parts.",
            ge=0,
            le=MAX_BLOB_BYTES,
            extra_json_schema=unsaid("a `size` or `checksum` that is not that of the parts"),
        ),
    ]
    checksum: Annotated[str, Meta(description="The checksum of the whole blob.", pattern=_SHA256)]


class PutPartFields(WriteFields, kw_only=True):
    """The fields of `put_part`."""

    upload: UploadId
    number: PutNumber
    data: PartData
    checksum: GivenChecksum | UnsetType = UNSET


class UploadFields(WriteFields, kw_only=True):
    """A call about an upload."""

    upload: UploadId


@ruled(*NO_KEEPING)
class CopyFields(TtlFields, kw_only=True):
    """The fields of `copy`."""

    source: Annotated[
        str,
        Meta(
            description="The name of the blob to copy. `key` is that of the copy.",
            min_length=1,
            max_length=rules.MAX_KEY_CHARACTERS,
            pattern=TEXT,
        ),
    ]


class GetBlobFields(KeyFields, kw_only=True):
    """The fields of `get`."""

    start: Annotated[
        Position | UnsetType, Meta(description="The position of the first byte; 0 if not given.")
    ] = UNSET
    end: Annotated[
        Position | UnsetType, Meta(description="The position after the last byte; the end if not given.")
    ] = UNSET


class GetPartFields(CallFields, kw_only=True):
    """The fields of `get_part`."""

    upload: UploadId
    number: Number


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
