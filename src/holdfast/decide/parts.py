"""The parts of blobs: how they count, who refers to them, and when they are no longer needed.

Law: parts are shared by all manifests that refer to their upload, including those in the trash. The last one
that goes hands them to the purge. A part counts towards the bytes of its namespace from the moment it is
stored until the purge removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.blobs.manifest import (
    UPLOAD_IDLE,
    Upload,
    manifest_of,
    part_space,
    upload_key,
    upload_of,
)
from holdfast.decide.weights import envelope
from holdfast.rows import DROPPED, OVERHEAD, UPLOAD, Address, Row

if TYPE_CHECKING:
    from holdfast.decide.draft import Draft


def upload_address(namespace: str, upload: int) -> Address:
    """Return the address of an upload's row."""
    return Address(namespace, UPLOAD, upload_key(upload))


def put_upload(draft: Draft, upload: int, record: Upload) -> None:
    """Store the record of an upload. One that is not finished has a deadline."""
    value = msgspec.json.encode(record)
    row = Row(
        value=value.decode(),
        size=len(value),
        version=upload,
        created_at=draft.now,
        updated_at=draft.now,
        expires_at=None if record.references else draft.now + UPLOAD_IDLE * 1000,
    )
    draft.put(upload_address(draft.name, upload), row)


def count_part(draft: Draft, key: bytes, row: Row, *, adds: int) -> None:
    """Count a part that is added (1) or removed (-1)."""
    namespace = draft.namespace
    namespace.bytes += adds * (len(key) + row.size)
    namespace.envelope_bytes += adds * (OVERHEAD + envelope(row))


def refer(draft: Draft, upload: int, by: int) -> None:
    """Count a manifest that refers to the parts of an upload, or no longer does (-1).

    If the record of the upload was not loaded, the outcome requests it, and this is decided again.
    """
    row = draft.look(upload_address(draft.name, upload)) if upload else None
    if row is None:
        return
    record = upload_of(row.value)
    left = record.references + by
    if left > 0:
        put_upload(draft, upload, msgspec.structs.replace(record, references=left))
    else:
        abandon_upload(draft, upload)


def release(draft: Draft, name: str, manifest: str | None) -> None:
    """Note that a manifest, which is JSON text, is gone."""
    refer(draft, manifest_of(name, manifest).upload, -1)


def abandon_upload(draft: Draft, upload: int) -> None:
    """Forget an upload and hand its parts to the purge."""
    draft.put(upload_address(draft.name, upload), None)
    abandon(draft, part_space(upload))


def abandon(draft: Draft, space: str) -> None:
    """Mark the rows of a space for removal."""
    row = Row(
        value="null",
        size=4,
        version=draft.namespace.revision,
        created_at=draft.now,
        updated_at=draft.now,
    )
    draft.put(Address(draft.name, DROPPED, space.encode()), row)
