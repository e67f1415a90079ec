"""The fields and replies of the verbs on keys.

Only declarations; see `holdfast.edges.calls.catalogue`.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.edges.calls.fields import (
    MEANT_TTLS,
    NO_KEEPING,
    NOTHING,
    TEXT,
    TTLS,
    CallFields,
    Count,
    Cursor,
    Deadline,
    ExpectedVersion,
    Identity,
    KeepTtl,
    LastWriter,
    Limit,
    Meaning,
    MemberReply,
    NextCursor,
    Purpose,
    Since,
    SpecText,
    Timestamp,
    Truncated,
    Ttl,
    TtlSeconds,
    Version,
    Viewer,
    Why,
    WriteFields,
    never,
    one_of,
    ruled,
    some_of,
    unsaid,
)
from holdfast.errors import error_classes
from holdfast.model import Change, Semantics

Key = Annotated[
    str, Meta(description="The key.", min_length=1, max_length=rules.MAX_KEY_CHARACTERS, pattern=TEXT)
]
Keys = Annotated[list[str], Meta(description="At most 1,000 keys.", max_length=rules.MAX_BATCH)]
Prefix = Annotated[
    str,
    Meta(
        description="Only keys that begin with this; all if not given.",
        max_length=rules.MAX_KEY_CHARACTERS,
        pattern=TEXT,
    ),
]
Value = Annotated[Any, Meta(description="The value, any JSON.")]


class KeyFields(CallFields, kw_only=True):
    """A call about one key."""

    key: Key


class RevealFields(KeyFields, kw_only=True):
    """The fields of `reveal`."""

    why: Why | UnsetType = UNSET
    last_writer: Viewer | UnsetType = UNSET


class GetManyFields(CallFields, kw_only=True):
    """The fields of `get_many`."""

    keys: Keys


class ListFields(CallFields, kw_only=True):
    """The fields of `list`."""

    prefix: Prefix | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    values: Annotated[bool | UnsetType, Meta(description="Return the entries of the keys as well.")] = UNSET
    purpose: Purpose | UnsetType = UNSET
    producer: Annotated[
        Identity | UnsetType, Meta(description="Only entries whose semantics name this producer.")
    ] = UNSET
    last_writer: LastWriter | UnsetType = UNSET
    spec_ref: Annotated[SpecText | UnsetType, Meta(description="Only entries with this `spec_ref`.")] = UNSET
    expires_before: Annotated[
        Timestamp | UnsetType, Meta(description="Only entries that expire before this time, in ISO 8601.")
    ] = UNSET


class ChangesFields(CallFields, kw_only=True):
    """The fields of `changes`."""

    since: Since | UnsetType = UNSET
    prefix: Prefix | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET


class HistoryFields(KeyFields, kw_only=True):
    """The fields of `history`."""

    limit: Limit | UnsetType = UNSET


class KeyWriteFields(WriteFields, kw_only=True):
    """The fields of every write on keys."""

    envelope: Annotated[
        bool | Literal["bare"] | UnsetType,
        Meta(description="Return the whole entry that the write leaves; with `bare`, without its value."),
    ] = UNSET


class ExpectingFields(KeyWriteFields, kw_only=True):
    """A write of one key."""

    key: Key
    expected_version: ExpectedVersion | UnsetType = UNSET


@ruled(*TTLS)
class TtlFields(ExpectingFields, kw_only=True):
    """A write of one key that may set a time to live."""

    ttl: Ttl | UnsetType = UNSET
    ttl_seconds: TtlSeconds | UnsetType = UNSET
    keep_ttl: KeepTtl | UnsetType = UNSET


@ruled(*NO_KEEPING, some_of("ttl", "ttl_seconds"))
class SetTtlFields(TtlFields, kw_only=True):
    """The fields of `set_ttl` and `touch`, which need a time to live."""


@ruled(*NO_KEEPING)
class RestoreFields(TtlFields, kw_only=True):
    """The fields of `restore`. What is in the trash has no deadline to keep."""


@ruled(*MEANT_TTLS)
class SetFields(TtlFields, kw_only=True):
    """The fields of `set`."""

    value: Value
    semantics: Meaning | UnsetType = UNSET


OnlyIfExists = Annotated[bool, Meta(description="Refuse to add to a key that does not exist.")]


@ruled(*NO_KEEPING)
class IncrFields(TtlFields, kw_only=True):
    """The fields of `incr`."""

    by: Annotated[
        float | int | UnsetType,
        Meta(
            description="What to add; 1 if not given.",
            extra_json_schema=unsaid("a sum that no number can hold, or a `value` that is not a number"),
        ),
    ] = UNSET
    only_if_exists: OnlyIfExists | UnsetType = UNSET


@ruled(*MEANT_TTLS)
class SetItem(Struct, kw_only=True):
    """One of the items of `set_many`."""

    key: Key
    value: Value
    ttl: Ttl | UnsetType = UNSET
    ttl_seconds: TtlSeconds | UnsetType = UNSET
    keep_ttl: KeepTtl | UnsetType = UNSET
    expected_version: ExpectedVersion | UnsetType = UNSET
    semantics: Meaning | UnsetType = UNSET


class SetManyFields(KeyWriteFields, kw_only=True):
    """The fields of `set_many`."""

    items: Annotated[
        list[SetItem],
        Meta(description="At most 1,000 items, each with the fields of a set.", max_length=rules.MAX_BATCH),
    ]


@ruled({"properties": {"request_id": NOTHING}})
class DeletePrefixFields(WriteFields, kw_only=True):
    """The fields of `delete_prefix`. A `request_id` is refused, because repeating the call is harmless."""

    prefix: Annotated[
        str,
        Meta(
            description="Remove the keys that begin with this.",
            min_length=1,
            max_length=rules.MAX_KEY_CHARACTERS,
            pattern=TEXT,
        ),
    ]
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    dry_run: Annotated[bool | UnsetType, Meta(description="Return the keys and remove nothing.")] = UNSET


class DeleteManyFields(KeyWriteFields, kw_only=True):
    """The fields of `delete_many`."""

    keys: Keys


class BatchCheck(Struct, kw_only=True):
    """One of the checks of a batch."""

    key: Key
    version: Annotated[
        int,
        Meta(description="The version that must be there, 0 for no entry.", ge=0, le=rules.MAX_VERSION),
    ]


@ruled(
    one_of(("value",), ("incr",), ("delete",), ("guard",)),
    some_of("key", "guard"),
    {"properties": {"expected_version": NOTHING}},
    never("incr", "keep_ttl"),
    *MEANT_TTLS,
)
class BatchWrite(Struct, kw_only=True):
    """One of the writes of a batch: exactly one of `value`, `incr`, `delete` and `guard` is set."""

    key: Key | UnsetType = UNSET
    value: Value = UNSET
    incr: Annotated[float | int | UnsetType, Meta(description="Add this to a number.")] = UNSET
    delete: Annotated[Literal[True] | UnsetType, Meta(description="Remove the key.")] = UNSET
    guard: Annotated[Identity | UnsetType, Meta(description="Give this lock a new token.")] = UNSET
    only_if_exists: OnlyIfExists | UnsetType = UNSET
    ttl: Ttl | UnsetType = UNSET
    ttl_seconds: TtlSeconds | UnsetType = UNSET
    keep_ttl: KeepTtl | UnsetType = UNSET
    semantics: Meaning | UnsetType = UNSET
    expected_version: Annotated[
        int | UnsetType, Meta(description="Refused: a batch expects versions in its checks.")
    ] = UNSET


class BatchFields(KeyWriteFields, kw_only=True):
    """The fields of `batch`."""

    writes: Annotated[
        list[BatchWrite],
        Meta(description="At most 1,000 writes, in their order.", max_length=rules.MAX_BATCH),
    ]
    checks: Annotated[
        Annotated[list[BatchCheck], Meta(max_length=rules.MAX_BATCH)] | UnsetType,
        Meta(description="What must hold, or nothing is written."),
    ] = UNSET


ESCALATED = [
    *("set", "incr", "set_many", "delete", "delete_many", "batch"),
    *("set_ttl", "touch", "remove_ttl", "restore"),
]
"""The verbs whose calls may be given up."""


class EscalateFields(KeyWriteFields, kw_only=True):
    """The fields of `escalate`."""

    verb: Annotated[
        str,
        Meta(description="The verb of the write that was given up.", extra_json_schema={"enum": ESCALATED}),
    ]
    request: Annotated[
        dict[str, Any],
        Meta(
            description="Its fields, with a `request_id`.",
            extra_json_schema={"required": ["request_id"], **unsaid("a `request` that would write nothing")},
        ),
    ]
    error_code: Annotated[
        str,
        Meta(
            description="The code of the last error.",
            extra_json_schema={"enum": sorted(error.code for error in error_classes())},
        ),
    ]
    attempts: Annotated[int, Meta(description="How often it was tried.", ge=1, le=rules.MAX_LIMIT)]
    message: Annotated[
        Annotated[str, Meta(max_length=rules.MAX_REASON_CHARACTERS, pattern=TEXT)] | UnsetType,
        Meta(description="What went wrong, in at most 500 characters."),
    ] = UNSET


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


class EscalateReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `escalate`."""

    letter: Annotated[int, Meta(description="The number of the dead letter.")]
