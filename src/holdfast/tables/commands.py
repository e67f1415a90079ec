"""Commands on tables and their results.

Keys, conditions and updates of a command are legal in form. Only `decide`, which has the schema, knows
whether they suit the table.

The class of a command also declares its verb; see `holdfast.declare`. Commands that only read are answered by
`holdfast.handles.table_answers`, never by `decide`.
"""

# Annotations are not postponed: verbs are derived from them.

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast import rules
from holdfast.commands import LEAST_COST, Command, Result, WriteCommand
from holdfast.declare import Declaration, Says, Wire, missing, verb
from holdfast.errors import ValidationError
from holdfast.forms import (
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
    unsaid,
)
from holdfast.replies import RemovedReply
from holdfast.rows import Row
from holdfast.tables import forms, replies
from holdfast.tables.conditions import Condition, condition_json, condition_of
from holdfast.tables.items import MAX_ITEM_BYTES, encode_item
from holdfast.tables.keys import json_key
from holdfast.tables.paths import Path, paths_of, spelled
from holdfast.tables.schema import (
    KeyAttribute,
    Stream,
    TableSchema,
    index_name,
    key_attribute,
    stream_view,
    table_name,
    table_schema,
)
from holdfast.tables.updates import plain

Returns: TypeAlias = Literal["none", "old", "new"]

VERBS: Final[dict[str, Declaration]] = {}
"""The verbs on tables, by name."""
_verb = partial(verb, among=VERBS)
_write = partial(_verb, options=WriteFields, in_order=True)


def legal_key(value: object, *, field: str) -> Any:
    """Return the value of a key in a form that any table could use, with bytes as base64."""
    key = json_key(value)
    if key is not None and (isinstance(key, bool) or not isinstance(key, (str, int, float))):
        raise ValidationError(
            f"{field} must be text, a number or a binary, not {rules.kind_of(value)}", field=field
        )
    rules.encode_value(key, most=rules.MAX_VALUE_BYTES, field=field)
    return key


def _schema(
    partition_key: object, table: object, sort_key: object, ttl_attribute: object, stream: object
) -> TableSchema:
    """Return the schema of a table that a caller describes."""
    if partition_key is UNSET:
        raise missing("partition_key")
    return table_schema(
        table, partition_key=partition_key, sort_key=sort_key, ttl_attribute=ttl_attribute, stream=stream
    )


def _definition(command: "CreateTable") -> dict[str, Any]:
    """Return the fields that describe a table."""
    schema = command.schema
    fields = {
        "table": command.table,
        "partition_key": msgspec.structs.asdict(schema.partition_key),
        "sort_key": None if schema.sort_key is None else msgspec.structs.asdict(schema.sort_key),
        "ttl_attribute": schema.ttl_attribute,
        "stream": schema.stream,
    }
    return {name: field for name, field in fields.items() if field is not None}


def _item(item: object, binary: object) -> tuple[str, int, tuple[str, ...] | UnsetType]:
    """Return the text of an item, its size, and the names of attributes that the caller gave as bytes.

    Whether they may be bytes is checked where the table is known.
    """
    if item is UNSET:
        raise missing("item")
    if not isinstance(item, Mapping):
        raise ValidationError(f"item must be an object, not {rules.kind_of(item)}", field="item")
    names = tuple(name for name, value in item.items() if isinstance(value, bytes))
    if names:
        return *encode_item({name: json_key(value) for name, value in item.items()}), names
    return *encode_item(dict(item)), UNSET if binary is None else _binary(binary)


def _binary(binary: object) -> tuple[str, ...]:
    names = rules.several(binary, field="binary")
    if not all(isinstance(name, str) for name in names):
        raise ValidationError("binary must be a list of the names of attributes", field="binary")
    return tuple(names)


def _changes(set: object, remove: object, add: object) -> tuple[Any, Any, Any, int]:
    """Return the actions of an update as JSON has them, and their size."""
    actions = {"set": plain(set), "remove": plain(remove), "add": plain(add)}
    size = sum(
        rules.encode_value(action, most=2 * MAX_ITEM_BYTES, field=name)[1] for name, action in actions.items()
    )
    return actions["set"], actions["remove"], actions["add"], size


def _returns(given: object) -> Returns:
    if given is None or given == "none":
        return "none"
    if given == "old":
        return "old"
    if given == "new":
        return "new"
    raise ValidationError(
        f"return_values must be none, old or new, not {rules.shown(given)}", field="return_values"
    )


def _paths(given: object) -> tuple[Path, ...]:
    """Return the paths of a projection, which has at least one."""
    paths = paths_of(given, field="projection")
    if not paths:
        raise ValidationError("projection must name at least one path", field="projection")
    return paths


def _spelled(paths: tuple[Path, ...]) -> list[Any]:
    return [spelled(path) for path in paths]


def _reverse(given: object) -> bool:
    if given is not None and not isinstance(given, bool):
        raise ValidationError("reverse must be true or false", field="reverse")
    return bool(given)


def _as_given(given: object) -> Any:
    """Return what a caller gave. It is checked where the table is known."""
    return given


def _operands(condition: object) -> Any:
    """Return a condition on a sort key with its binaries as base64. Whoever has the schema checks it."""
    if not isinstance(condition, Mapping):
        return condition
    return {
        name: [json_key(operand) for operand in value]
        if isinstance(value, (list, tuple))
        else json_key(value)
        for name, value in condition.items()
    }


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _item_keys(keys: tuple[tuple[Any, Any], ...]) -> list[dict[str, Any]]:
    return [
        {"partition_key": partition_key} | ({} if sort_key is None else {"sort_key": sort_key})
        for partition_key, sort_key in keys
    ]


_TABLE: Final = Says(rule=table_name, form=forms.Table)
_INDEX: Final = Says(rule=index_name, form=forms.Index)
_PARTITION_KEY: Final = Says(rule=partial(legal_key, field="partition_key"), form=forms.PartitionKey)
_SORT_KEY: Final = Says(rule=partial(legal_key, field="sort_key"), form=forms.SortKey)
_PROJECTION: Final = Says(rule=_paths, form=forms.Projection, sent=_spelled)
_LIMIT: Final = Says(rule=rules.limit, form=Limit)


class TableChange(WriteCommand, frozen=True, kw_only=True):
    """A change of a table or of its contents."""

    table: Annotated[str, _TABLE]


@_write("create_table", help="Make a table.", reply=replies.ChangedTableReply, sent=_definition)
class CreateTable(TableChange, frozen=True, kw_only=True):
    """Create a table."""

    schema: Annotated[
        TableSchema,
        Says(
            rule=_schema,
            wire="partition_key",
            form=forms.PartitionDefinition,
            takes=(
                "table",
                Wire("sort_key", forms.SortDefinition),
                Wire("ttl_attribute", forms.TtlAttribute),
                Wire("stream", forms.ImagesKept),
            ),
            needed=True,
        ),
    ]


@_write("drop_table", reply=replies.DroppedTableReply, destroys=True, walks=True)
class DropTable(TableChange, frozen=True, kw_only=True):
    """Drop a table with its items."""

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


@_write("create_index", help="Make an index and fill it.", reply=replies.ChangedTableReply, walks=True)
class CreateIndex(TableChange, frozen=True, kw_only=True):
    """Begin an index. Every later change of an item updates it; existing items are backfilled."""

    index: Annotated[str, Says(rule=index_name, form=forms.NewIndex)]
    key: Annotated[
        KeyAttribute,
        Says(
            rule=partial(key_attribute, field="index_key"),
            wire="index_key",
            form=forms.IndexDefinition,
            sent=msgspec.structs.asdict,
        ),
    ]


@_write("drop_index", reply=replies.DroppedTableReply, destroys=True, walks=True)
class DropIndex(TableChange, frozen=True, kw_only=True):
    """Drop an index."""

    index: Annotated[str, _INDEX]

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class FillIndex(Command, frozen=True, kw_only=True):
    """Add items that may be missing in an index. With `last`, the index is complete afterwards."""

    table: str
    space: str
    index_id: int
    keys: tuple[bytes, ...]
    last: bool

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.keys) + 1


class Purge(Command, frozen=True, kw_only=True):
    """Remove rows of a dropped space. With `last`, none remain afterwards."""

    space: str
    keys: tuple[bytes, ...]
    last: bool

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.keys) + 1

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class ItemWrite(TableChange, frozen=True, kw_only=True):
    """A change of one item, if it has the expected version and meets the condition."""

    expected: Annotated[
        int | None, Says(rule=rules.version, wire="expected_version", form=ExpectedVersion)
    ] = None
    condition: Annotated[
        Condition | None, Says(rule=condition_of, form=forms.ConditionField, sent=condition_json)
    ] = None
    returns: Annotated[Returns, Says(rule=_returns, wire="return_values", form=forms.ReturnValues)] = "none"


@_write("put_item", help="Put an item.", reply=replies.WrittenItemReply)
class PutItem(ItemWrite, frozen=True, kw_only=True):
    """Store an item, which is JSON text of `size` bytes, replacing any existing one.

    `binary` names the attributes that the caller gave as bytes. Only keys of that type may be bytes.
    """

    item: Annotated[
        str,
        Says(
            rule=_item,
            form=forms.ItemField,
            takes=("binary",),
            fills=("size", "binary"),
            needed=True,
            sent=_raw,
        ),
    ]
    size: int
    binary: Annotated[tuple[str, ...] | UnsetType, Says(form=forms.Binary, sent=list)] = UNSET

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


class KeyedWrite(ItemWrite, frozen=True, kw_only=True):
    """A change of the item with a key."""

    partition_key: Annotated[Any, _PARTITION_KEY]
    sort_key: Annotated[Any, _SORT_KEY] = None


@_write(
    "update_item", help="Change attributes of an item.", reply=replies.WrittenItemReply, rules=(forms.ACTS,)
)
class UpdateItem(KeyedWrite, frozen=True, kw_only=True):
    """Change attributes of an item, which is created if it does not exist."""

    set: Annotated[
        Any,
        Says(rule=_changes, form=forms.SetPaths, takes=("remove", "add"), fills=("remove", "add", "size")),
    ] = None
    remove: Annotated[Any, Says(form=forms.RemovePaths)] = None
    add: Annotated[Any, Says(form=forms.AddPaths)] = None
    size: int = 0

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


@_write("delete_item", reply=replies.DeletedItemReply, destroys=True)
class DeleteItem(KeyedWrite, frozen=True, kw_only=True):
    """Remove an item."""

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


@_write(
    "remove_ttl",
    help="Let an item live for ever.",
    reply=replies.WrittenItemReply,
    without={"ttl": None},
    schema="RemoveItemTtlFields",
)
@_write(
    "set_ttl",
    help="Expire an item after this many seconds.",
    reply=replies.WrittenItemReply,
    schema="SetItemTtlFields",
)
class SetItemTtl(KeyedWrite, frozen=True, kw_only=True):
    """Set the deadline of an item; None removes it."""

    ttl: Annotated[
        int | None,
        Says(rule=partial(rules.required_ttl, field="ttl_seconds"), wire="ttl_seconds", form=forms.ItemTtl),
    ]

    @property
    def declared(self) -> Declaration:
        """The verb of which this is a call: the deadline is set, or it is removed."""
        return VERBS["remove_ttl" if self.ttl is None else "set_ttl"]


@_verb("", reply=None)
class CheckItem(KeyedWrite, frozen=True, kw_only=True):
    """Change nothing: a part of a transaction that only states an expectation."""


class ViewFields(CallFields, kw_only=True):
    """The fields of every call that shows a value to a person."""

    last_writer: Viewer | UnsetType = UNSET


@_verb(
    "reveal_item",
    help="Return an item to a person; an audit records who looked and why.",
    reply=replies.ItemReply,
    options=ViewFields,
    in_order=True,
)
class RevealItem(TableChange, frozen=True, kw_only=True):
    """Read an item for a person who gives a reason, and record that in the audit."""

    partition_key: Annotated[Any, _PARTITION_KEY]
    sort_key: Annotated[Any, _SORT_KEY] = None
    why: Annotated[str | None, Says(rule=rules.why, form=Why)] = None


_PUT: Final = VERBS["put_item"].member("PutMember", help="An item to put.", shared=("table",))
_UPDATE: Final = VERBS["update_item"].member("UpdateMember", help="An item to update.", shared=("table",))
_KEYED: Final = VERBS["delete_item"].member(
    "KeyedMember", help="An item to remove or to check.", shared=("table",)
)
PARTS: Final[Mapping[str, type[ItemWrite]]] = {
    "put": PutItem,
    "delete": DeleteItem,
    "update": UpdateItem,
    "check": CheckItem,
}
"""The writes that others consist of, each by the name that tells it apart."""
_PART_FORMS: Final[Mapping[str, Any]] = {
    "put": Annotated[_PUT | UnsetType, Meta(description="Put an item.")],
    "delete": Annotated[_KEYED | UnsetType, Meta(description="Remove an item.")],
    "update": Annotated[_UPDATE | UnsetType, Meta(description="Change attributes of an item.")],
    "check": Annotated[_KEYED | UnsetType, Meta(description="Only expect something of an item.")],
}


def _one_of(name: str, verb: str, *kinds: str) -> type[Struct]:
    """Return the struct of one of the writes of a verb, for schemas."""
    fields: list[Any] = [(kind, _PART_FORMS[kind], UNSET) for kind in kinds]
    help = f"One of the writes of `{verb}`: exactly one field is set."
    made = msgspec.defstruct(name, fields, namespace={"__doc__": help}, kw_only=True)
    return ruled(one_of(*((kind,) for kind in kinds)), closed=True)(made)


_BATCH_WRITE: Final = _one_of("BatchItemWrite", "batch_write_item", "put", "delete")
_TRANSACT_WRITE: Final = _one_of("TransactItemWrite", "transact_write", "put", "delete", "update", "check")


def _parts(writes: tuple[ItemWrite, ...]) -> list[dict[str, Any]]:
    """Return the fields of several writes."""
    kinds = {kind: name for name, kind in PARTS.items()}
    return [{kinds[type(write)]: write.declared.fields_of(write)} for write in writes]


@_write(
    "transact_write",
    help="Do all of several writes or none.",
    reply=replies.TransactWriteReply,
    destroys=True,
    rules=(forms.TABLES,),
)
class TransactWrite(WriteCommand, frozen=True, kw_only=True):
    """Writes that take effect together if the expectations of all hold; otherwise none does."""

    weighed: ClassVar[bool] = True

    writes: Annotated[
        tuple[PutItem | UpdateItem | DeleteItem | CheckItem, ...],
        Says(
            rule="transaction",
            form=Annotated[
                list[_TRANSACT_WRITE],
                Meta(
                    description="At most 1,000 writes, all or none.",
                    max_length=rules.MAX_BATCH,
                    extra_json_schema=unsaid("two `writes` about the same item"),
                ),
            ],
            takes=(Wire("table", forms.CommonTable),),
            of_origin=True,
            needed=True,
            sent=_parts,
        ),
    ]

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return sum(write.cost for write in self.writes)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.writes)


@_write(
    "batch_write_item",
    help="Put and remove items, each for itself.",
    reply=replies.BatchWriteItemReply,
    destroys=True,
    several="writes",
    rules=(forms.TABLES,),
)
class WriteItems(WriteCommand, frozen=True, kw_only=True):
    """Several writes in one call, each of which succeeds or fails on its own."""

    weighed: ClassVar[bool] = True

    writes: Annotated[
        tuple[PutItem | DeleteItem, ...],
        Says(
            rule="item_writes",
            form=Annotated[
                list[_BATCH_WRITE],
                Meta(description="At most 1,000 writes, each for itself.", max_length=rules.MAX_BATCH),
            ],
            takes=(Wire("table", forms.CommonTable),),
            needed=True,
            sent=_parts,
        ),
    ]

    @property
    def parts(self) -> tuple[PutItem | DeleteItem, ...]:
        """The writes."""
        return self.writes

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return sum(write.cost for write in self.writes)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.writes)


class TableRead(Command, frozen=True, kw_only=True):
    """A call that reads a table or its contents."""

    table: Annotated[str, _TABLE]


@_verb("describe_table", reply=replies.TableReply)
class DescribeTable(TableRead, frozen=True, kw_only=True):
    """Describe a table."""


@_verb("list_tables", reply=replies.TablesReply)
class ListTables(Command, frozen=True, kw_only=True):
    """List the tables of the plugin."""


class ItemRead(TableRead, frozen=True, kw_only=True):
    """A call that reads the item with a key."""

    partition_key: Annotated[Any, _PARTITION_KEY]
    sort_key: Annotated[Any, _SORT_KEY] = None


@_verb("get_item", reply=replies.ItemReply)
class GetItem(ItemRead, frozen=True, kw_only=True):
    """Return an item by its key."""

    projection: Annotated[tuple[Path, ...] | None, _PROJECTION] = None


@_verb("get_ttl", reply=replies.ItemTtlReply, schema="GetItemTtlFields")
class GetItemTtl(ItemRead, frozen=True, kw_only=True):
    """Return the seconds that an item has left."""


@_verb("batch_get_item", reply=replies.ItemsReply, walks=True)
class GetItems(TableRead, frozen=True, kw_only=True):
    """Return items by their keys."""

    keys: Annotated[tuple[tuple[Any, Any], ...], Says(rule="item_keys", form=forms.ItemKeys, sent=_item_keys)]


class Walk(TableRead, frozen=True, kw_only=True):
    """A walk over items, a page at a time."""

    filter: Annotated[
        Condition | None,
        Says(rule=partial(condition_of, field="filter"), form=forms.Filter, sent=condition_json),
    ] = None
    projection: Annotated[tuple[Path, ...] | None, _PROJECTION] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[Any, Says(rule=_as_given, form=Cursor)] = None
    reverse: Annotated[bool, Says(rule=_reverse, form=forms.Reverse, flag=True)] = False


@_verb("query", reply=replies.ItemPageReply, walks=True)
class Query(Walk, frozen=True, kw_only=True):
    """Return items of a partition, in order."""

    partition_key: Annotated[Any, _PARTITION_KEY]
    sort_key_condition: Annotated[Any, Says(rule=_operands, form=forms.SortKeyCondition)] = None


@_verb("scan", reply=replies.ItemPageReply, walks=True)
class ScanItems(Walk, frozen=True, kw_only=True):
    """Return items of a whole table."""


@_verb("query_index", reply=replies.ItemPageReply, walks=True)
class QueryIndex(Walk, frozen=True, kw_only=True):
    """Return items by an indexed value."""

    index: Annotated[str, _INDEX]
    key_value: Annotated[Any, Says(rule=partial(legal_key, field="key_value"), form=forms.IndexedValue)]


@_verb("check_index", reply=replies.CheckIndexReply, walks=True)
class CheckIndex(TableRead, frozen=True, kw_only=True):
    """Compare an index with the items."""

    index: Annotated[str, _INDEX]


@_verb("sweep_expired_ttl", reply=RemovedReply, writes=True, walks=True)
class SweepItems(TableRead, frozen=True, kw_only=True):
    """Remove at most 100 items that have expired."""


@_verb("changes", reply=replies.ItemChangesReply, schema="ItemChangesFields")
class ReadItemChanges(TableRead, frozen=True, kw_only=True):
    """Return changes of items after a version."""

    since: Annotated[int, Says(rule=partial(rules.version, field="since"), form=Since)] = 0
    limit: Annotated[int | None, _LIMIT] = None
    view: Annotated[Stream, Says(rule=partial(stream_view, field="view"), form=forms.ImagesShown)] = "keys"


class ExpireItems(Command, frozen=True, kw_only=True):
    """Expire items that are past their deadline."""

    table: str
    space: str
    keys: tuple[bytes, ...]

    @property
    def rows(self) -> int:
        """Number of rows that this concerns, weighted for index entries and for the size of items."""
        return 4 * len(self.keys)

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class Defined(Result, frozen=True, tag=True):
    """A table after a change; `version` is that of the change."""

    schema: TableSchema
    version: int


class ItemDone(Result, frozen=True, tag=True):
    """The result of a change of an item: its version, and the rows involved.

    `version` is None if nothing was changed. `row` is the item afterwards; `old` is the one before, if the
    command returns it.
    """

    version: int | None
    row: Row | None = None
    old: Row | None = None


class Transacted(Result, frozen=True, tag=True):
    """The results of the writes of a transaction, by position."""

    items: tuple[ItemDone, ...]


class ItemsDone(Result, frozen=True, tag=True):
    """The results of several changes, by position: a result, or the error that refused the change."""

    items: tuple[ItemDone | Exception, ...]
