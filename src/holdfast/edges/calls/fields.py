"""Fields and replies shared by verbs of several families.

Law: only declarations; see `holdfast.edges.calls.catalogue`. A field without a default is required; one with
`UNSET` is optional.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.model import Parts, Policy, Semantics

Cursor = Annotated[str, Meta(description="The cursor of the page before; the listing goes on after it.")]
Limit = Annotated[int, Meta(description="The most to return, from 1 to 10,000; 1,000 if not given.")]
Ttl = Annotated[int, Meta(description="The time to live in seconds; none if not given.")]
TtlSeconds = Annotated[int, Meta(description="Another name for `ttl`.")]
KeepTtl = Annotated[bool, Meta(description="Keep the deadline that the entry has, instead of a `ttl`.")]
ExpectedVersion = Annotated[
    int, Meta(description="The version that must be there, 0 for none; else `VERSION_CONFLICT`.")
]
Meaning = Annotated[Semantics, Meta(description="Why the entry exists and for whom.")]
Since = Annotated[int, Meta(description="The version after which to begin; 0 if not given.")]
After = Annotated[int, Meta(description="The number after which to begin; 0 if not given.")]
LastWriter = Annotated[str, Meta(description="Only what this writer wrote last.")]
Purpose = Annotated[str, Meta(description="Only entries whose semantics name this purpose.")]
Version = Annotated[int, Meta(description="The version that the write made.")]
Deadline = Annotated[datetime | None, Meta(description="When it expires; `null` if it does not.")]
Count = Annotated[int, Meta(description="How many this reply has.")]
Truncated = Annotated[bool, Meta(description="Whether there is more.")]
NextCursor = Annotated[str | None, Meta(description="Goes on after this page; `null` at the end.")]
Next = Annotated[int | None, Meta(description="The `after` of the following call; `null` at the end.")]

Why = Annotated[
    str,
    Meta(description="Why a person looks at the value, at most 500 characters; the audit records it."),
]
Viewer = Annotated[str, Meta(description="Who looks at the value; the name in the subject if not given.")]


class CallFields(Struct, kw_only=True):
    """The fields of every call."""

    deadline: Annotated[
        int | UnsetType,
        Meta(description="When the caller gives up, in milliseconds since 1970 by the service's clock."),
    ] = UNSET
    deadline_ms: Annotated[
        int | UnsetType,
        Meta(description="The same in milliseconds after the service received the request."),
    ] = UNSET


class FenceFields(Struct, kw_only=True):
    """The lock that a write relies on."""

    lock: Annotated[str, Meta(description="The name of the lock.")]
    token: Annotated[int, Meta(description="The token that its holder has.")]


class WriteFields(CallFields, kw_only=True):
    """The fields of every write."""

    request_id: Annotated[
        str | UnsetType,
        Meta(description="Names the request: sent again, it gets the first answer and has no second effect."),
    ] = UNSET
    last_writer: Annotated[
        str | UnsetType, Meta(description="Who writes; the name in the subject if not given.")
    ] = UNSET
    spec_ref: Annotated[str | UnsetType, Meta(description="The document that the write follows.")] = UNSET
    fence: Annotated[
        FenceFields | UnsetType, Meta(description="Refuse the write unless the lock has this newest token.")
    ] = UNSET


class Nothing(Struct, kw_only=True, forbid_unknown_fields=True):
    """A reply with no fields beyond success."""


class MemberReply(Struct, kw_only=True):
    """The outcome for one of several members: the reply fields of the single verb, or those of an error."""

    success: Annotated[bool, Meta(description="Whether this member succeeded.")]
    error_code: Annotated[str | UnsetType, Meta(description="The code of the error.")] = UNSET
    message: Annotated[str | UnsetType, Meta(description="What was wrong and what to do.")] = UNSET
    retryable: Annotated[bool | UnsetType, Meta(description="Whether the same call may succeed later.")] = (
        UNSET
    )
    field: Annotated[str | UnsetType, Meta(description="The field that was wrong.")] = UNSET
    retry_after: Annotated[float | UnsetType, Meta(description="Seconds to wait before a retry.")] = UNSET
    reason: Annotated[str | UnsetType, Meta(description="Why a version conflicts.")] = UNSET
    current: Annotated[
        dict[str, Any] | UnsetType | None, Meta(description="What is there instead of what was expected.")
    ] = UNSET
    conflicts: Annotated[list[dict[str, Any]] | UnsetType, Meta(description="Every check that failed.")] = (
        UNSET
    )


class DefaultLimits(Struct, kw_only=True, forbid_unknown_fields=True):
    """The limits of a namespace whose policy names none."""

    quota_bytes: int | None
    rate_limit: int | None


class StatsReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """Totals, policy and default limits of one namespace."""

    namespace: Annotated[str, Meta(description="The full name of the namespace.")]
    keys: Annotated[int, Meta(description="Live keys or items.")]
    bytes: Annotated[int, Meta(description="Bytes of their keys and values.")]
    version: Annotated[int, Meta(description="The last version given; 0 if there was none.")]
    changed_at: Annotated[datetime, Meta(description="When that was.")]
    kept_bytes: Annotated[int, Meta(description="All bytes that a quota counts.")]
    parts: Annotated[Parts, Meta(description="What those bytes are made of.")]
    policy: Annotated[Policy, Meta(description="The policy of the namespace.")]
    defaults: Annotated[DefaultLimits, Meta(description="The limits that hold where the policy names none.")]


class ReadyReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply of a service that accepts writes."""

    ready: Annotated[Literal[True], Meta(description="A write would be accepted now.")]
