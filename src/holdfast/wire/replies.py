"""Conversion of entries, pages and changes to fields of the plugin dialect, and back.

A value is passed on as its stored JSON text. It is checked on its way out, but never decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.clock import instant, milliseconds, moment
from holdfast.model import Change, Entry, Item, Policy, Semantics, Stats, TrashPage
from holdfast.rows import Record, Row
from holdfast.stored import Escalation, SeenEntry, change_of, entry_of, look_over, made, semantics_of


def row_fields(key: str, row: Row | None) -> dict[str, Any]:
    """Return the fields of the reply to a get: value, version, deadline, and what is set of the envelope."""
    if row is None:
        return {"exists": False}
    updated_at = moment(row.updated_at)
    fields: dict[str, Any] = {
        "exists": True,
        "value": look_over(key, row),
        "version": row.version,
        "expires_at": None if row.expires_at is None else moment(row.expires_at),
        "created_at": updated_at if row.created_at == row.updated_at else moment(row.created_at),
        "updated_at": updated_at,
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
    """Rebuild the row from the reply to a get, or from the envelope in the reply to a write and its value."""
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
    """Return the fields of the reply to a write that leaves an entry."""
    return {"version": row.version, "expires_at": None if row.expires_at is None else moment(row.expires_at)}


def entry_fields(entry: Entry | None) -> dict[str, Any] | None:
    """Convert an entry to the form in which conflicts show it, without its value if it has none."""
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
    """Convert an entry that a conflict saw. The value of a `SeenEntry` is passed on as stored."""
    if not isinstance(seen, SeenEntry):
        return entry_fields(seen)
    return entry_fields(msgspec.structs.replace(entry_of(seen.key, seen.row, value=False), value=seen.json))


def entry_of_fields(fields: Mapping[str, Any] | None) -> Entry | None:
    """Rebuild an entry from the fields that `entry_fields` makes."""
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


_instant: Final = lru_cache(maxsize=16)(moment)
"""`moment` with a cache: nearly all records of a commit have the same time."""


def record_fields(record: Record) -> dict[str, Any]:
    """Convert a record of the journal to fields."""
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
    """Convert a change, which is a record as callers see it, to fields."""
    fields = _change_fields(change, change.at)
    if change.error_code is not None:
        fields |= {
            "error_code": change.error_code,
            "attempts": change.attempts,
            "value_hash": change.value_hash,
        }
    return fields


def trash_fields(page: TrashPage) -> dict[str, Any]:
    """Convert a page of the trash to fields."""
    return {
        "entries": page.entries,
        "count": len(page.entries),
        "truncated": page.truncated,
        "cursor": page.cursor,
    }


def stats_fields(stats: Stats) -> dict[str, Any]:
    """Convert the stats of a namespace to fields."""
    return msgspec.structs.asdict(stats) | {"parts": msgspec.structs.asdict(stats.parts)}


def default_fields(defaults: Policy) -> dict[str, Any]:
    """Return the default quota and rate, for namespaces whose policies name none."""
    return {"quota_bytes": defaults.quota_bytes, "rate_limit": defaults.rate_limit}


def record_of(namespace: str, fields: Mapping[str, Any]) -> Record:
    """Rebuild a record of the journal from the fields of a change."""
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
    escalation = Escalation(
        error_code=fields["error_code"].upper(), attempts=fields["attempts"], value_hash=fields["value_hash"]
    )
    return msgspec.json.encode(escalation).decode()


def _moment(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def ms_of(text: str) -> int:
    """Convert a time to the milliseconds that are stored."""
    return milliseconds(_moment(text))


def item_fields(item: Item) -> dict[str, Any]:
    """Convert an item to fields, without its attributes if it has none."""
    value: Any = item.value
    return ({} if value is msgspec.UNSET else {"item": value}) | {
        "version": item.version,
        "expires_at": item.expires_at,
    }


def item_of_fields(value: Any, version: int, expires_at: datetime | str | None) -> Item:
    """Rebuild an item from its fields."""
    at = None if expires_at is None else instant(expires_at)
    return Item(value=made(value), version=version, expires_at=at)
