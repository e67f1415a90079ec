"""Removing all keys that begin with a prefix, a page at a time.

Law: each page is a listing and then the removal of what was listed, through the verbs that every caller has.
So it can be stopped and resumed at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import msgspec

from holdfast.errors import HoldfastError, ValidationError
from holdfast.rules import MAX_BATCH

if TYPE_CHECKING:
    from holdfast.kv import KV
    from holdfast.model import Page
    from holdfast.verbs import Provenance


async def delete_prefix(
    kv: KV,
    prefix: str,
    limit: int | None,
    cursor: str | None,
    *,
    dry_run: bool,
    **provenance: Unpack[Provenance],
) -> Page:
    """Remove a page of the keys that begin with a prefix; see `KV.delete_prefix`.

    Raises:
        ValidationError: The prefix is empty, which would mean every key, or a request id is given: the pages
            of two calls are not the same request.
    """
    if prefix == "":
        raise ValidationError(
            "prefix is empty, which would remove every key: list the keys and use delete_many for that",
            field="prefix",
        )
    if provenance.get("request_id") is not None:
        raise ValidationError(
            "delete_prefix takes no request_id: called again it removes what is there then",
            field="request_id",
        )
    page = await kv.list(prefix, limit=limit, cursor=cursor)
    if dry_run:
        return page
    removed: list[str] = []
    for start in range(0, page.count, MAX_BATCH):
        keys = page.keys[start : start + MAX_BATCH]
        removed += _removed(keys, await kv.delete_many(keys, **provenance))
    return msgspec.structs.replace(page, keys=removed)


def _removed(keys: list[str], results: list[bool | HoldfastError]) -> list[str]:
    for result in results:
        if isinstance(result, HoldfastError):
            raise result
    return [key for key, there in zip(keys, results, strict=True) if there]
