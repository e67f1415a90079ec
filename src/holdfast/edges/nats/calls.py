"""What a service answers: each verb that reads, and those for operators.

Law: a call takes fields and gives fields. Whether it may be made, when it is too late, and how its answer is
spelled is settled before and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import HoldfastError, ValidationError
from holdfast.fields import required
from holdfast.watch import changes_after
from holdfast.wire.refusals import error_fields
from holdfast.wire.replies import (
    change_fields,
    changes_fields,
    default_fields,
    entry_of_fields,
    shown_entry,
    stats_fields,
    trash_fields,
)
from holdfast.wire.subjects import OPERATOR
from holdfast.wire.writes import WRITING_VERBS, provenance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.kv import KV
    from holdfast.model import Entry, Page
    from holdfast.store import Store


FIELDS: Final = frozenset(
    {
        *("by", "checks", "cursor", "deadline", "deadline_ms", "entries", "envelope", "expected_version"),
        *("fence", "items", "keep_ttl", "keep_versions", "key", "keys", "last_writer", "limit", "namespace"),
        *("plugin_name", "policy", "prefix", "request_id", "semantics", "since", "spec_ref", "ttl"),
        *("ttl_seconds", "value", "values", "writes"),
        *("after", "anchor", "before", "expires_before", "instance", "op", "producer", "purpose", "until"),
        *("attempts", "dry_run", "error_code", "message", "number", "path", "request", "verb"),
    }
)
"""Every field that a request may have, whatever its verb; others are ignored and counted."""


async def _get(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return shown_entry(await kv.get(required(fields, "key")))


async def _get_ttl(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"ttl": await kv.get_ttl(required(fields, "key"))}


async def _get_many(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    found = await kv.get_many(required(fields, "keys"))
    return {
        "results": [
            {"success": False, **error_fields(entry)}
            if isinstance(entry, HoldfastError)
            else {"success": True, **shown_entry(entry)}
            for entry in found
        ]
    }


def _switch(fields: Mapping[str, Any], name: str) -> bool:
    asked = fields.get(name, False)
    if not isinstance(asked, bool):
        raise ValidationError(f"{name} must be true or false", field=name)
    return asked


async def _list(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    values = _switch(fields, "values")
    page = await kv.list(
        fields.get("prefix", ""),
        limit=fields.get("limit"),
        cursor=fields.get("cursor"),
        values=values,
        purpose=fields.get("purpose"),
        producer=fields.get("producer"),
        writer=fields.get("last_writer"),
        spec_ref=fields.get("spec_ref"),
        expires_before=fields.get("expires_before"),
    )
    answer = _page(page)
    if page.entries is not None:
        answer["entries"] = [{"key": entry.key, **shown_entry(entry)} for entry in page.entries]
    return answer


def _page(page: Page) -> dict[str, Any]:
    return {
        "keys": page.keys,
        "count": page.count,
        "truncated": page.truncated,
        "cursor": page.cursor,
    }


async def _delete_prefix(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await kv.delete_prefix(
        required(fields, "prefix"),
        limit=fields.get("limit"),
        cursor=fields.get("cursor"),
        dry_run=_switch(fields, "dry_run"),
        **provenance(fields),
    )
    return _page(page)


async def _changes(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Beside what was asked for, the bounds of the journal: what a client needs to go on without a gap."""
    prefix = kv.verbs.prefix(fields.get("prefix", ""))
    since, limit = rules.version(fields.get("since", 0), field="since"), rules.limit(fields.get("limit"))
    kv.store.admit(kv.namespace)
    page, changes = await changes_after(kv.store, kv.namespace, prefix, since, limit)
    bounds = {"floor": page.floor, "head": page.head, "epoch": page.epoch}
    return changes_fields(changes) | bounds


async def _history(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    found = await kv.history(required(fields, "key"), limit=fields.get("limit"))
    return {"changes": [change_fields(change) for change in found]}


async def _stats(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await stats_and_policy(kv.store, kv.namespace)


async def _kv_ready(kv: KV, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await _ready(kv.store, fields)


async def stats_and_policy(store: Store, namespace: str) -> dict[str, Any]:
    """What a namespace holds, what was asked of it, and what holds where nothing was."""
    policy, defaults = await store.policy(namespace), await store.defaults(namespace)
    return stats_fields(await store.stats(namespace)) | {
        "policy": msgspec.structs.asdict(policy),
        "defaults": default_fields(defaults),
    }


READS: Final[dict[str, Callable[[KV, Mapping[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "get": _get,
    "get_ttl": _get_ttl,
    "get_many": _get_many,
    "list": _list,
    "changes": _changes,
    "history": _history,
    "stats": _stats,
    "ready": _kv_ready,
}
"""The verbs on keys that only read."""
SWEEPS: Final[dict[str, Callable[[KV, Mapping[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "delete_prefix": _delete_prefix,
}
"""The verbs on keys that look for what they write to, and so take more than one step."""
WRITES: Final = WRITING_VERBS | SWEEPS.keys()
"""The verbs on keys that write."""


async def _namespaces(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await store.survey().page(limit=fields.get("limit"), cursor=fields.get("cursor"))
    return {
        "namespaces": [stats_fields(stats) for stats in page.namespaces],
        "count": len(page.namespaces),
        "truncated": page.cursor is not None,
        "cursor": page.cursor,
    }


async def _namespace_stats(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await stats_and_policy(store, rules.namespace(required(fields, "namespace")))


async def _sweep(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"removed": await store.sweep()}


async def _upkeep(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    await store.upkeep()
    return {}


async def _recount(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"corrected": await store.recount(required(fields, "namespace"))}


async def _policy(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"policy": msgspec.structs.asdict(await store.policy(required(fields, "namespace")))}


async def _set_policy(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    policy = required(fields, "policy")
    if not isinstance(policy, dict):
        raise ValidationError("policy must be an object", field="policy")
    namespace = required(fields, "namespace")
    set_to = await store.set_policy(namespace, policy, **_operator(fields))
    return {"policy": msgspec.structs.asdict(set_to)}


async def _trash(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await store.trash(
        required(fields, "namespace"),
        fields.get("prefix", ""),
        limit=fields.get("limit"),
        cursor=fields.get("cursor"),
        values=_switch(fields, "values"),
    )
    return trash_fields(page)


async def _load(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    entries = required(fields, "entries")
    if not isinstance(entries, list):
        raise ValidationError("entries must be a list", field="entries")
    namespace = rules.namespace(required(fields, "namespace"))
    keep_versions = _switch(fields, "keep_versions")
    loaded = list(map(_entry, entries))
    written = await store.load(namespace, loaded, keep_versions=keep_versions, **_operator(fields))
    return {"written": written}


def _entry(fields: Any) -> Entry:
    try:
        entry = entry_of_fields(fields)
    except (KeyError, TypeError, UnicodeEncodeError, msgspec.ValidationError):
        entry = None
    if entry is None:
        raise ValidationError("each of entries must have the fields of an entry", field="entries")
    return entry


def _operator(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks: an operator, unless the request says it better."""
    said = provenance(fields)
    return said | {"writer": said.get("writer") or OPERATOR.lower(), "principal": fields["principal"]}


async def _audit(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await store.audit(required(fields, "namespace")).log(
        after=fields.get("after", 0),
        limit=fields.get("limit"),
        prefix=fields.get("prefix", ""),
        writer=fields.get("last_writer"),
        op=fields.get("op"),
        purpose=fields.get("purpose"),
        request_id=fields.get("request_id"),
        since=fields.get("since"),
        until=fields.get("until"),
    )
    return {"records": page.records, "count": len(page.records), "next": page.next}


async def _audits(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    found = await store.audits()
    return {"namespaces": found, "count": len(found)}


async def _audit_verify(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    audit = store.audit(required(fields, "namespace"))
    after = rules.version(fields.get("after", 0), field="after")
    return msgspec.structs.asdict(await audit.verify_part(after=after, anchor=fields.get("anchor", "")))


async def _deadletters(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    letters = store.letters(required(fields, "namespace"))
    page = await letters.list(after=fields.get("after", 0), limit=fields.get("limit"))
    return {"letters": page.letters, "count": len(page.letters), "next": page.next}


async def _deadletter_retry(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    return {"reply": await letters.retry(required(fields, "number"), deadline=fields.get("deadline"))}


async def _deadletter_drop(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    return {"dropped": await letters.drop(required(fields, "number"), deadline=fields.get("deadline"))}


async def _rescue(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Begin a copy, or with a number see how far it is: it may take longer than anybody waits for a reply."""
    if "number" in fields:
        part = await store.rescues.part(fields["number"])
    else:
        path = required(fields, "path")
        if not isinstance(path, str):
            raise ValidationError("path must be text", field="path")
        part = await store.rescues.begin(path)
    return msgspec.structs.asdict(part)


async def _ready(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    await store.ready()
    return {"ready": True}


OPERATIONS: Final[dict[str, Callable[[Store, Mapping[str, Any]], Awaitable[dict[str, Any]]]]] = {
    "namespaces": _namespaces,
    "stats": _namespace_stats,
    "sweep": _sweep,
    "upkeep": _upkeep,
    "recount": _recount,
    "policy": _policy,
    "set_policy": _set_policy,
    "audit": _audit,
    "audits": _audits,
    "audit_verify": _audit_verify,
    "load": _load,
    "trash": _trash,
    "deadletters": _deadletters,
    "deadletter_retry": _deadletter_retry,
    "deadletter_drop": _deadletter_drop,
    "rescue": _rescue,
    "ready": _ready,
}
"""The verbs for operators that the store answers."""
SLOWLOG: Final = "slowlog"
"""The verb for operators that the service answers by itself."""
