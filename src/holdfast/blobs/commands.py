"""Commands on blobs and their results.

Law: as in `holdfast.commands`. Bytes are in commands only: results and replies hold manifests.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.commands import LEAST_COST, KeyChange, Result, WriteCommand


class UploadChange(WriteCommand, frozen=True, kw_only=True, gc=False):
    """A change of an upload, which no reader sees."""


class BeginUpload(UploadChange, frozen=True, kw_only=True, gc=False):
    """Begin an upload."""


class PutPart(UploadChange, frozen=True, kw_only=True, gc=False):
    """Store a part of an upload. A part that has arrived before is left as it is."""

    bulky: ClassVar[bool] = True

    upload: int
    number: int
    checksum: str
    data: bytes

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return len(self.data) + LEAST_COST


class AbortUpload(UploadChange, frozen=True, kw_only=True, gc=False):
    """Give up an upload. A finished one is left as it is."""

    upload: int

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class StoreBlob(KeyChange, frozen=True, kw_only=True, gc=False):
    """Store a blob, replacing any existing one.

    Its bytes are in the parts of an upload or, if there is at most one part, in `data`. `metadata` is JSON
    text.
    """

    bulky: ClassVar[bool] = True

    upload: int | None = None
    data: bytes | None = None
    size: int
    checksum: str
    content_type: str
    metadata: str
    ttl: int | None = None
    keep_ttl: bool = False

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return len(self.data or b"") + len(self.metadata) + LEAST_COST

    @property
    def asked(self) -> StoreBlob:
        """This command as its request id is remembered: the same bytes may arrive in another upload."""
        return msgspec.structs.replace(self, origin=self.origin.asked, upload=None, data=None)


class CopyBlob(KeyChange, frozen=True, kw_only=True, gc=False):
    """Store the bytes of another blob under this key, with its content type and metadata."""

    source: str
    ttl: int | None = None


class Begun(Result, frozen=True, tag=True, gc=False):
    """The id of a new upload."""

    upload: int
