"""The verbs on blobs, which every door answers for the bytes of a plugin.

A blob's entry has the manifest as its value, and the verbs that are not about bytes are those of keys. An
`answer` takes what that of a key's verb takes. Bytes are in the field `data`, in requests and in replies. A
door decides how they travel.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from holdfast.blobs import commands
from holdfast.blobs.commands import GetBlob, GetPart
from holdfast.blobs.manifest import PART_BYTES, part_key, part_space
from holdfast.edges.calls import keys
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.handles.blobs import Blobs
from holdfast.handles.kv import KV
from holdfast.rows import Address
from holdfast.wire.replies import row_fields

SHARED: Final = (
    *("reveal", "list", "changes", "history", "stats", "ready", "get_ttl"),
    *("set_ttl", "remove_ttl", "restore", "delete", "delete_many", "delete_prefix"),
)
"""The verbs that blobs share with keys."""


async def _get(kv: KV, message: Any, deadline: int | None) -> dict[str, Any]:
    """Return at most as many bytes as a message holds. The reply says which these are."""
    command: GetBlob = commands.VERBS["get"].make(kv.verbs, message, None)
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


async def _get_part(kv: KV, message: Any, deadline: int | None) -> dict[str, Any]:
    command: GetPart = commands.VERBS["get_part"].make(kv.verbs, message, None)
    kv.store.admit(kv.namespace)
    place = Address(kv.namespace, part_space(command.upload), part_key(command.number))
    [row] = await kv.store.parts([place])
    if row is None:
        return {"exists": False}
    return {"exists": True, "checksum": row.value, "data": row.data}


_READS: Final = {"get": _get, "get_part": _get_part}
VERBS: Final = catalogue(
    *(
        Verb.of(declaration, _READS[name]) if name in _READS else keys.declared(declaration)
        for name, declaration in commands.VERBS.items()
    ),
    replace(keys.VERBS["get"], name="head", help="Describe a blob."),
    *(keys.VERBS[name] for name in SHARED),
)
"""The verbs on blobs."""
