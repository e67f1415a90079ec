"""Entries, pages, changes and errors as fields, under the names of the plugin dialect.

Law: a value is passed on as the JSON text that is stored: looked over on its way out, but never decoded.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.clock import milliseconds, moment
from holdfast.model import Entry, Semantics
from holdfast.rows import Record, Row
from holdfast.stored import Escalation, SeenEntry, change_of, entry_of, look_over, semantics_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine import Filter
    from holdfast.model import Change, Changes, Policy, Stats, TrashPage


def row_fields(key: str, row: Row) -> dict[str, Any]:
    """What a get shows of an entry: the value, the version, the deadline, and of the envelope what is set."""
    fields: dict[str, Any] = {
        "exists": True,
        "value": look_over(key, row),
        "version": row.version,
        "expires_at": None if row.expires_at is None else moment(row.expires_at),
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
        "last_writer": row.last_writer,
    }
    if row.semantics is not None and (meaning := semantics_of(row.semantics)) is not None:
        fields["semantics"] = msgspec.to_builtins(meaning)
    if row.request_id is not None:
        fields["request_id"] = row.request_id
    if row.spec_ref is not None:
        fields["spec_ref"] = row.spec_ref
    return fields


def row_of(fields: Mapping[str, Any], value: bytes | None = None) -> Row:
    """The row that a get showed, or a write whose caller asked for the envelope and knows the value."""
    if value is None:
        value = msgspec.json.encode(fields["value"])
    semantics, expires_at = fields.get("semantics"), fields["expires_at"]
    return Row(
        value=value.decode(),
        size=len(value),
        version=fields["version"],
        created_at=ms_of(fields["created_at"]),
        updated_at=ms_of(fields["updated_at"]),
        expires_at=None if expires_at is None else ms_of(expires_at),
        last_writer=fields["last_writer"],
        semantics=None if semantics is None else msgspec.json.encode(semantics).decode(),
        request_id=fields.get("request_id"),
        spec_ref=fields.get("spec_ref"),
    )


def stored_fields(row: Row) -> dict[str, Any]:
    """What a write that leaves an entry answers."""
    return {"version": row.version, "expires_at": None if row.expires_at is None else moment(row.expires_at)}


def entry_fields(entry: Entry | None) -> dict[str, Any] | None:
    """An entry as a conflict shows it, without its value if it has none."""
    if entry is None:
        return None
    purpose = None if entry.semantics is None else entry.semantics.purpose
    return ({} if entry.value is msgspec.UNSET else {"value": entry.value}) | {
        "key": entry.key,
        "version": entry.version,
        "last_writer": entry.last_writer,
        "purpose": purpose,
        "expires_at": entry.expires_at,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
        "semantics": None if entry.semantics is None else msgspec.to_builtins(entry.semantics),
        "request_id": entry.request_id,
        "spec_ref": entry.spec_ref,
    }


def seen_fields(seen: Entry | SeenEntry | None) -> dict[str, Any] | None:
    """An entry that a conflict saw; one that nobody has looked at is passed on as it is stored."""
    if not isinstance(seen, SeenEntry):
        return entry_fields(seen)
    return entry_fields(msgspec.structs.replace(entry_of(seen.key, seen.row, value=False), value=seen.json))


def entry_of_fields(fields: Mapping[str, Any] | None) -> Entry | None:
    """An entry as a conflict showed it."""
    if fields is None:
        return None
    return Entry(
        key=fields["key"],
        value=fields.get("value", msgspec.UNSET),
        version=fields["version"],
        created_at=_moment(fields["created_at"]),
        updated_at=_moment(fields["updated_at"]),
        expires_at=None if fields["expires_at"] is None else _moment(fields["expires_at"]),
        last_writer=fields["last_writer"],
        semantics=None if fields["semantics"] is None else msgspec.convert(fields["semantics"], Semantics),
        request_id=fields["request_id"],
        spec_ref=fields["spec_ref"],
    )


def filter_fields(wanted: Filter | None) -> dict[str, Any]:
    """What a listing wants, as it is asked for."""
    if wanted is None:
        return {}
    before = wanted.expires_before
    return {
        "purpose": wanted.purpose,
        "producer": wanted.producer,
        "last_writer": wanted.writer,
        "spec_ref": wanted.spec_ref,
        "expires_before": None if before is None else moment(before),
    }


_instant: Final = lru_cache(maxsize=16)(moment)
"""The records of a commit have the same time, or nearly all of them."""


def record_fields(record: Record) -> dict[str, Any]:
    """A record of the journal."""
    if record.op == "escalated":
        return change_fields(change_of(record))
    return _change_fields(record, _instant(record.at))


def _change_fields(change: Change | Record, at: datetime) -> dict[str, Any]:
    fields = {
        "op": change.op,
        "key": change.key,
        "version": change.version,
        "at": at,
        "last_writer": change.last_writer,
        "request_id": change.request_id,
        "purpose": change.purpose,
    }
    if change.lag_ms is not None:
        fields |= {"lag_ms": change.lag_ms, "expired_version": change.expired_version}
    return fields


def change_fields(change: Change) -> dict[str, Any]:
    """A record of the journal, as callers see it."""
    fields = _change_fields(change, change.at)
    if change.error_code is not None:
        fields |= {
            "error_code": change.error_code,
            "attempts": change.attempts,
            "value_hash": change.value_hash,
        }
    return fields


def changes_fields(page: Changes) -> dict[str, Any]:
    """A part of the journal."""
    fields: dict[str, Any] = {
        "changes": [change_fields(change) for change in page.changes],
        "next": page.next,
        "gap": page.gap,
    }
    if page.gap:
        fields["oldest"] = page.oldest
    return fields


def trash_fields(page: TrashPage) -> dict[str, Any]:
    """A part of the trash."""
    return {
        "entries": page.entries,
        "count": len(page.entries),
        "truncated": page.truncated,
        "cursor": page.cursor,
    }


def stats_fields(stats: Stats) -> dict[str, Any]:
    """What a namespace holds."""
    return msgspec.structs.asdict(stats) | {"parts": msgspec.structs.asdict(stats.parts)}


def default_fields(defaults: Policy) -> dict[str, Any]:
    """The quota and the rate of namespaces whose policies name none."""
    return {"quota_bytes": defaults.quota_bytes, "rate_limit": defaults.rate_limit}


def record_of(namespace: str, fields: Mapping[str, Any]) -> Record:
    """The record of a journal that a change showed."""
    return Record(
        namespace=namespace,
        version=fields["version"],
        op=fields["op"],
        key=fields["key"],
        at=ms_of(fields["at"]),
        last_writer=fields.get("last_writer"),
        request_id=fields.get("request_id"),
        purpose=fields.get("purpose"),
        lag_ms=fields.get("lag_ms"),
        expired_version=fields.get("expired_version"),
        detail=_detail(fields),
    )


def _detail(fields: Mapping[str, Any]) -> str | None:
    if "error_code" not in fields:
        return None
    told = Escalation(
        error_code=fields["error_code"].upper(), attempts=fields["attempts"], value_hash=fields["value_hash"]
    )
    return msgspec.json.encode(told).decode()


def _moment(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def ms_of(text: str) -> int:
    """A time as it is stored."""
    return milliseconds(_moment(text))
