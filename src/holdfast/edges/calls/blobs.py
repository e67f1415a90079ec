"""The verbs on blobs, which every door answers for the bytes of a plugin.

A blob's entry has the manifest as its value, and the verbs that are not about bytes are those of keys. An
`answer` takes what that of a key's verb takes.

Law: as in `holdfast.edges.calls.keys`. Bytes are in the field `data`, in requests and in replies. A door
decides how they travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.blobs import fields as limits
from holdfast.blobs.manifest import PART_BYTES, part_key, part_space
from holdfast.edges.calls import blob_fields as of
from holdfast.edges.calls import keys
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.edges.calls.key_fields import KeyFields
from holdfast.forms import WriteFields
from holdfast.handles.blob_calls import WRITES
from holdfast.handles.blobs import Blobs
from holdfast.replies import EntryReply, Nothing, StoredReply
from holdfast.rows import Address
from holdfast.verbs.fields import required
from holdfast.wire.replies import row_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.handles.kv import KV

SHARED: Final = (
    *("reveal", "list", "changes", "history", "stats", "ready", "get_ttl"),
    *("set_ttl", "remove_ttl", "restore", "delete", "delete_many", "delete_prefix"),
)
"""The verbs that blobs share with keys."""


async def _get(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return at most as many bytes as a message holds. The reply says which these are."""
    start = limits.offset(fields.get("start", 0), field="start")
    end = limits.offset(fields["end"], field="end") if "end" in fields else start + PART_BYTES
    key = kv.verbs.key(required(fields, "key"))
    row, _ = await kv.store.get_at(kv.namespace, key)
    if row is None:
        return {"exists": False}
    reader = Blobs(kv.store, kv.verbs).opened(key, row, start, min(end, start + PART_BYTES))
    return {
        **row_fields(key, row),
        "start": reader.start,
        "end": reader.end,
        "data": await reader.read(),
    }


async def _get_part(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    upload = limits.upload(required(fields, "upload"))
    number = limits.part_number(required(fields, "number"))
    kv.store.admit(kv.namespace)
    [row] = await kv.store.parts([Address(kv.namespace, part_space(upload), part_key(number))])
    if row is None:
        return {"exists": False}
    return {"exists": True, "checksum": row.value, "data": row.data}


def _writing(
    name: str,
    help: str,
    fields: type[msgspec.Struct],
    reply: type[msgspec.Struct],
    *,
    destroys: bool = False,
) -> Verb:
    return Verb(
        name=name,
        help=help,
        fields=fields,
        reply=reply,
        answer=WRITES[name],
        writes=True,
        destroys=destroys,
        in_order=True,
    )


VERBS: Final = catalogue(
    Verb(
        name="get",
        help="Return bytes of a blob, at most 262,144 at a time.",
        fields=of.GetBlobFields,
        reply=of.GetBlobReply,
        answer=_get,
    ),
    Verb(
        name="head",
        help="Describe a blob.",
        fields=KeyFields,
        reply=EntryReply,
        answer=keys.VERBS["get"].answer,
    ),
    Verb(
        name="get_part",
        help="Return a part of a blob.",
        fields=of.GetPartFields,
        reply=of.PartReply,
        answer=_get_part,
    ),
    _writing("put", "Put a blob of at most 262,144 bytes.", of.PutBlobFields, StoredReply),
    _writing("begin", "Begin the upload of a blob.", WriteFields, of.BegunReply),
    _writing("put_part", "Send a part of an upload.", of.PutPartFields, of.PartStoredReply),
    _writing("commit", "Put a blob whose parts have been sent.", of.CommitFields, StoredReply),
    _writing("abort", "Give up an upload.", of.UploadFields, Nothing, destroys=True),
    _writing("copy", "Copy a blob.", of.CopyFields, StoredReply),
    *(keys.VERBS[name] for name in SHARED),
)
"""The verbs on blobs."""
