"""The fields of the verbs on tables.

Law: only declarations; see `holdfast.edges.calls.catalogue`.
"""

# Annotations are not postponed: the catalogue reads them at every start of a service, and resolving them from
# text is slow.

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.forms import (
    TEXT,
    CallFields,
    Cursor,
    ExpectedVersion,
    Limit,
    Since,
    Viewer,
    Why,
    WriteFields,
    one_of,
    ruled,
)

_NAME = "^[A-Za-z0-9_.-]{1,100}$"
Table = Annotated[str, Meta(description="The name of the table.", pattern=_NAME)]
CommonTable = Annotated[str, Meta(description="The table of the writes that name none.", pattern=_NAME)]
Index = Annotated[str, Meta(description="The name of the index.", pattern=_NAME)]
Attribute = Annotated[str, Meta(min_length=1, max_length=255, pattern=TEXT)]
PartitionKey = Annotated[str | int | float, Meta(description="The partition key; a binary is base64.")]
SortKey = Annotated[str | int | float, Meta(description="The sort key, if the table has one.")]
ConditionField = Annotated[
    dict[str, Any], Meta(description="What the item that is there must meet; else `CONDITION_FAILED`.")
]
ReturnValues = Annotated[
    Literal["none", "old", "new"], Meta(description="The item to return; `none` if not given.")
]
_PATH = r"^[^.\[\]\x00]+(\[(0|[1-9][0-9]{0,5})\])*(\.[^.\[\]\x00]+(\[(0|[1-9][0-9]{0,5})\])*)*$"
_PATHS = {
    "items": {
        "anyOf": [
            {"type": "string", "minLength": 1, "maxLength": 255, "pattern": _PATH},
            {
                "type": "array",
                "minItems": 1,
                "maxItems": 64,
                "items": {
                    "anyOf": [
                        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": TEXT},
                        {"type": "integer", "minimum": 0, "maximum": 999_999},
                    ]
                },
            },
        ]
    }
}
# Not as limits of the types: msgspec damages its memory with limits on a text and on a list in one union.
Projection = Annotated[
    list[str | list[str | int]],
    Meta(description="The paths to return; the whole item if not given.", extra_json_schema=_PATHS),
]
SetPaths = Annotated[dict[str, Any] | list[list[Any]], Meta(description="Values by path.")]
RemovePaths = Annotated[
    list[str | list[str | int]], Meta(description="Paths to remove.", extra_json_schema=_PATHS)
]
AddPaths = Annotated[
    dict[str, Any] | list[list[Any]], Meta(description="Numbers to add, or members of sets, by path.")
]
ItemField = Annotated[dict[str, Any], Meta(description="The item, with its key.")]
Binary = Annotated[list[str], Meta(description="The key attributes that the caller gave as bytes.")]


class KeyDefinitionFields(Struct, kw_only=True):
    """An attribute of a key and its type."""

    name: Annotated[Attribute, Meta(description="The name of the attribute.")]
    type: Annotated[Literal["string", "number", "binary"], Meta(description="Its type.")]


class TableCallFields(CallFields, kw_only=True):
    """A call about one table."""

    table: Table


class TableWriteFields(WriteFields, kw_only=True):
    """A write to one table."""

    table: Table


class CreateTableFields(TableWriteFields, kw_only=True):
    """The fields of `create_table`."""

    partition_key: Annotated[KeyDefinitionFields, Meta(description="The attribute that items are found by.")]
    sort_key: Annotated[
        KeyDefinitionFields | UnsetType, Meta(description="The attribute that orders items of a partition.")
    ] = UNSET
    ttl_attribute: Annotated[
        Attribute | UnsetType, Meta(description="The attribute that holds when an item expires.")
    ] = UNSET
    stream: Annotated[
        Literal["keys", "new", "old", "both"] | UnsetType,
        Meta(description="The images that `changes` can show; `both` if not given."),
    ] = UNSET


class ExpectingItemFields(TableWriteFields, kw_only=True):
    """A write of one item."""

    expected_version: ExpectedVersion | UnsetType = UNSET
    condition: ConditionField | UnsetType = UNSET
    return_values: ReturnValues | UnsetType = UNSET


class PutItemFields(ExpectingItemFields, kw_only=True):
    """The fields of `put_item`."""

    item: ItemField
    binary: Binary | UnsetType = UNSET


class ItemWriteFields(ExpectingItemFields, kw_only=True):
    """A write of one item, identified by its key."""

    partition_key: PartitionKey
    sort_key: SortKey | UnsetType = UNSET


class UpdateItemFields(ItemWriteFields, kw_only=True):
    """The fields of `update_item`."""

    set: SetPaths | UnsetType = UNSET
    remove: RemovePaths | UnsetType = UNSET
    add: AddPaths | UnsetType = UNSET


class SetItemTtlFields(ItemWriteFields, kw_only=True):
    """The fields of `set_ttl`."""

    ttl_seconds: Annotated[
        int, Meta(description="The time to live in seconds, from now.", ge=1, le=rules.MAX_TTL)
    ]


class ItemKeyFields(TableCallFields, kw_only=True):
    """A call that reads one item."""

    partition_key: PartitionKey
    sort_key: SortKey | UnsetType = UNSET


class GetItemFields(ItemKeyFields, kw_only=True):
    """The fields of `get_item`."""

    projection: Projection | UnsetType = UNSET


class RevealItemFields(ItemKeyFields, kw_only=True):
    """The fields of `reveal_item`."""

    why: Why
    last_writer: Viewer | UnsetType = UNSET


class WalkFields(TableCallFields, kw_only=True):
    """A walk over items; all fields except `table` are optional."""

    filter: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Only items that meet this condition.")
    ] = UNSET
    projection: Projection | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET
    reverse: Annotated[bool | UnsetType, Meta(description="Begin at the end.")] = UNSET


class QueryFields(WalkFields, kw_only=True):
    """The fields of `query`."""

    partition_key: PartitionKey
    sort_key_condition: Annotated[
        dict[str, Any] | UnsetType, Meta(description='What the sort key must meet, such as `{"gte": 7}`.')
    ] = UNSET


class QueryIndexFields(WalkFields, kw_only=True):
    """The fields of `query_index`."""

    index: Index
    key_value: Annotated[
        str | int | float, Meta(description="The value of the index's attribute; a binary is base64.")
    ]


class CreateIndexFields(TableWriteFields, kw_only=True):
    """The fields of `create_index`."""

    index: Index
    index_key: Annotated[KeyDefinitionFields, Meta(description="The attribute that is indexed.")]


class DropIndexFields(TableWriteFields, kw_only=True):
    """The fields of `drop_index`."""

    index: Index


class CheckIndexFields(TableCallFields, kw_only=True):
    """The fields of `check_index`."""

    index: Index


class ItemKey(Struct, kw_only=True):
    """The key of an item."""

    partition_key: PartitionKey
    sort_key: SortKey | UnsetType = UNSET


class BatchGetItemFields(TableCallFields, kw_only=True):
    """The fields of `batch_get_item`."""

    keys: Annotated[list[ItemKey], Meta(description="At most 1,000 keys.", max_length=rules.MAX_BATCH)]


class PutMember(Struct, kw_only=True):
    """An item to put."""

    item: ItemField
    binary: Binary | UnsetType = UNSET
    table: Table | UnsetType = UNSET
    expected_version: ExpectedVersion | UnsetType = UNSET
    condition: ConditionField | UnsetType = UNSET
    return_values: ReturnValues | UnsetType = UNSET


class KeyedMember(Struct, kw_only=True):
    """An item to remove or to check."""

    partition_key: PartitionKey
    sort_key: SortKey | UnsetType = UNSET
    table: Table | UnsetType = UNSET
    expected_version: ExpectedVersion | UnsetType = UNSET
    condition: ConditionField | UnsetType = UNSET
    return_values: ReturnValues | UnsetType = UNSET


class UpdateMember(KeyedMember, kw_only=True):
    """An item to update."""

    set: SetPaths | UnsetType = UNSET
    remove: RemovePaths | UnsetType = UNSET
    add: AddPaths | UnsetType = UNSET


@ruled(one_of(("put",), ("delete",)))
class BatchItemWrite(Struct, kw_only=True):
    """One of the writes of `batch_write_item`: exactly one field is set."""

    put: Annotated[PutMember | UnsetType, Meta(description="Put an item.")] = UNSET
    delete: Annotated[KeyedMember | UnsetType, Meta(description="Remove an item.")] = UNSET


@ruled(one_of(("put",), ("delete",), ("update",), ("check",)))
class TransactItemWrite(BatchItemWrite, kw_only=True):
    """One of the writes of `transact_write`: exactly one field is set."""

    update: Annotated[UpdateMember | UnsetType, Meta(description="Change attributes of an item.")] = UNSET
    check: Annotated[KeyedMember | UnsetType, Meta(description="Only expect something of an item.")] = UNSET


_EACH = {name: {"required": ["table"]} for name in ("put", "delete", "update", "check")}
_TABLES = {
    "anyOf": [
        {"required": ["table"]},
        {"properties": {"writes": {"items": {"properties": _EACH}}}},
    ]
}
"""A write names its table, unless all of them have one in common."""


@ruled(_TABLES)
class BatchWriteItemFields(WriteFields, kw_only=True):
    """The fields of `batch_write_item`."""

    writes: Annotated[
        list[BatchItemWrite],
        Meta(description="At most 1,000 writes, each for itself.", max_length=rules.MAX_BATCH),
    ]
    table: CommonTable | UnsetType = UNSET


@ruled(_TABLES)
class TransactWriteFields(WriteFields, kw_only=True):
    """The fields of `transact_write`."""

    writes: Annotated[
        list[TransactItemWrite],
        Meta(description="At most 1,000 writes, all or none.", max_length=rules.MAX_BATCH),
    ]
    table: CommonTable | UnsetType = UNSET


class ItemChangesFields(TableCallFields, kw_only=True):
    """The fields of `changes`."""

    since: Since | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    view: Annotated[
        Literal["keys", "new", "old", "both"] | UnsetType,
        Meta(description="The images of items to return; `keys` if not given."),
    ] = UNSET
