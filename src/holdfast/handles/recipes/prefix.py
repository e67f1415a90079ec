"""Removing all keys that begin with a prefix, a page at a time.

A page is one read, followed by one command that removes the keys that were read at the versions that were
read. So the rules of single deletes apply (quotas, trash, journal, audit, fence, deadline), concurrent writes
are not lost, and a walk can be stopped and resumed at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from holdfast import rules
from holdfast.commands import Deleted, Results
from holdfast.engine import Removal, Scan, successor
from holdfast.errors import ValidationError, VersionConflict
from holdfast.model import Page
from holdfast.rows import KV as KV_SPACE
from holdfast.verbs.cursors import cursor_after, last_seen

if TYPE_CHECKING:
    from holdfast.engine import Selected
    from holdfast.handles.keys import Keys
    from holdfast.origin import Origin
    from holdfast.verbs.fields import Provenance

MAX_PAGE: Final = 500
"""Largest number of keys that a page removes, so that a reply can name them however JSON escapes them."""


async def delete_prefix(
    kv: Keys,
    prefix: str,
    limit: int | None,
    cursor: str | None,
    *,
    dry_run: bool,
    **provenance: Unpack[Provenance],
) -> Page:
    """Remove a page of the keys that begin with a prefix; see `KV.delete_prefix`.

    Raises:
        ValidationError: Every key has the prefix, or a request id is given. (The pages of two calls are not
            the same request.)
    """
    start, most = _start(kv, prefix), rules.limit(limit)
    after = None if cursor is None else last_seen(cursor, start)
    if provenance.get("request_id") is not None:
        raise ValidationError(
            "delete_prefix takes no request_id: a repeated call removes the keys that exist by then",
            field="request_id",
        )
    origin, service = kv.verbs.origin(**provenance), kv.store.service
    if service is not None:
        asked = Removal(namespace=kv.namespace, prefix=start, limit=most, cursor=cursor, dry_run=dry_run)
        return await service.delete_prefix(asked, origin, kv.store.now)
    if dry_run:
        return await kv.list(start, limit=most, cursor=cursor)
    return await _remove(kv, start, after, min(most, MAX_PAGE), origin)


def _start(kv: Keys, prefix: object) -> str:
    start = kv.verbs.prefix(prefix)
    if start == kv.verbs.prefix(""):
        raise ValidationError(
            "every key begins with this prefix, so all of them would be removed: "
            "list the keys and use delete_many for that",
            field="prefix",
        )
    return start


async def _remove(kv: Keys, start: str, after: str | None, most: int, origin: Origin) -> Page:
    query = Scan(
        namespace=kv.namespace,
        space=KV_SPACE,
        start=start,
        stop=successor(start),
        after=after,
        limit=most,
        max_bytes=rules.MAX_TRANSFER_BYTES,
        values=True,
    )
    seen = await kv.store.select(query, None)
    return Page(
        keys=await _removed(kv, seen, origin) if seen.keys else [],
        truncated=seen.last is not None,
        cursor=None if seen.last is None else cursor_after(seen.last),
    )


async def _removed(kv: Keys, seen: Selected, origin: Origin) -> list[str]:
    """Remove the keys that were read. Returns those that had not changed since, and so are removed."""
    versions = [row.version for row in seen.rows]
    result = await kv.store.call(kv.verbs.delete_seen(origin, seen.keys, versions))
    assert isinstance(result, Results)
    for item in result.items:
        if isinstance(item, Exception) and not isinstance(item, VersionConflict):
            raise item
    told = zip(seen.keys, result.items, strict=True)
    return [key for key, item in told if isinstance(item, Deleted) and item.version is not None]
