"""The verbs on tables, which every door answers for the items of a plugin.

An `answer` takes the tables of a plugin and the fields of a call.

Law: as in `holdfast.edges.calls.keys`. Only `holdfast.handles.table_calls` knows what a verb means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from holdfast.edges.calls import table_fields as of
from holdfast.edges.calls import table_replies as to
from holdfast.edges.calls.catalogue import Verb, catalogue
from holdfast.edges.calls.keys import stats_and_policy
from holdfast.edges.calls.operator_fields import RemovedReply
from holdfast.errors import HoldfastError
from holdfast.forms import CallFields
from holdfast.replies import StatsReply
from holdfast.verbs.tables import WRITES
from holdfast.wire.errors import error_fields

if TYPE_CHECKING:
    import msgspec

    from holdfast.store import Store

TableCall: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class PluginTables(NamedTuple):
    """The tables of a plugin: their store, their namespace, and the function that answers calls on them."""

    store: Store
    namespace: str
    call: TableCall


async def _answer(verb: str, tables: PluginTables, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a call. Each of several writes has its own reply, a success or an error."""
    answer = await tables.call(verb, fields)
    if "results" in answer:
        return {"results": [_result(result) for result in answer["results"]]}
    return answer


def _result(result: dict[str, Any] | HoldfastError) -> dict[str, Any]:
    if isinstance(result, HoldfastError):
        return {"success": False, **error_fields(result)}
    return {"success": True, **result}


async def _stats(tables: PluginTables, fields: Mapping[str, Any]) -> dict[str, Any]:
    return await stats_and_policy(tables.store.pipeline, tables.namespace)


def _verb(
    name: str,
    help: str,
    fields: type[msgspec.Struct],
    reply: type[msgspec.Struct],
    *,
    writes: bool = False,
    destroys: bool = False,
    walks: bool = False,
) -> Verb:
    return Verb(
        name=name,
        help=help,
        fields=fields,
        reply=reply,
        answer=partial(_answer, name),
        writes=writes or name in WRITES,
        destroys=destroys,
        in_order=name in WRITES,
        walks=walks,
    )


VERBS: Final = catalogue(
    _verb("create_table", "Make a table.", of.CreateTableFields, to.ChangedTableReply),
    _verb(
        "drop_table",
        "Drop a table with its items.",
        of.TableWriteFields,
        to.DroppedTableReply,
        destroys=True,
        walks=True,
    ),
    _verb("describe_table", "Describe a table.", of.TableCallFields, to.TableReply),
    _verb("list_tables", "List the tables of the plugin.", CallFields, to.TablesReply),
    _verb("put_item", "Put an item.", of.PutItemFields, to.WrittenItemReply),
    _verb("get_item", "Return an item by its key.", of.GetItemFields, to.ItemReply),
    _verb(
        "reveal_item",
        "Return an item to a person; an audit records who looked and why.",
        of.RevealItemFields,
        to.ItemReply,
    ),
    _verb("update_item", "Change attributes of an item.", of.UpdateItemFields, to.WrittenItemReply),
    _verb("delete_item", "Remove an item.", of.ItemWriteFields, to.DeletedItemReply, destroys=True),
    _verb("query", "Return items of a partition, in order.", of.QueryFields, to.ItemPageReply, walks=True),
    _verb("scan", "Return items of a whole table.", of.WalkFields, to.ItemPageReply, walks=True),
    _verb(
        "create_index", "Make an index and fill it.", of.CreateIndexFields, to.ChangedTableReply, walks=True
    ),
    _verb(
        "drop_index", "Drop an index.", of.DropIndexFields, to.DroppedTableReply, destroys=True, walks=True
    ),
    _verb(
        "query_index", "Return items by an indexed value.", of.QueryIndexFields, to.ItemPageReply, walks=True
    ),
    _verb(
        "check_index", "Compare an index with the items.", of.CheckIndexFields, to.CheckIndexReply, walks=True
    ),
    _verb("batch_get_item", "Return items by their keys.", of.BatchGetItemFields, to.ItemsReply, walks=True),
    _verb(
        "batch_write_item",
        "Put and remove items, each for itself.",
        of.BatchWriteItemFields,
        to.BatchWriteItemReply,
        destroys=True,
    ),
    _verb(
        "transact_write",
        "Do all of several writes or none.",
        of.TransactWriteFields,
        to.TransactWriteReply,
        destroys=True,
    ),
    _verb("set_ttl", "Expire an item after this many seconds.", of.SetItemTtlFields, to.WrittenItemReply),
    _verb("remove_ttl", "Let an item live for ever.", of.ItemWriteFields, to.WrittenItemReply),
    _verb("get_ttl", "Return the seconds that an item has left.", of.ItemKeyFields, to.ItemTtlReply),
    _verb(
        "sweep_expired_ttl",
        "Remove at most 100 items that have expired.",
        of.TableCallFields,
        RemovedReply,
        writes=True,
        walks=True,
    ),
    _verb("changes", "Return changes of items after a version.", of.ItemChangesFields, to.ItemChangesReply),
    Verb(
        name="stats",
        help="Return what all tables of the plugin hold, their policy and default limits.",
        fields=CallFields,
        reply=StatsReply,
        answer=_stats,
    ),
)
"""The verbs on tables."""
