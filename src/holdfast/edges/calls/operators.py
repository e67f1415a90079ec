"""The verbs for operators, which every door answers for a whole store.

Each is declared where it is answered: its fields, its reply and what it does. An answer takes the store and
the fields of a call, including the `principal` that the door adds, and returns fields. The door decides who
may call it, whether the deadline has passed, and how the reply is spelled.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.audit.results import AuditEntry, AuditPart
from holdfast.commands import ReadStats
from holdfast.edges.calls.catalogue import Verb
from holdfast.edges.calls.keys import switch
from holdfast.errors import ValidationError
from holdfast.forms import (
    COMPONENTS,
    NAMESPACE,
    NOTHING,
    PLUGIN,
    TENANT,
    TEXT,
    After,
    CallFields,
    Cursor,
    Identity,
    Key,
    LastWriter,
    Limit,
    PageLimit,
    Purpose,
    SemanticsFields,
    SpecText,
    Timestamp,
    Ttl,
    Viewer,
    Why,
    WriteFields,
    one_of,
    ruled,
    unsaid,
)
from holdfast.masking import MASK
from holdfast.model import Entry, Letter, Policy, SlowRequest, Stats, TrashEntry
from holdfast.operators.rescues import RescuePart
from holdfast.operators.tokens import MOST_NAME, OF_LINK
from holdfast.replies import Count, Next, NextCursor, Nothing, ReadyReply, RemovedReply, StatsReply, Truncated
from holdfast.store import Store
from holdfast.verbs.fields import provenance, required
from holdfast.wire.reads import READS
from holdfast.wire.replies import entry_of_fields, stats_fields, trash_fields
from holdfast.wire.subjects import OPERATOR

Answer: TypeAlias = Callable[["Store", Mapping[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

VERBS: Final[dict[str, Verb]] = {}
"""The verbs for operators, by name."""


# What several verbs use.

Namespace = Annotated[
    str, Meta(description="The full name of the namespace, such as `kv/trivia`.", pattern=NAMESPACE)
]
Prefix = Annotated[
    str,
    Meta(description="Only keys that begin with this.", max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT),
]


class NamespaceFields(CallFields, kw_only=True):
    """A call about one namespace."""

    namespace: Namespace


def _operator(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of a request; its writer is an operator unless the request names one."""
    origin = provenance(fields)
    return origin | {"writer": origin.get("writer") or OPERATOR.lower(), "principal": fields["principal"]}


def _verb(
    fields: type[Struct],
    reply: type[Struct],
    *,
    writes: bool = False,
    destroys: bool = False,
    walks: bool = False,
) -> Callable[[Answer], Answer]:
    """Declare the verb that a function answers: its name is that of the function, its help the docstring."""

    def declare(answer: Answer) -> Answer:
        name, help = answer.__name__.removeprefix("_"), answer.__doc__
        assert help is not None
        VERBS[name] = Verb(
            name=name,
            help=help,
            fields=fields,
            reply=reply,
            answer=answer,
            writes=writes,
            destroys=destroys,
            walks=walks,
        )
        return answer

    return declare


# Namespaces and their policies.


class NamespacesFields(CallFields, kw_only=True):
    """The fields of `namespaces`."""

    limit: Annotated[
        PageLimit | UnsetType,
        Meta(description="The most to return; at most 1,024."),
    ] = UNSET
    cursor: Cursor | UnsetType = UNSET


class NamespacesReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `namespaces`."""

    namespaces: Annotated[list[Stats], Meta(description="What each holds, by name; at most 1,024.")]
    count: Count
    truncated: Truncated
    cursor: NextCursor


@_verb(NamespacesFields, NamespacesReply)
async def _namespaces(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """List namespaces with what each holds."""
    page = await store.survey().page(limit=fields.get("limit"), cursor=fields.get("cursor"))
    return {
        "namespaces": [stats_fields(stats) for stats in page.namespaces],
        "count": len(page.namespaces),
        "truncated": page.cursor is not None,
        "cursor": page.cursor,
    }


@_verb(NamespaceFields, StatsReply)
async def _stats(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a namespace holds, its policy and its default limits."""
    command = ReadStats(namespace=rules.namespace(required(fields, "namespace")))
    return await READS[StatsReply].show(command, await store.caller.call(command), None)


_Quota = Annotated[int, Meta(ge=0, le=rules.MAX_VERSION)]
_Count = Annotated[int, Meta(ge=1, le=rules.MAX_TTL)]
_Lifetime = Annotated[
    int,
    Meta(
        ge=1,
        le=rules.MAX_TTL,
        extra_json_schema=unsaid("`ttl_min`, `ttl_default` and `ttl_max` that are not in this order"),
    ),
]


@ruled(closed=True)
class PolicyFields(Struct, kw_only=True):
    """A policy; see the reference. `ttl_default` lies between `ttl_min` and `ttl_max`."""

    quota_keys: _Quota | None = None
    quota_bytes: _Quota | None = None
    max_value_bytes: (
        Annotated[int, Meta(ge=rules.MAX_VALUE_BYTES, le=rules.MAX_RAISED_VALUE_BYTES)] | None
    ) = None
    rate_limit: _Count | None = None
    ttl_default: _Lifetime | None = None
    ttl_min: _Lifetime | None = None
    ttl_max: _Lifetime | None = None
    ttl_required: bool | None = None
    trash: bool | None = None
    trash_retention: _Count | None = None
    journal_retention: _Count | None = None
    audit: bool | None = None
    audit_retention: _Count | None = None
    reveal: Literal["open", "audited", "never"] | None = None


class SetPolicyFields(WriteFields, kw_only=True):
    """The fields of `set_policy`."""

    namespace: Namespace
    policy: Annotated[PolicyFields, Meta(description="The policy; what it does not name no longer holds.")]


class PolicyReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `policy` and `set_policy`."""

    policy: Annotated[Policy, Meta(description="Every field of the policy, `null` where nothing is asked.")]


@_verb(NamespaceFields, PolicyReply)
async def _policy(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy of a namespace."""
    return {"policy": msgspec.structs.asdict(await store.policy(required(fields, "namespace")))}


@_verb(SetPolicyFields, PolicyReply, writes=True)
async def _set_policy(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Put a namespace under a policy."""
    policy = required(fields, "policy")
    if not isinstance(policy, dict):
        raise ValidationError("policy must be an object", field="policy")
    namespace = required(fields, "namespace")
    set_to = await store.set_policy(namespace, policy, **_operator(fields))
    return {"policy": msgspec.structs.asdict(set_to)}


# Audits.


class AuditFields(NamespaceFields, kw_only=True):
    """The fields of `audit`."""

    after: After | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    reverse: Annotated[
        bool | UnsetType, Meta(description="Return the newest first, those before the number `after`.")
    ] = UNSET
    prefix: Prefix | UnsetType = UNSET
    last_writer: LastWriter | UnsetType = UNSET
    op: Annotated[Identity | UnsetType, Meta(description="Only changes of this kind.")] = UNSET
    purpose: Purpose | UnsetType = UNSET
    request_id: Annotated[Identity | UnsetType, Meta(description="Only changes by this request.")] = UNSET
    trace_id: Annotated[Identity | UnsetType, Meta(description="Only changes of this trace.")] = UNSET
    since: Annotated[
        Timestamp | UnsetType, Meta(description="Only changes from this time on, in ISO 8601.")
    ] = UNSET
    until: Annotated[
        Timestamp | UnsetType, Meta(description="Only changes before this time, in ISO 8601.")
    ] = UNSET


class AuditVerifyFields(NamespaceFields, kw_only=True):
    """The fields of `audit_verify`."""

    after: After | UnsetType = UNSET
    anchor: Annotated[
        Annotated[str, Meta(max_length=rules.MAX_IDENTITY_CHARACTERS, pattern=TEXT)] | UnsetType,
        Meta(description="The signature of the record with the number `after`."),
    ] = UNSET


class AuditReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `audit`."""

    records: Annotated[list[AuditEntry], Meta(description="Records, oldest first.")]
    count: Count
    next: Next


class AuditsReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `audits`."""

    namespaces: Annotated[list[str], Meta(description="Their names, in order.")]
    count: Count


@_verb(AuditFields, AuditReply)
async def _audit(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return records of the audit of a namespace."""
    page = await store.audit(required(fields, "namespace")).log(
        after=fields.get("after", 0),
        limit=fields.get("limit"),
        reverse=fields.get("reverse", False),
        prefix=fields.get("prefix", ""),
        writer=fields.get("last_writer"),
        op=fields.get("op"),
        purpose=fields.get("purpose"),
        request_id=fields.get("request_id"),
        trace_id=fields.get("trace_id"),
        since=fields.get("since"),
        until=fields.get("until"),
    )
    return {"records": page.records, "count": len(page.records), "next": page.next}


@_verb(CallFields, AuditsReply)
async def _audits(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the namespaces that have an audit or should have one."""
    namespaces = await store.audits()
    return {"namespaces": namespaces, "count": len(namespaces)}


@_verb(AuditVerifyFields, AuditPart)
async def _audit_verify(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Verify up to 10,000 records of an audit."""
    audit = store.audit(required(fields, "namespace"))
    after = rules.version(fields.get("after", 0), field="after")
    return msgspec.structs.asdict(await audit.verify_part(after=after, anchor=fields.get("anchor", "")))


# Upkeep.


class RecountReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `recount`."""

    corrected: Annotated[int, Meta(description="How many counters were wrong.")]


@_verb(CallFields, RemovedReply, writes=True)
async def _sweep(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Remove what has expired."""
    return {"removed": await store.sweep()}


@_verb(CallFields, Nothing, writes=True)
async def _upkeep(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what the trash, the journal and remembered requests kept long enough."""
    await store.upkeep()
    return {}


@_verb(NamespaceFields, RecountReply, writes=True)
async def _recount(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Count what a namespace keeps again."""
    return {"corrected": await store.recount(required(fields, "namespace"))}


# Entries of other stores, and removed ones.


@ruled(closed=True)
class LoadedEntry(Struct, kw_only=True):
    """An entry of another store, with its whole envelope."""

    key: Key
    value: Annotated[Any, Meta(description="The value.")]
    version: Annotated[
        int, Meta(description="Its version there, at most 2^62.", ge=0, le=rules.MAX_LOADED_VERSION)
    ]
    created_at: Annotated[Timestamp, Meta(description="When it was made, in ISO 8601.")]
    updated_at: Annotated[Timestamp, Meta(description="When it was last written, in ISO 8601.")]
    expires_at: Annotated[Timestamp | None, Meta(description="When it expires; `null` if it does not.")]
    last_writer: Annotated[Identity, Meta(description="Who wrote it last.")]
    semantics: Annotated[SemanticsFields | None, Meta(description="Why it exists and for whom.")]
    request_id: Annotated[Identity | None, Meta(description="The request that wrote it.")]
    spec_ref: Annotated[SpecText | None, Meta(description="The document that the write followed.")]
    purpose: Annotated[
        str | UnsetType | None, Meta(description="Ignored: the purpose comes from `semantics`.")
    ] = UNSET


@ruled(
    {"properties": {"namespace": {"pattern": "^(kv|semantic)/"}}},
    {
        "if": {"properties": {"namespace": {"pattern": "^semantic/"}}},
        "then": {"properties": {"entries": {"items": {"properties": {"key": {"pattern": COMPONENTS}}}}}},
    },
)
class LoadFields(WriteFields, kw_only=True):
    """The fields of `load`."""

    namespace: Namespace
    entries: Annotated[
        list[LoadedEntry],
        Meta(
            description="At most 1,000 entries.",
            max_length=rules.MAX_BATCH,
            extra_json_schema=unsaid(
                "a `key` of a project that has more than 128 characters in full, with its tenant and project"
            ),
        ),
    ]
    keep_versions: Annotated[
        bool | UnsetType, Meta(description="Keep versions that are above the last one of the namespace.")
    ] = UNSET


class LoadReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `load`."""

    written: Annotated[int, Meta(description="How many entries were put.")]


@_verb(LoadFields, LoadReply, writes=True)
async def _load(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Put entries with their whole envelope."""
    entries = required(fields, "entries")
    if not isinstance(entries, list):
        raise ValidationError("entries must be a list", field="entries")
    namespace = rules.namespace(required(fields, "namespace"))
    keep_versions = switch(fields, "keep_versions")
    loaded = list(map(_entry, entries))
    written = await store.load(namespace, loaded, keep_versions=keep_versions, **_operator(fields))
    return {"written": written}


def _entry(fields: Any) -> "Entry":
    try:
        entry = entry_of_fields(fields)
    except (KeyError, TypeError, UnicodeEncodeError, msgspec.ValidationError):
        entry = None
    if entry is None:
        raise ValidationError("each of entries must have the fields of an entry", field="entries")
    return entry


class TrashFields(NamespaceFields, kw_only=True):
    """The fields of `trash`."""

    prefix: Prefix | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    values: Annotated[
        bool | UnsetType,
        Meta(description="Return the values as well; the policy `reveal` may mask them."),
    ] = UNSET


class TrashReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `trash`."""

    entries: Annotated[list[TrashEntry], Meta(description="What was removed, in the order of keys.")]
    count: Count
    truncated: Truncated
    cursor: NextCursor


_MASKED: Final = frozenset({"audited", "never"})
"""The policies `reveal` under which only `reveal` shows a value to a person."""
CONSOLE: Final = "console"
"""The name of the console's endpoint."""
_PAGES: Final["WeakKeyDictionary[Store, asyncio.Lock]"] = WeakKeyDictionary()
"""For each store, the turn to make a page of the trash. Decoded, the values of one may take 10 MB."""


@_verb(TrashFields, TrashReply)
async def _trash(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """List what was removed and can be restored, with masked values."""
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


# Dead letters.


class DeadlettersFields(NamespaceFields, kw_only=True):
    """The fields of `deadletters`."""

    after: After | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET


class LetterFields(NamespaceFields, kw_only=True):
    """A call about one dead letter."""

    number: Annotated[int, Meta(description="The number of the letter.", ge=1, le=rules.MAX_VERSION)]


class RevealLetterFields(LetterFields, kw_only=True):
    """The fields of `deadletter_reveal`."""

    why: Why | UnsetType = UNSET
    last_writer: Viewer | UnsetType = UNSET


class DeadlettersReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `deadletters`."""

    letters: Annotated[list[Letter], Meta(description="Letters, oldest first.")]
    count: Count
    next: Next


class RevealedLetterReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `deadletter_reveal`."""

    letter: Annotated[Letter | None, Meta(description="The letter; `null` if there is none.")]


class RetriedReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `deadletter_retry`."""

    reply: Annotated[dict[str, Any], Meta(description="The reply to the letter's own verb.")]


class DroppedReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `deadletter_drop`."""

    dropped: Annotated[bool, Meta(description="Whether the letter was there.")]


@_verb(DeadlettersFields, DeadlettersReply)
async def _deadletters(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the dead letters of a namespace, oldest first, with masked values."""
    letters = store.letters(required(fields, "namespace"))
    page = await letters.list(after=fields.get("after", 0), limit=fields.get("limit"), masked=True)
    return {"letters": page.letters, "count": len(page.letters), "next": page.next}


@_verb(RevealLetterFields, RevealedLetterReply, writes=True)
async def _deadletter_reveal(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter to a person; an audit records who looked and why."""
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    letter = await letters.reveal(
        required(fields, "number"),
        fields.get("why"),
        writer=fields.get("last_writer") or OPERATOR.lower(),
        deadline=fields.get("deadline"),
    )
    return {"letter": letter}


@_verb(LetterFields, RetriedReply, writes=True)
async def _deadletter_retry(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Do the request of a dead letter again, and drop the letter."""
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    return {"reply": await letters.retry(required(fields, "number"), deadline=fields.get("deadline"))}


@_verb(LetterFields, DroppedReply, writes=True, destroys=True)
async def _deadletter_drop(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop a dead letter."""
    letters = store.letters(required(fields, "namespace"), principal=fields["principal"])
    return {"dropped": await letters.drop(required(fields, "number"), deadline=fields.get("deadline"))}


# The service and its file.


@ruled(one_of(("path",), ("number",)))
class RescueFields(CallFields, kw_only=True):
    """The fields of `rescue`."""

    path: Annotated[
        Annotated[str, Meta(min_length=1, pattern=TEXT)] | UnsetType,
        Meta(
            description="The new file, on the service's machine; begins a copy.",
            extra_json_schema=unsaid("a `path` at which no new file can be made"),
        ),
    ] = UNSET
    number: Annotated[
        Annotated[int, Meta(ge=1, le=rules.MAX_VERSION)] | UnsetType,
        Meta(
            description="The number in an earlier reply; asks how far that copy is.",
            extra_json_schema=unsaid("a `number` of no copy, or not of the newest one"),
        ),
    ] = UNSET


@_verb(RescueFields, RescuePart, walks=True)
async def _rescue(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the whole SQLite store into a new file."""
    # Start a copy, or with a number return its progress: a copy may take longer than a caller's timeout.
    if "number" in fields:
        part = await store.rescues.part(fields["number"])
    else:
        path = required(fields, "path")
        if not isinstance(path, str):
            raise ValidationError("path must be text", field="path")
        part = await store.rescues.begin(path)
    return msgspec.structs.asdict(part)


class SlowlogFields(CallFields, kw_only=True):
    """The fields of `slowlog`."""

    limit: Annotated[
        PageLimit | UnsetType,
        Meta(description="The most to return; at most 200."),
    ] = UNSET
    before: Annotated[
        Annotated[int, Meta(ge=1, le=rules.MAX_LOADED_VERSION)] | UnsetType,
        Meta(description="Only requests with a smaller number: `next` of an earlier reply."),
    ] = UNSET
    instance: Annotated[
        str | UnsetType, Meta(description="The instance that is asked; others answer without requests.")
    ] = UNSET


class SlowlogReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `slowlog`."""

    requests: Annotated[list[SlowRequest], Meta(description="Slow requests, newest first.")]
    count: Count
    next: Annotated[int | None, Meta(description="The `before` of the following call; null at the end.")]
    slow: Annotated[int, Meta(description="Slow requests since the instance was started.")]
    instance: Annotated[str, Meta(description="The instance that answered.")]


@_verb(SlowlogFields, SlowlogReply)
async def _slowlog(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requests that took long, newest first."""
    # Return a page of the slow log, which the door keeps. The door adds the function to the fields.
    page: dict[str, Any] = fields["slow_log"](fields)
    return page


class OperatorReadyFields(CallFields, kw_only=True):
    """The fields of `ready`, as operators ask it."""

    place: Annotated[
        Annotated[str, Meta(min_length=1, pattern=TEXT)] | UnsetType,
        Meta(
            description="The URL of another store: succeed only if the service has the driver to open it.",
            extra_json_schema=unsaid("a `place` that is not the `url` of a store"),
        ),
    ] = UNSET


@_verb(OperatorReadyFields, ReadyReply)
async def _ready(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Succeed if a write would be accepted now."""
    await store.ready()
    if (place := fields.get("place")) is not None:
        if not isinstance(place, str):
            raise ValidationError("place must be the URL of a store, as text", field="place")
        await store.require_able(place)
    return {"ready": True}


# Tokens. A call takes no `request_id`: its answer would have to be kept with the secret, to be repeated.

Id = Annotated[str, Meta(description="The id of the token.")]
Plugin = Annotated[str, Meta(description="The plugin that the token is for.", pattern=PLUGIN)]
Tenant = Annotated[str, Meta(description="The tenant whose project the token is for.", pattern=TENANT)]
Project = Annotated[str, Meta(description="The tenant's project.", pattern=TENANT)]
Operator = Annotated[bool, Meta(description="Whether the token is for operators, who may do everything.")]
TokenVerbs = Annotated[
    list[str],
    Meta(description="The only verbs that the token allows; all if not given.", min_length=1, max_length=100),
]
TokenName = Annotated[
    str,
    Meta(description="What people call the token.", max_length=MOST_NAME, pattern=TEXT),
]
_NO_PROJECT: Final[dict[str, Any]] = {"tenant": NOTHING, "project": NOTHING}


@ruled(
    {
        "oneOf": [
            {"required": ["plugin"], "properties": _NO_PROJECT | {"operator": {"const": False}}},
            {
                "required": ["tenant", "project"],
                "properties": {"plugin": NOTHING, "operator": {"const": False}},
            },
            {
                "required": ["operator"],
                "properties": _NO_PROJECT | {"plugin": NOTHING, "operator": {"const": True}},
            },
        ]
    }
)
class TokenCreateFields(CallFields, kw_only=True):
    """The fields of `token_create`: one of `plugin`, `tenant` with `project`, and `operator`."""

    plugin: Plugin | UnsetType = UNSET
    tenant: Tenant | UnsetType = UNSET
    project: Project | UnsetType = UNSET
    operator: Operator | UnsetType = UNSET
    verbs: TokenVerbs | UnsetType = UNSET
    ttl: Ttl | UnsetType = UNSET
    name: TokenName | UnsetType = UNSET


class TokenFields(CallFields, kw_only=True):
    """A call about one token."""

    id: Annotated[Id, Meta(min_length=1, max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT)]


class TokenReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """A token without its secret."""

    id: Id
    plugin: Plugin | None
    tenant: Tenant | None
    project: Project | None
    operator: Operator
    verbs: Annotated[list[str] | None, Meta(description="The verbs that it allows; `null` for all.")]
    created_at: Annotated[datetime, Meta(description="When it was made.")]
    expires_at: Annotated[datetime | None, Meta(description="When it expires; `null` if it does not.")]
    name: Annotated[str | None, Meta(description="What people call it; `null` if it has no name.")]
    used_at: Annotated[
        datetime | None,
        Meta(
            description="When it was last used over HTTP, to within ten minutes; `null` if not in the last "
            "90 days. Only `tokens` says this."
        ),
    ]


class TokenCreateReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `token_create`."""

    token: Annotated[str, Meta(description="The token with its secret, which is shown only here.")]
    about: Annotated[TokenReply, Meta(description="What the token allows.")]


class TokensReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `tokens`."""

    tokens: Annotated[list[TokenReply], Meta(description="The tokens that are valid, by id.")]
    count: Count


class RevokedReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `token_revoke`."""

    revoked: Annotated[bool, Meta(description="Whether there was such a token.")]


@_verb(TokenCreateFields, TokenCreateReply, writes=True)
async def _token_create(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Make a token that lets a caller in over HTTP."""
    # late: it needs the verbs that are declared here
    from holdfast.edges.calls import require_verbs

    if isinstance(fields.get("verbs"), list):
        require_verbs(fields["verbs"])
    made = await store.tokens().create(
        plugin=fields.get("plugin"),
        tenant=fields.get("tenant"),
        project=fields.get("project"),
        operator=fields.get("operator", False),
        verbs=fields.get("verbs"),
        ttl=fields.get("ttl"),
        name=fields.get("name"),
        by=_asking(fields["principal"]),
    )
    return {"token": made.token, "about": msgspec.structs.asdict(made.about)}


def _asking(principal: str) -> str | None:
    """Return the id of the token that let a caller in; None if it was no token, or the link of a console."""
    mode, _, name = principal.partition(":")
    token = name.rpartition("#")[2]
    return token if mode == "token" and not token.startswith(OF_LINK) else None


@_verb(CallFields, TokensReply)
async def _tokens(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the tokens that let callers in over HTTP."""
    tokens = await store.tokens().list()
    return {"tokens": [msgspec.structs.asdict(token) for token in tokens], "count": len(tokens)}


@_verb(TokenFields, RevokedReply, writes=True, destroys=True)
async def _token_revoke(store: "Store", fields: Mapping[str, Any]) -> dict[str, Any]:
    """Revoke a token."""
    return {"revoked": await store.tokens().revoke(str(required(fields, "id")))}
