"""The verbs for operators, which every door answers for a whole store.

An `answer` takes the store and the fields of a call, including the `principal` that the door adds.

Law: as in `holdfast.edges.calls.keys`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from holdfast import rules
from holdfast.audit.results import AuditPart
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.edges.calls.keys import stats_and_policy, switch
from holdfast.edges.calls.operator_fields import (
    AuditFields,
    AuditReply,
    AuditsReply,
    AuditVerifyFields,
    DeadlettersFields,
    DeadlettersReply,
    DroppedReply,
    LetterFields,
    LoadFields,
    LoadReply,
    NamespaceFields,
    NamespacesFields,
    NamespacesReply,
    OperatorReadyFields,
    PolicyReply,
    RecountReply,
    RescueFields,
    RetriedReply,
    RevealedLetterReply,
    RevealLetterFields,
    SetPolicyFields,
    SlowlogFields,
    SlowlogReply,
    TrashFields,
    TrashReply,
)
from holdfast.edges.calls.tokens import TOKEN_VERBS
from holdfast.errors import ValidationError
from holdfast.forms import CallFields
from holdfast.masking import MASK
from holdfast.operators.rescues import RescuePart
from holdfast.replies import Nothing, ReadyReply, RemovedReply, StatsReply
from holdfast.verbs.fields import provenance, required
from holdfast.wire.replies import entry_of_fields, stats_fields, trash_fields
from holdfast.wire.subjects import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.model import Entry
    from holdfast.store import Store


async def _namespaces(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await store.survey().page(limit=fields.get("limit"), cursor=fields.get("cursor"))
    return {
        "namespaces": [stats_fields(stats) for stats in page.namespaces],
        "count": len(page.namespaces),
        "truncated": page.cursor is not None,
        "cursor": page.cursor,
    }


async def _stats(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await stats_and_policy(store.pipeline, rules.namespace(required(fields, "namespace")))


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
    namespace, values = required(fields, "namespace"), switch(fields, "values")
    async with _PAGES.setdefault(store, asyncio.Lock()):
        page = await store.trash(
            namespace,
            fields.get("prefix", ""),
            limit=fields.get("limit"),
            cursor=fields.get("cursor"),
            values=values,
        )
    # The console shows a value here once the entry was revealed, which the audit has recorded.
    if values and fields.get("door") != CONSOLE and (await store.policy(namespace)).reveal in _MASKED:
        entries = [msgspec.structs.replace(entry, value=MASK) for entry in page.entries]
        page = msgspec.structs.replace(page, entries=entries)
    return trash_fields(page)


_MASKED: Final = frozenset({"audited", "never"})
"""The policies `reveal` under which only `reveal` shows a value to a person."""
CONSOLE: Final = "console"
"""The name of the console's endpoint."""
_PAGES: Final[WeakKeyDictionary[Store, asyncio.Lock]] = WeakKeyDictionary()
"""For each store, the turn to make a page of the trash. Decoded, the values of one may take 10 MB."""


async def _load(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    entries = required(fields, "entries")
    if not isinstance(entries, list):
        raise ValidationError("entries must be a list", field="entries")
    namespace = rules.namespace(required(fields, "namespace"))
    keep_versions = switch(fields, "keep_versions")
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
    """Return the provenance of a request; its writer is an operator unless the request names one."""
    said = provenance(fields)
    return said | {"writer": said.get("writer") or OPERATOR.lower(), "principal": fields["principal"]}


async def _audit(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    page = await store.audit(required(fields, "namespace")).log(
        after=fields.get("after", 0),
        limit=fields.get("limit"),
        reverse=fields.get("reverse", False),
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
    page = await letters.list(after=fields.get("after", 0), limit=fields.get("limit"), masked=True)
    return {"letters": page.letters, "count": len(page.letters), "next": page.next}


async def _deadletter_reveal(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    letter = await letters.reveal(
        required(fields, "number"),
        fields.get("why"),
        writer=fields.get("last_writer") or OPERATOR.lower(),
        deadline=fields.get("deadline"),
    )
    return {"letter": letter}


async def _deadletter_retry(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    return {"reply": await letters.retry(required(fields, "number"), deadline=fields.get("deadline"))}


async def _deadletter_drop(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    return {"dropped": await letters.drop(required(fields, "number"), deadline=fields.get("deadline"))}


async def _rescue(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Start a copy, or with a number return its progress: a copy may take longer than a caller's timeout."""
    if "number" in fields:
        part = await store.rescues.part(fields["number"])
    else:
        path = required(fields, "path")
        if not isinstance(path, str):
            raise ValidationError("path must be text", field="path")
        part = await store.rescues.begin(path)
    return msgspec.structs.asdict(part)


async def _slowlog(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of the slow log, which the door keeps. The door adds the function to the fields."""
    page: dict[str, Any] = fields["slow_log"](fields)
    return page


async def _ready(store: Store, fields: Mapping[str, Any]) -> dict[str, Any]:
    await store.ready()
    if (place := fields.get("place")) is not None:
        if not isinstance(place, str):
            raise ValidationError("place must be the URL of a store, as text", field="place")
        await store.require_able(place)
    return {"ready": True}


def _verb(
    answer: Callable[[Store, Mapping[str, Any]], Awaitable[dict[str, Any]]],
    help: str,
    fields: type[msgspec.Struct],
    reply: type[msgspec.Struct],
    *,
    writes: bool = False,
    destroys: bool = False,
    walks: bool = False,
) -> Verb:
    """Declare a verb with the name of its answer."""
    name = answer.__name__.removeprefix("_")
    return Verb(
        name=name,
        help=help,
        fields=fields,
        reply=reply,
        answer=answer,
        writes=writes,
        destroys=destroys,
        walks=walks,
    )


VERBS: Final = catalogue(
    _verb(_namespaces, "List namespaces with what each holds.", NamespacesFields, NamespacesReply),
    _verb(
        _stats,
        "Return what a namespace holds, its policy and its default limits.",
        NamespaceFields,
        StatsReply,
    ),
    _verb(_policy, "Return the policy of a namespace.", NamespaceFields, PolicyReply),
    _verb(_set_policy, "Put a namespace under a policy.", SetPolicyFields, PolicyReply, writes=True),
    _verb(_audit, "Return records of the audit of a namespace.", AuditFields, AuditReply),
    _verb(_audits, "List the namespaces that have an audit or should have one.", CallFields, AuditsReply),
    _verb(_audit_verify, "Verify up to 10,000 records of an audit.", AuditVerifyFields, AuditPart),
    _verb(_sweep, "Remove what has expired.", CallFields, RemovedReply, writes=True),
    _verb(
        _upkeep,
        "Drop what the trash, the journal and remembered requests kept long enough.",
        CallFields,
        Nothing,
        writes=True,
    ),
    _verb(_recount, "Count what a namespace keeps again.", NamespaceFields, RecountReply, writes=True),
    _verb(_load, "Put entries with their whole envelope.", LoadFields, LoadReply, writes=True),
    _verb(
        _trash,
        "List what was removed and can be restored, with masked values.",
        TrashFields,
        TrashReply,
    ),
    _verb(
        _deadletters,
        "List the dead letters of a namespace, oldest first, with masked values.",
        DeadlettersFields,
        DeadlettersReply,
    ),
    _verb(
        _deadletter_reveal,
        "Return a dead letter to a person; an audit records who looked and why.",
        RevealLetterFields,
        RevealedLetterReply,
        writes=True,
    ),
    _verb(
        _deadletter_retry,
        "Do the request of a dead letter again, and drop the letter.",
        LetterFields,
        RetriedReply,
        writes=True,
    ),
    _verb(_deadletter_drop, "Drop a dead letter.", LetterFields, DroppedReply, writes=True, destroys=True),
    _verb(_rescue, "Copy the whole SQLite store into a new file.", RescueFields, RescuePart, walks=True),
    _verb(_slowlog, "Return the requests that took long, newest first.", SlowlogFields, SlowlogReply),
    _verb(_ready, "Succeed if a write would be accepted now.", OperatorReadyFields, ReadyReply),
    *TOKEN_VERBS,
)
"""The verbs for operators."""
