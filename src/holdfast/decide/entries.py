"""Changes of entries, with their counters, quotas, trash and records, and of the parts of blobs.

Every change of an entry goes through here, so that the counters are right by construction. The verbs decide
which change to make, and whether it is allowed. The parts of blobs are shared by all manifests that refer to
their upload, including those in the trash. The last one that goes hands them to the purge. A part counts
towards the bytes of its namespace from the moment it is stored until the purge removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.blobs.manifest import UPLOAD_IDLE, Upload, manifest_of, part_space, upload_key, upload_of
from holdfast.commands import Set
from holdfast.decide.audit import add_record, audit
from holdfast.decide.draft import Draft, Loaded, Needs
from holdfast.decide.policies import audited, check_endless, lifetime, trash_seconds
from holdfast.decide.weights import envelope
from holdfast.errors import DatabaseError
from holdfast.families import has_blobs
from holdfast.origin import Origin
from holdfast.rows import DROPPED, KV, OVERHEAD, TRASH, UPLOAD, Address, Namespace, Record, Row
from holdfast.stored import purpose_of

if TYPE_CHECKING:
    from holdfast.blobs.commands import StoreBlob


class Trashed(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a row in the trash: what was removed, how, when and by whom, and its deadline."""

    op: str
    at: int
    by: str
    value: msgspec.Raw
    expires_at: int | None = None


def trashed(key: str, row: Row) -> Trashed:
    """Return the contents of a row in the trash.

    Raises:
        DatabaseError: The row can't be read, because it was changed outside Holdfast.
    """
    try:
        return msgspec.json.decode(row.value or "", type=Trashed)
    except msgspec.DecodeError:
        raise DatabaseError(f"the trash entry of key {key!r} can't be read", field="key") from None


def live(draft: Draft, key: str) -> Row | None:
    """Return the live entry at a key. If it is past its deadline, expire it first."""
    row = draft.row(Address(draft.name, KV, key))
    if row is None or row.alive(draft.now):
        return row
    expire(draft, key, row)
    return None


def expire(draft: Draft, key: str, row: Row) -> None:
    """Record that an entry has passed its deadline, and remove it."""
    deadline = draft.now if row.expires_at is None else row.expires_at
    remove(draft, key, row)
    record = Record(
        namespace=draft.name,
        version=draft.version(),
        op="expired",
        key=key,
        at=draft.now,
        last_writer=row.last_writer,
        purpose=purpose_of(row.semantics),
        lag_ms=draft.now - deadline,
        expired_version=row.version,
    )
    draft.record(record)
    draft.expired = True
    audit(draft, record, row, None, spec_ref=row.spec_ref)
    to_trash(draft, key, row, op="expired", by=row.last_writer)


def expire_run(draft: Draft) -> int:
    """Expire due entries in bulk, without loading them. Returns the number removed.

    This is done only if the entries leave nothing but records.
    """
    namespace, overdue = draft.namespace, draft.overdue
    kept = trash_seconds(namespace, semantic=False, purpose=None) is not None
    if not overdue.count or kept or audited(namespace) or has_blobs(namespace.name):
        return 0
    draft.run(overdue)
    namespace.keys -= overdue.count
    namespace.bytes -= overdue.bytes
    namespace.envelope_bytes -= overdue.envelope
    namespace.journal_bytes += OVERHEAD * overdue.count + overdue.names
    return overdue.count


def put(draft: Draft, key: str, before: Row | None, row: Row) -> None:
    """Store an entry at a key, replacing the previous one."""
    namespace = draft.namespace
    if before is None or before.version == 0:  # a row written past the triggers was never counted
        namespace.keys += 1
        namespace.bytes += (len(key) if key.isascii() else len(key.encode())) + row.size
        namespace.envelope_bytes += envelope(row)
    else:
        namespace.bytes += row.size - before.size
        # `envelope` of both rows, inlined for speed: most sets get here, and only few have semantics
        grown = len(row.last_writer) - len(before.last_writer)
        grown += len(row.request_id or "") - len(before.request_id or "")
        if row.semantics is not before.semantics or row.spec_ref is not before.spec_ref:
            grown = envelope(row) - envelope(before)
        namespace.envelope_bytes += grown
    draft.put(Address(draft.name, KV, key), row)


def remove(draft: Draft, key: str, row: Row) -> None:
    """Remove the entry at a key."""
    _uncount(draft, key, row)
    draft.put(Address(draft.name, KV, key), None)


def record(
    draft: Draft,
    op: str,
    key: str,
    *,
    version: int,
    origin: Origin,
    before: Row | None,
    after: Row | None,
    by: Origin | None = None,
) -> None:
    """Record a change of a caller. The audit names `by` if it differs from the origin in the journal."""
    recorded = before if after is None else after
    made = Record(
        namespace=draft.name,
        version=version,
        op=op,
        key=key,
        at=draft.now,
        last_writer=origin.writer,
        request_id=origin.request_id,
        purpose=None if recorded is None or recorded.semantics is None else purpose_of(recorded.semantics),
    )
    draft.record(made)
    if audited(draft.namespace):
        if by is not None:
            made = msgspec.structs.replace(made, last_writer=by.writer, request_id=by.request_id)
        add_record(draft, made, before, after, spec_ref=origin.spec_ref)


def to_trash(draft: Draft, key: str, row: Row, *, op: str, by: str) -> None:
    """Keep a removed entry in the trash for a while, if entries of its kind are kept."""
    purpose = purpose_of(row.semantics)
    seconds = trash_seconds(draft.namespace, semantic=row.semantics is not None, purpose=purpose)
    if seconds is None:
        if has_blobs(draft.name):
            release(draft, key, row.value)
        return
    removed = Trashed(
        op=op, at=draft.now, by=by, value=msgspec.Raw((row.value or "").encode()), expires_at=row.expires_at
    )
    value = msgspec.json.encode(removed)
    kept = msgspec.structs.replace(
        row, value=value.decode(), size=len(value), expires_at=draft.now + seconds * 1000
    )
    address = trash_address(draft.name, key)
    replaced = draft.look(address)  # the row it replaces must be known, since it is counted
    if replaced is not None and has_blobs(draft.name):
        release_trashed(draft, key, replaced)
    draft.put(address, kept)


def release_trashed(draft: Draft, key: str, row: Row) -> None:
    """Let go of the parts of a blob that leaves the trash for good."""
    release(draft, key, bytes(trashed(key, row).value).decode())


def need_trash(more: Needs, namespace: str, key: str, loaded: Loaded) -> None:
    """Request the trash row of a key whose entry is about to be trashed."""
    row = loaded.rows.get(Address(namespace, KV, key))
    if row is None:
        return
    owner = loaded.namespaces.get(namespace) or Namespace(name=namespace)
    purpose = purpose_of(row.semantics)
    if trash_seconds(owner, semantic=row.semantics is not None, purpose=purpose) is not None:
        more.row(trash_address(namespace, key))


def trash_address(namespace: str, key: str) -> Address:
    """Return the address in the trash for a key."""
    return Address(namespace, TRASH, key.encode())


def _uncount(draft: Draft, key: str, row: Row) -> None:
    if row.version > 0:  # a row written past the triggers was never counted
        namespace = draft.namespace
        namespace.keys -= 1
        namespace.bytes -= len(key.encode()) + row.size
        namespace.envelope_bytes -= envelope(row)


def deadline(draft: Draft, ttl: int | float | None) -> int | None:
    """Return the deadline of an entry that is stored now with this ttl, or without one."""
    if draft.namespace.policy is not None:
        ttl = lifetime(draft.namespace, ttl)
    return None if ttl is None else draft.now + round(ttl * 1000)


def deadline_of_write(draft: Draft, command: Set | StoreBlob, before: Row | None) -> int | None:
    """Return the deadline of the entry that a command writes; it may keep the deadline of the one before."""
    if not command.keep_ttl or before is None:
        return deadline(draft, command.ttl)
    if before.expires_at is None:
        check_endless(draft.namespace)
    return before.expires_at


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
