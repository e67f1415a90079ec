"""The verbs on keys, which every door answers for the entries of a plugin or of a tenant's project.

The `answer` of a verb that is `in_order` takes `holdfast.verbs.keys.Verbs` and returns a
`holdfast.wire.writes.Write`, which the door hands over at once. The `answer` of any other verb takes a
handle, `holdfast.KV`, and is awaited.

Law: an answer takes fields and returns fields. The door decides who may call it, whether the deadline has
passed, and how the reply is spelled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import operators, rules
from holdfast.decide.policies import policy_of
from holdfast.declare import DECLARED
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.edges.calls.key_fields import (
    ChangesFields,
    DeletePrefixFields,
    GetManyFields,
    HistoryFields,
    KeyFields,
    ListFields,
    RevealFields,
)
from holdfast.errors import HoldfastError, ValidationError
from holdfast.forms import CallFields
from holdfast.handles.keys import selected
from holdfast.handles.reveals import revealed
from holdfast.pace import in_turns
from holdfast.pipeline.listing import filter_of
from holdfast.pipeline.watch import records_after
from holdfast.replies import (
    ChangesReply,
    DeletePrefixReply,
    EntryReply,
    ExistsReply,
    GetManyReply,
    GetTtlReply,
    HistoryReply,
    ListReply,
    ReadyReply,
    StatsReply,
)
from holdfast.verbs.cursors import cursor_after
from holdfast.verbs.fields import provenance, required
from holdfast.wire.errors import error_fields
from holdfast.wire.replies import (
    change_fields,
    changes_fields,
    default_fields,
    record_fields,
    row_fields,
    stats_fields,
)
from holdfast.wire.writes import write_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.declare import Declaration
    from holdfast.handles.kv import KV
    from holdfast.pipeline.pipeline import Pipeline
    from holdfast.rows import Row


async def _get(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    key = kv.verbs.key(required(fields, "key"))
    row, _ = await kv.store.get_at(kv.namespace, key)
    return row_fields(key, row)


async def _reveal(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry to a person. The command checks the policy, and records it in the audit."""
    command = kv.verbs.reveal(
        required(fields, "key"),
        why=fields.get("why"),
        writer=fields.get("last_writer"),
        deadline=fields.get("deadline"),
    )
    return row_fields(command.key, await revealed(kv.store.call, command, command.key))


async def _exists(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"exists": await kv.exists(required(fields, "key"))}


async def _get_ttl(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"ttl": await kv.get_ttl(required(fields, "key"))}


async def _get_many(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    wanted = kv.verbs.get_many(required(fields, "keys"))
    rows = await kv.store.get_all(kv.namespace, wanted.legal)
    shown = await in_turns(lambda pair: _result(*pair), list(zip(wanted.legal, rows, strict=True)), _size)
    return {
        "results": [_refused(one) if isinstance(one, HoldfastError) else one for one in wanted.merge(shown)]
    }


def _result(key: str, row: Row | None) -> dict[str, Any]:
    try:
        return {"success": True, **row_fields(key, row)}
    except HoldfastError as error:
        return _refused(error)


def _refused(error: HoldfastError) -> dict[str, Any]:
    return {"success": False, **error_fields(error)}


def switch(fields: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field; False if it is missing."""
    asked = fields.get(name, False)
    if not isinstance(asked, bool):
        raise ValidationError(f"{name} must be true or false", field=name)
    return asked


async def _list(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    values = switch(fields, "values")
    wanted = filter_of(
        purpose=fields.get("purpose"),
        producer=fields.get("producer"),
        writer=fields.get("last_writer"),
        spec_ref=fields.get("spec_ref"),
        expires_before=fields.get("expires_before"),
    )
    found = await selected(
        kv,
        fields.get("prefix", ""),
        limit=fields.get("limit"),
        cursor=fields.get("cursor"),
        values=values,
        wanted=wanted,
    )
    answer = _page(found.keys, None if found.last is None else cursor_after(found.last))
    if values:
        pairs = list(zip(found.keys, found.rows, strict=True))
        answer["entries"] = await in_turns(lambda pair: {"key": pair[0], **row_fields(*pair)}, pairs, _size)
    return answer


def _size(pair: tuple[str, Row | None]) -> int:
    row = pair[1]
    return 0 if row is None else len(row.value or "")


def _page(keys: list[str], cursor: str | None) -> dict[str, Any]:
    return {"keys": keys, "count": len(keys), "truncated": cursor is not None, "cursor": cursor}


async def _delete_prefix(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await kv.delete_prefix(
        required(fields, "prefix"),
        limit=fields.get("limit"),
        cursor=fields.get("cursor"),
        dry_run=switch(fields, "dry_run"),
        **provenance(fields),
    )
    return _page(page.keys, page.cursor)


async def _changes(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes and the bounds of the journal, which a client needs to continue without a gap."""
    prefix = kv.verbs.prefix(fields.get("prefix", ""))
    since, limit = rules.version(fields.get("since", 0), field="since"), rules.limit(fields.get("limit"))
    kv.store.admit(kv.namespace)
    found = await records_after(kv.store, kv.namespace, prefix, since, limit)
    bounds = {"floor": found.page.floor, "head": found.page.head, "epoch": found.page.epoch}
    changes = await in_turns(record_fields, found.records)
    return changes_fields(changes, next=found.next, oldest=found.oldest) | bounds


async def _history(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    found = await kv.history(required(fields, "key"), limit=fields.get("limit"))
    return {"changes": await in_turns(change_fields, found)}


async def _stats(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await stats_and_policy(kv.store, kv.namespace)


async def _ready(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    await kv.store.ready()
    return {"ready": True}


async def stats_and_policy(pipeline: Pipeline, namespace: str) -> dict[str, Any]:
    """Return the totals of a namespace, its policy, and the default limits where the policy sets none."""
    totals = await pipeline.totals(namespace)
    policy, defaults = (None, None) if totals is None else (totals.namespace.policy, totals.defaults)
    return stats_fields(operators.stats_of(namespace, totals)) | {
        "policy": msgspec.structs.asdict(policy_of(policy)),
        "defaults": default_fields(defaults or pipeline.defaults),
    }


def declared(declaration: Declaration) -> Verb:
    """Return the entry of a declared verb that writes."""
    assert declaration.reply is not None
    return Verb(
        name=declaration.name,
        help=declaration.help,
        fields=declaration.request,
        reply=declaration.reply,
        answer=partial(write_of, declaration.name),
        writes=True,
        destroys=declaration.destroys,
        in_order=True,
        declaration=declaration,
    )


VERBS: Final = catalogue(
    Verb(
        name="get",
        help="Return an entry.",
        fields=DECLARED["get"].request,
        reply=EntryReply,
        answer=_get,
        declaration=DECLARED["get"],
    ),
    Verb(
        name="get_many",
        help="Return the entries of several keys.",
        fields=GetManyFields,
        reply=GetManyReply,
        answer=_get_many,
        walks=True,
    ),
    Verb(
        name="exists",
        help="Return whether there is an entry.",
        fields=KeyFields,
        reply=ExistsReply,
        answer=_exists,
    ),
    Verb(
        name="reveal",
        help="Return an entry to a person; an audit records who looked and why.",
        fields=RevealFields,
        reply=EntryReply,
        answer=_reveal,
        writes=True,
    ),
    Verb(
        name="get_ttl",
        help="Return the seconds that an entry has left.",
        fields=KeyFields,
        reply=GetTtlReply,
        answer=_get_ttl,
    ),
    Verb(
        name="list",
        help="List keys in order, a page at a time.",
        fields=ListFields,
        reply=ListReply,
        answer=_list,
        walks=True,
    ),
    Verb(
        name="changes",
        help="Return the changes after a version, oldest first.",
        fields=ChangesFields,
        reply=ChangesReply,
        answer=_changes,
        walks=True,
    ),
    Verb(
        name="history",
        help="Return the changes of one key, newest first.",
        fields=HistoryFields,
        reply=HistoryReply,
        answer=_history,
        walks=True,
    ),
    Verb(
        name="stats",
        help="Return what the namespace holds, its policy and its default limits.",
        fields=CallFields,
        reply=StatsReply,
        answer=_stats,
    ),
    Verb(
        name="ready",
        help="Succeed if a write would be accepted now.",
        fields=CallFields,
        reply=ReadyReply,
        answer=_ready,
    ),
    *map(declared, map(DECLARED.__getitem__, ("set", "incr", "set_ttl", "touch", "remove_ttl", "restore"))),
    *map(declared, map(DECLARED.__getitem__, ("delete", "set_many", "delete_many"))),
    Verb(
        name="delete_prefix",
        help="Remove the keys that begin with a prefix, a page at a time.",
        fields=DeletePrefixFields,
        reply=DeletePrefixReply,
        answer=_delete_prefix,
        writes=True,
        destroys=True,
        walks=True,
    ),
    declared(DECLARED["batch"]),
    declared(DECLARED["escalate"]),
)
"""The verbs on keys."""
