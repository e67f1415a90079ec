"""The fields and replies of the verbs for operators.

Only declarations; see `holdfast.edges.calls.catalogue`.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.audit.results import AuditEntry
from holdfast.forms import (
    COMPONENTS,
    NAMESPACE,
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
    Viewer,
    Why,
    WriteFields,
    one_of,
    ruled,
    unsaid,
)
from holdfast.model import Letter, Policy, SlowRequest, Stats, TrashEntry
from holdfast.replies import Count, Next, NextCursor, Truncated

Namespace = Annotated[
    str, Meta(description="The full name of the namespace, such as `kv/trivia`.", pattern=NAMESPACE)
]
Prefix = Annotated[
    str,
    Meta(description="Only keys that begin with this.", max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT),
]
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


class NamespaceFields(CallFields, kw_only=True):
    """A call about one namespace."""

    namespace: Namespace


class NamespacesFields(CallFields, kw_only=True):
    """The fields of `namespaces`."""

    limit: Annotated[
        PageLimit | UnsetType,
        Meta(description="The most to return; at most 1,024."),
    ] = UNSET
    cursor: Cursor | UnsetType = UNSET


class SetPolicyFields(WriteFields, kw_only=True):
    """The fields of `set_policy`."""

    namespace: Namespace
    policy: Annotated[PolicyFields, Meta(description="The policy; what it does not name no longer holds.")]


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


class TrashFields(NamespaceFields, kw_only=True):
    """The fields of `trash`."""

    prefix: Prefix | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    values: Annotated[
        bool | UnsetType,
        Meta(description="Return the values as well; the policy `reveal` may mask them."),
    ] = UNSET


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


class OperatorReadyFields(CallFields, kw_only=True):
    """The fields of `ready`, as operators ask it."""

    place: Annotated[
        Annotated[str, Meta(min_length=1, pattern=TEXT)] | UnsetType,
        Meta(
            description="The URL of another store: succeed only if the service has the driver to open it.",
            extra_json_schema=unsaid("a `place` that is not the `url` of a store"),
        ),
    ] = UNSET


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


class NamespacesReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `namespaces`."""

    namespaces: Annotated[list[Stats], Meta(description="What each holds, by name; at most 1,024.")]
    count: Count
    truncated: Truncated
    cursor: NextCursor


class RecountReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `recount`."""

    corrected: Annotated[int, Meta(description="How many counters were wrong.")]


class PolicyReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `policy` and `set_policy`."""

    policy: Annotated[Policy, Meta(description="Every field of the policy, `null` where nothing is asked.")]


class AuditReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `audit`."""

    records: Annotated[list[AuditEntry], Meta(description="Records, oldest first.")]
    count: Count
    next: Next


class AuditsReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `audits`."""

    namespaces: Annotated[list[str], Meta(description="Their names, in order.")]
    count: Count


class LoadReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `load`."""

    written: Annotated[int, Meta(description="How many entries were put.")]


class TrashReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `trash`."""

    entries: Annotated[list[TrashEntry], Meta(description="What was removed, in the order of keys.")]
    count: Count
    truncated: Truncated
    cursor: NextCursor


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
