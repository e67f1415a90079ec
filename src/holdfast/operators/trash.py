"""Reading the trash: entries of a namespace that were removed and can still be restored.

Nothing is written here, and only operators read it. The verb `restore` brings a key back.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from holdfast import rules
from holdfast.clock import moment
from holdfast.cursors import cursor_after, last_seen
from holdfast.decide.entries import trashed
from holdfast.engine import Scan, successor
from holdfast.errors import DatabaseError
from holdfast.model import TrashEntry, TrashPage
from holdfast.pace import in_turns
from holdfast.pipeline.caller import Service
from holdfast.pipeline.pipeline import Pipeline
from holdfast.rows import TRASH, Row
from holdfast.stored import purpose_of, value_of

_log = logging.getLogger("holdfast")


async def trash_page(
    store: Pipeline | Service,
    namespace: str,
    prefix: str,
    *,
    limit: int | None,
    cursor: str | None,
    values: bool,
) -> TrashPage:
    """Return a page of the removed keys that begin with a prefix."""
    last = None if cursor is None else last_seen(cursor, prefix)
    limit = rules.limit(limit)
    if isinstance(store, Service):
        fields: dict[str, Any] = {"namespace": namespace, "prefix": prefix, "limit": limit, "values": values}
        if last is not None:
            fields["cursor"] = cursor_after(last)
        return msgspec.convert(await store.operator("trash", fields), TrashPage)
    stop = successor(prefix)
    query = Scan(
        namespace=namespace,
        space=TRASH,
        start=prefix.encode(),
        stop=None if stop is None else stop.encode(),
        after=None if last is None else last.encode(),
        limit=limit,
        max_bytes=rules.MAX_TRANSFER_BYTES,
        values=True,
    )
    async with store.view(namespace) as view:
        scanned = await view.scan(query)
    rows = list(zip(scanned.keys, scanned.rows, strict=True))
    entries = await in_turns(lambda pair: _readable(*pair, values=values), rows, _size)
    return TrashPage(
        entries=[entry for entry in entries if entry is not None],
        truncated=scanned.more,
        cursor=cursor_after(scanned.keys[-1].decode()) if scanned.more else None,
    )


def _size(pair: tuple[bytes, Row]) -> int:
    return len(pair[1].value or "")


def _readable(key: bytes, row: Row, *, values: bool) -> TrashEntry | None:
    try:
        return _entry(key.decode(), row, values=values)
    except DatabaseError as error:
        _log.error("%s", error.message)  # it can't be restored either, and must not hide others
        return None


def _entry(key: str, row: Row, *, values: bool) -> TrashEntry:
    removed = trashed(key, row)
    assert row.expires_at is not None
    value = value_of(key, msgspec.structs.replace(row, value=bytes(removed.value).decode()))
    return TrashEntry(
        key=key,
        op=removed.op,
        at=moment(removed.at),
        by=removed.by,
        version=row.version,
        purpose=purpose_of(row.semantics),
        expires_at=None if removed.expires_at is None else moment(removed.expires_at),
        purged_at=moment(row.expires_at),
        value=value if values else msgspec.UNSET,
    )
