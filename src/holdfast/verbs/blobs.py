"""Making callers' commands on blobs from the arguments of a call.

Law: as in `holdfast.verbs.keys`, which makes the commands that blobs share with keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import rules
from holdfast.blobs import fields as of
from holdfast.blobs.commands import AbortUpload, BeginUpload, CopyBlob, PutPart, StoreBlob
from holdfast.errors import ValidationError
from holdfast.model import Keep

if TYPE_CHECKING:
    from holdfast.verbs.keys import Verbs


class BlobVerbs:
    """The verbs that only blobs have.

    Args:
        verbs: The verbs of keys, for the same namespace and caller.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def store(
        self,
        key: object,
        *,
        size: object,
        checksum: object,
        upload: object = None,
        data: bytes | None = None,
        content_type: object = None,
        metadata: object = None,
        ttl: object = None,
        expected_version: object = None,
        **provenance: Any,
    ) -> StoreBlob:
        """Make a command that stores a blob whose parts have arrived, or whose only part is `data`."""
        return StoreBlob(
            namespace=self._verbs.namespace,
            origin=self._verbs.origin(**provenance),
            key=self._verbs.key(key),
            expected=None if expected_version is None else rules.version(expected_version),
            upload=None if upload is None else of.upload(upload),
            data=data,
            size=of.size(size),
            checksum=of.checksum(checksum),
            content_type=of.content_type(content_type),
            metadata=of.metadata(metadata),
            ttl=None if isinstance(ttl, Keep) else rules.ttl(ttl),
            keep_ttl=isinstance(ttl, Keep),
        )

    def copy(
        self,
        source: object,
        key: object,
        *,
        ttl: object = None,
        expected_version: object = None,
        **provenance: Any,
    ) -> CopyBlob:
        """Make a command that stores the bytes of one blob under the name of another."""
        try:
            source = self._verbs.key(source)
        except ValidationError as error:
            raise ValidationError(error.message, field="source") from None
        return CopyBlob(
            namespace=self._verbs.namespace,
            origin=self._verbs.origin(**provenance),
            key=self._verbs.key(key),
            expected=None if expected_version is None else rules.version(expected_version),
            source=source,
            ttl=rules.ttl(ttl),
        )

    def begin(self, **provenance: Any) -> BeginUpload:
        """Make a command that begins an upload."""
        return BeginUpload(namespace=self._verbs.namespace, origin=self._verbs.origin(**provenance))

    def put_part(
        self, upload: object, number: object, data: bytes, checksum: str, **provenance: Any
    ) -> PutPart:
        """Make a command that stores a part, whose checksum was found to be right."""
        if not data:
            raise ValidationError("a part has at least one byte", field="data")
        return PutPart(
            namespace=self._verbs.namespace,
            origin=self._verbs.origin(**provenance),
            upload=of.upload(upload),
            number=of.part_number(number),
            checksum=checksum,
            data=data,
        )

    def abort(self, upload: object, **provenance: Any) -> AbortUpload:
        """Make a command that gives up an upload."""
        return AbortUpload(
            namespace=self._verbs.namespace,
            origin=self._verbs.origin(**provenance),
            upload=of.upload(upload),
        )
