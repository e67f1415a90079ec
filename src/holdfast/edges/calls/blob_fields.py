"""The fields and replies of the verbs on blobs.

Law: only declarations; see `holdfast.edges.calls.catalogue`.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.edges.calls.fields import CallFields, WriteFields
from holdfast.edges.calls.key_fields import EntryReply, KeyFields, TtlFields

Data = Annotated[bytes, Meta(description="The bytes, at most 262,144.")]
UploadId = Annotated[int, Meta(description="The id of the upload.")]
Number = Annotated[int, Meta(description="The number of the part, from 0.")]
Checksum = Annotated[str, Meta(description="The SHA-256 of the bytes, in hexadecimal.")]


class AboutFields(TtlFields, kw_only=True):
    """The description of a blob that is stored."""

    content_type: Annotated[
        str | UnsetType, Meta(description="The content type; `application/octet-stream` if not given.")
    ] = UNSET
    metadata: Annotated[
        dict[str, str] | UnsetType, Meta(description="Texts by name, of at most 8,192 bytes as JSON.")
    ] = UNSET


class PutBlobFields(AboutFields, kw_only=True):
    """The fields of `put`."""

    data: Data
    checksum: Checksum | UnsetType = UNSET


class CommitFields(AboutFields, kw_only=True):
    """The fields of `commit`."""

    upload: UploadId
    size: Annotated[int, Meta(description="The number of bytes of all parts.")]
    checksum: Annotated[str, Meta(description="The checksum of the whole blob.")]


class PutPartFields(WriteFields, kw_only=True):
    """The fields of `put_part`."""

    upload: UploadId
    number: Number
    data: Data
    checksum: Checksum | UnsetType = UNSET


class UploadFields(WriteFields, kw_only=True):
    """A call about an upload."""

    upload: UploadId


class CopyFields(TtlFields, kw_only=True):
    """The fields of `copy`."""

    source: Annotated[str, Meta(description="The name of the blob to copy. `key` is that of the copy.")]


class GetBlobFields(KeyFields, kw_only=True):
    """The fields of `get`."""

    start: Annotated[int | UnsetType, Meta(description="The position of the first byte; 0 if not given.")] = (
        UNSET
    )
    end: Annotated[
        int | UnsetType, Meta(description="The position after the last byte; the end if not given.")
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
