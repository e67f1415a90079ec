"""The verbs on blobs, which every door answers for the bytes of a plugin.

A blob's entry has the manifest as its value, and the verbs that are not about bytes are those of keys. An
`answer` takes what that of a key's verb takes. Bytes are in the field `data`, in requests and in replies. A
door decides how they travel.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.blobs import commands
from holdfast.blobs.manifest import PART_BYTES, part_key, part_space
from holdfast.edges.calls import keys
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.forms import KeyFields
from holdfast.handles.blobs import Blobs
from holdfast.replies import EntryReply
from holdfast.rows import Address
from holdfast.wire.blobs import blob_write
from holdfast.wire.replies import row_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.blobs.commands import GetBlob, GetPart
    from holdfast.handles.kv import KV

SHARED: Final = (
    *("reveal", "list", "changes", "history", "stats", "ready", "get_ttl"),
    *("set_ttl", "remove_ttl", "restore", "delete", "delete_many", "delete_prefix"),
)
"""The verbs that blobs share with keys."""


async def _get(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return at most as many bytes as a message holds. The reply says which these are."""
    command: GetBlob = _made("get", kv, fields)
    end = command.start + PART_BYTES
    row, _ = await kv.store.get_at(kv.namespace, command.key)
    if row is None:
        return {"exists": False}
    reader = Blobs(kv.store, kv.verbs).opened(
        command.key, row, command.start, end if command.end is None else min(command.end, end)
    )
    return {
        **row_fields(command.key, row),
        "start": reader.start,
        "end": reader.end,
        "data": await reader.read(),
    }


async def _get_part(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    command: GetPart = _made("get_part", kv, fields)
    kv.store.admit(kv.namespace)
    place = Address(kv.namespace, part_space(command.upload), part_key(command.number))
    [row] = await kv.store.parts([place])
    if row is None:
        return {"exists": False}
    return {"exists": True, "checksum": row.value, "data": row.data}


def _made(verb: str, kv: KV, fields: Mapping[str, Any]) -> Any:
    """Return the command of a call that reads."""
    declaration = commands.VERBS[verb]
    return declaration.make(kv.verbs, declaration.of_fields(fields), None)


_READS: Final = {"get": _get, "get_part": _get_part}
VERBS: Final = catalogue(
    *(
        Verb.of(declaration, _READS.get(name) or partial(blob_write, declaration))
        for name, declaration in commands.VERBS.items()
    ),
    Verb(
        name="head",
        help="Describe a blob.",
        fields=KeyFields,
        reply=EntryReply,
        answer=keys.VERBS["get"].answer,
    ),
    *(keys.VERBS[name] for name in SHARED),
)
"""The verbs on blobs."""
