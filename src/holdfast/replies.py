"""The replies to calls: the fields of a successful answer, as schemas and pages show them."""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.forms import Key
from holdfast.model import Change, Parts, Policy, Semantics

Version = Annotated[int, Meta(description="The version that the write made.")]
Deadline = Annotated[datetime | None, Meta(description="When it expires; `null` if it does not.")]
Count = Annotated[int, Meta(description="How many this reply has.")]
Truncated = Annotated[bool, Meta(description="Whether there is more.")]
NextCursor = Annotated[str | None, Meta(description="Goes on after this page; `null` at the end.")]
Next = Annotated[int | None, Meta(description="The `after` of the following call; `null` at the end.")]


class Nothing(Struct, kw_only=True, forbid_unknown_fields=True):
    """A reply with no fields beyond success."""


class RemovedReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to a sweep."""

    removed: Annotated[int, Meta(description="How many had expired.")]


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


class EntryReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """An entry, or `exists: false`."""

    exists: Annotated[bool, Meta(description="Whether the key is there.")]
    value: Annotated[Any, Meta(description="The value.")] = UNSET
    version: Annotated[int | UnsetType, Meta(description="The version of the entry.")] = UNSET
    expires_at: Deadline | UnsetType = UNSET
    created_at: Annotated[datetime | UnsetType, Meta(description="When the key was made.")] = UNSET
    updated_at: Annotated[datetime | UnsetType, Meta(description="When it was last written.")] = UNSET
    last_writer: Annotated[str | UnsetType, Meta(description="Who wrote it last.")] = UNSET
    semantics: Annotated[Semantics | UnsetType, Meta(description="Why it exists and for whom.")] = UNSET
    request_id: Annotated[str | UnsetType, Meta(description="The request that wrote it.")] = UNSET
    spec_ref: Annotated[str | UnsetType, Meta(description="The document that the write followed.")] = UNSET


class ExistsReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `exists`."""

    exists: Annotated[bool, Meta(description="Whether the key is there.")]


class GetManyReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `get_many`."""

    results: Annotated[
        list[MemberReply],
        Meta(description="The reply to `get` or an error for each key, in order."),
    ]


class GetTtlReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `get_ttl`."""

    ttl: Annotated[int | None, Meta(description="Seconds left; `null` for ever, 0 if there is no entry.")]


class ListedEntry(EntryReply, kw_only=True):
    """An entry of a page."""

    key: Key


class ListReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `list`."""

    keys: Annotated[list[str], Meta(description="Keys in the order of their bytes.")]
    count: Count
    truncated: Truncated
    cursor: NextCursor
    entries: Annotated[list[ListedEntry] | UnsetType, Meta(description="With `values`, their entries.")] = (
        UNSET
    )


class DeletePrefixReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `delete_prefix`."""

    keys: Annotated[list[str], Meta(description="The keys that were removed, or would be.")]
    count: Count
    truncated: Truncated
    cursor: NextCursor


class ChangesReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `changes`."""

    changes: Annotated[list[Change], Meta(description="Records of the journal, oldest first.")]
    next: Annotated[int, Meta(description="The `since` of the following call.")]
    gap: Annotated[bool, Meta(description="Whether the journal no longer has what would be next.")]
    oldest: Annotated[
        int | UnsetType | None, Meta(description="With a gap, the oldest version that the journal has.")
    ] = UNSET
    floor: Annotated[int, Meta(description="The newest version that the journal has dropped.")]
    head: Annotated[int, Meta(description="The newest version of the namespace.")]
    epoch: Annotated[str, Meta(description="Names the store: another one means that versions began anew.")]


class HistoryReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `history`."""

    changes: Annotated[list[Change], Meta(description="Records of the journal, newest first.")]


class EnvelopeReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to a write with `envelope`."""

    key: Annotated[str | UnsetType, Meta(description="With `envelope`, the key.")] = UNSET
    exists: Annotated[Literal[True] | UnsetType, Meta(description="With `envelope`, always true.")] = UNSET
    value: Annotated[Any, Meta(description="With `envelope`, the value.")] = UNSET
    created_at: Annotated[datetime | UnsetType, Meta(description="With `envelope`.")] = UNSET
    updated_at: Annotated[datetime | UnsetType, Meta(description="With `envelope`.")] = UNSET
    last_writer: Annotated[str | UnsetType, Meta(description="With `envelope`.")] = UNSET
    semantics: Annotated[Semantics | UnsetType, Meta(description="With `envelope`.")] = UNSET
    request_id: Annotated[str | UnsetType, Meta(description="With `envelope`.")] = UNSET
    spec_ref: Annotated[str | UnsetType, Meta(description="With `envelope`.")] = UNSET


class StoredReply(EnvelopeReply, kw_only=True):
    """The reply to a write that leaves an entry."""

    version: Version
    expires_at: Deadline


class TouchReply(EnvelopeReply, kw_only=True):
    """The reply to `touch`."""

    touched: Annotated[bool, Meta(description="Whether the key was there.")]
    version: Annotated[int | UnsetType, Meta(description="If it was, the version of the entry.")] = UNSET
    expires_at: Deadline | UnsetType = UNSET


class IncrReply(StoredReply, kw_only=True):
    """The reply to `incr`."""

    value: Annotated[float | int, Meta(description="The sum.")]


class AppendReply(StoredReply, kw_only=True):
    """The reply to `append`."""

    key: Annotated[str, Meta(description="The key of the item.")]
    number: Annotated[int, Meta(description="The number of the item, one more than that of the one before.")]


class SetManyReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `set_many`."""

    results: Annotated[
        list[MemberReply],
        Meta(description="The reply to `set` or an error for each item, in order."),
    ]


class DeletedReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `delete`."""

    deleted: Annotated[bool, Meta(description="Whether the key was there.")]
    version: Annotated[int | UnsetType, Meta(description="If it was, the version of the deletion.")] = UNSET


class DeleteManyReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `delete_many`."""

    results: Annotated[
        list[MemberReply],
        Meta(description="The reply to `delete` or an error for each key, in order."),
    ]


class BatchReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `batch`."""

    versions: Annotated[
        list[int | None],
        Meta(description="The version of each write, in order; `null` for a delete that found nothing."),
    ]
    numbers: Annotated[
        list[int | None] | UnsetType,
        Meta(description="If any item was appended, the number of each, in order; `null` for other writes."),
    ] = UNSET


class EscalateReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `escalate`."""

    letter: Annotated[int, Meta(description="The number of the dead letter.")]
