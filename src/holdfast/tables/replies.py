"""The replies to calls on tables: the fields of a successful answer; see `holdfast.replies`."""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.replies import Count, Deadline, MemberReply, NextCursor, Truncated, Version
from holdfast.tables.forms import KeyDefinitionFields, Table

ItemVersion = Annotated[int, Meta(description="The version of the item.")]


class IndexReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """An index of a table."""

    name: str
    key: KeyDefinitionFields
    state: Literal["building", "ready"]


class TableReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """A table."""

    table: Table
    partition_key: KeyDefinitionFields
    sort_key: KeyDefinitionFields | None
    ttl_attribute: str | None
    stream: Literal["keys", "new", "old", "both"]
    indexes: list[IndexReply]
    created_at: datetime


class ChangedTableReply(TableReply, kw_only=True):
    """A table after a write."""

    version: Version


class DroppedTableReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `drop_table` and `drop_index`."""

    dropped: Literal[True]
    version: Version


class TablesReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `list_tables`."""

    tables: Annotated[list[str], Meta(description="The names of all tables, in order.")]


class ItemReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `get_item`."""

    item: Annotated[dict[str, Any] | None, Meta(description="The item; `null` if there is none.")]
    version: ItemVersion | UnsetType = UNSET
    expires_at: Deadline | UnsetType = UNSET


class WrittenItemReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to a write of one item."""

    version: Version
    expires_at: Deadline | UnsetType = UNSET
    item: Annotated[
        dict[str, Any] | UnsetType | None, Meta(description="The item that `return_values` asked for.")
    ] = UNSET
    old_version: Annotated[int | UnsetType, Meta(description="With `old`, the version it had.")] = UNSET
    old_expires_at: Annotated[
        datetime | UnsetType | None, Meta(description="With `old`, the deadline it had.")
    ] = UNSET


class DeletedItemReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `delete_item`."""

    deleted: Annotated[bool, Meta(description="Whether the item was there.")]
    version: Annotated[int | UnsetType, Meta(description="If it was, the version of the deletion.")] = UNSET
    item: Annotated[
        dict[str, Any] | UnsetType | None, Meta(description="The item that `return_values` asked for.")
    ] = UNSET
    old_version: Annotated[int | UnsetType, Meta(description="With `old`, the version it had.")] = UNSET
    old_expires_at: Annotated[
        datetime | UnsetType | None, Meta(description="With `old`, the deadline it had.")
    ] = UNSET


class ItemsReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `batch_get_item`."""

    items: Annotated[list[dict[str, Any] | None], Meta(description="Items in order; `null` for none.")]
    versions: Annotated[list[int | None], Meta(description="Their versions.")]
    expires_at: Annotated[list[datetime | None], Meta(description="Their deadlines.")]
    count: Count


class ItemPageReply(ItemsReply, kw_only=True):
    """A page of items."""

    truncated: Truncated
    cursor: NextCursor


class CheckIndexReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `check_index`."""

    consistent: Annotated[bool, Meta(description="Whether index and items agree.")]
    items: Annotated[int, Meta(description="Items that were compared.")]
    entries: Annotated[int, Meta(description="Entries of the index that were compared.")]
    missing: Annotated[int, Meta(description="Entries that should be there.")]
    extra: Annotated[int, Meta(description="Entries that should not be there.")]


class BatchWriteItemReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `batch_write_item`."""

    results: Annotated[
        list[MemberReply], Meta(description="The reply of the single verb or an error for each write.")
    ]


class TransactWriteReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `transact_write`."""

    versions: Annotated[list[int | None], Meta(description="The version of each write, in order.")]


class ItemTtlReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `get_ttl`."""

    ttl: Annotated[int | None, Meta(description="Whole seconds left; `null` for ever, 0 if it is gone.")]


class ItemChangeRecord(Struct, kw_only=True, forbid_unknown_fields=True):
    """A change of an item."""

    op: Literal["set", "deleted", "expired"]
    table: str
    partition_key: str | int | float
    version: int
    at: datetime
    last_writer: str | None
    request_id: str | None
    sort_key: str | int | float | UnsetType = UNSET
    lag_ms: int | UnsetType | None = UNSET
    expired_version: int | UnsetType | None = UNSET
    old: dict[str, Any] | UnsetType | None = UNSET
    new: dict[str, Any] | UnsetType | None = UNSET


class ItemChangesReply(Struct, kw_only=True, forbid_unknown_fields=True):
    """The reply to `changes`."""

    changes: Annotated[list[ItemChangeRecord], Meta(description="Changes, oldest first.")]
    next: Annotated[int, Meta(description="The `since` of the following call.")]
    gap: Annotated[bool, Meta(description="Whether the journal no longer has what would be next.")]
    oldest: Annotated[int | None, Meta(description="With a gap, the oldest version that the journal has.")]
