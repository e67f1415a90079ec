"""The semantics of the verbs on blobs.

A blob's entry is an entry like any other, whose value is the manifest. The verbs of keys delete it, restore
it and set its deadline (`holdfast.decide.keys`); time expires it.

The bytes of an upload become visible in one step, with the manifest, and only if all of them have arrived and
their checksum is right. The parts of a blob are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.blobs.commands import AbortUpload, BeginUpload, Begun, CopyBlob, PutPart, StoreBlob
from holdfast.blobs.manifest import (
    MOST_AHEAD,
    PART_BYTES,
    Manifest,
    Upload,
    checksum_after,
    manifest_of,
    part_key,
    part_space,
    parts_in,
    upload_of,
)
from holdfast.commands import Done, Stored
from holdfast.decide.draft import Draft, Needs
from holdfast.decide.entries import (
    abandon_upload,
    count_part,
    deadline,
    deadline_of_write,
    live,
    put_upload,
    refer,
    release,
    upload_address,
)
from holdfast.decide.keys import _expected, _store
from holdfast.errors import KeyNotFound, ValidationError
from holdfast.rows import KV, Address, Row


def _begin(draft: Draft, command: BeginUpload) -> Begun:
    upload = draft.version()
    put_upload(draft, upload, Upload())
    return Begun(upload)


def _put_part(draft: Draft, command: PutPart) -> Done:
    record = _unfinished(draft, command.upload)
    number = command.number
    if number < record.next or number in record.beyond:
        return Done()
    if number > record.next + MOST_AHEAD:
        raise ValidationError(
            f"part {number} is too far ahead: part {record.next} has not arrived yet", field="number"
        )
    _add_part(draft, command.upload, number, command.data, command.checksum)
    put_upload(draft, command.upload, _with_part(record, command))
    return Done()


def _with_part(record: Upload, command: PutPart) -> Upload:
    """Return the record of an upload to which a part is added."""
    short = record.short
    if len(command.data) < PART_BYTES:
        if short is not None:
            raise ValidationError(
                f"parts {short} and {command.number} have less than {PART_BYTES} bytes; only the last may",
                field="number",
            )
        short = command.number
    waiting = record.beyond | {command.number: command.checksum}
    chain, following = record.chain, record.next
    while following in waiting:
        chain = checksum_after(chain, waiting.pop(following), following)
        following += 1
    size = record.bytes + len(command.data)
    return Upload(next=following, chain=chain, beyond=waiting, bytes=size, short=short)


def _abort(draft: Draft, command: AbortUpload) -> Done:
    row = draft.row(upload_address(draft.name, command.upload))
    if row is not None and not upload_of(row.value).references:
        abandon_upload(draft, command.upload)
    return Done()


def _store_blob(draft: Draft, command: StoreBlob) -> Stored:
    before = _expected(draft, command)
    expires_at = deadline_of_write(draft, command, before)
    manifest = Manifest(
        size=command.size,
        content_type=command.content_type,
        metadata=msgspec.json.decode(command.metadata, type=dict[str, str]),
        checksum=command.checksum,
        parts=parts_in(command.size),
        part_bytes=PART_BYTES,
        upload=_keep_parts(draft, command),
    )
    return _swap(draft, command, before, manifest, expires_at)


def _keep_parts(draft: Draft, command: StoreBlob) -> int:
    """Make the parts of a blob permanent. Returns the id of their upload, or 0 if the blob is empty."""
    if command.upload is not None:
        _require_whole(_unfinished(draft, command.upload), command)
        put_upload(draft, command.upload, Upload(references=1))
        return command.upload
    if not command.data:
        return 0
    upload = draft.version()
    _add_part(draft, upload, 0, command.data, command.checksum)
    put_upload(draft, upload, Upload(references=1))
    return upload


def _require_whole(record: Upload, command: StoreBlob) -> None:
    """Refuse an upload that lacks parts or whose bytes are not those that were sent."""
    count = parts_in(command.size)
    if (record.next, record.bytes, len(record.beyond)) != (count, command.size, 0):
        raise ValidationError(
            f"{record.bytes} bytes in {record.next + len(record.beyond)} parts have arrived; "
            f"{command.size} bytes in {count} parts were announced",
            field="size",
        )
    if record.short not in (None, count - 1):
        raise ValidationError(
            f"part {record.short} has less than {PART_BYTES} bytes; only the last may", field="size"
        )
    if record.chain != command.checksum:
        raise ValidationError(
            f"the checksum of what has arrived is {record.chain}, not {command.checksum}", field="checksum"
        )


def _copy(draft: Draft, command: CopyBlob) -> Stored:
    row = live(draft, command.source)
    if row is None:
        raise KeyNotFound(f"blob {command.source!r} does not exist", field="source")
    manifest = manifest_of(command.source, row.value)
    before = _expected(draft, command)
    refer(draft, manifest.upload, 1)
    return _swap(draft, command, before, manifest, deadline(draft, command.ttl))


def _swap(
    draft: Draft,
    command: StoreBlob | CopyBlob,
    before: Row | None,
    manifest: Manifest,
    expires_at: int | None,
) -> Stored:
    """Store a manifest and let go of the parts of the one that it replaces."""
    value = msgspec.json.encode(manifest)
    stored = _store(
        draft,
        command.key,
        before,
        command.origin,
        value=value.decode(),
        size=len(value),
        expires_at=expires_at,
        semantics=None,
        spec_ref=command.origin.spec_ref,
    )
    if before is not None:
        release(draft, command.key, before.value)
    return stored


def _unfinished(draft: Draft, upload: int) -> Upload:
    row = draft.row(upload_address(draft.name, upload))
    record = None if row is None or not row.alive(draft.now) else upload_of(row.value)
    if record is None or record.references:
        raise KeyNotFound(
            f"upload {upload} is not open: it was finished, given up or idle for too long", field="upload"
        )
    return record


def _add_part(draft: Draft, upload: int, number: int, data: bytes, checksum: str) -> None:
    row = Row(
        value=checksum,
        size=len(checksum) + len(data),
        version=upload,
        created_at=draft.now,
        updated_at=draft.now,
        data=data,
    )
    key = part_key(number)
    count_part(draft, key, row, adds=1)
    draft.put(Address(draft.name, part_space(upload), key), row)


def _needs_nothing(needs: Needs, command: BeginUpload) -> None:
    """Request nothing: a new upload does not depend on anything."""


def _needs_upload(needs: Needs, command: PutPart | AbortUpload) -> None:
    needs.row(upload_address(command.namespace, command.upload), value=True)


def _needs_store(needs: Needs, command: StoreBlob) -> None:
    needs.row(Address(command.namespace, KV, command.key), value=True)
    if command.upload is not None:
        needs.row(upload_address(command.namespace, command.upload), value=True)


def _needs_copy(needs: Needs, command: CopyBlob) -> None:
    for key in (command.key, command.source):
        needs.row(Address(command.namespace, KV, key), value=True)


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    BeginUpload: _needs_nothing,
    PutPart: _needs_upload,
    AbortUpload: _needs_upload,
    StoreBlob: _needs_store,
    CopyBlob: _needs_copy,
}
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {
    BeginUpload: _begin,
    PutPart: _put_part,
    AbortUpload: _abort,
    StoreBlob: _store_blob,
    CopyBlob: _copy,
}
