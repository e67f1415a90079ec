"""Conversion of table calls: Python arguments become JSON fields, and replies become items.

Law: nothing is validated or looked up here. Times in replies are datetimes; each edge formats them in its own
way. An item is passed on as its stored JSON text, and is decoded only when its attributes are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import msgspec

from holdfast.clock import instant, moment
from holdfast.errors import HoldfastError
from holdfast.model import Item, ItemChange, ItemChanges, ItemPage
from holdfast.stored import made, stored_item
from holdfast.tables.commands import DeleteItem
from holdfast.tables.condition_json import condition_json
from holdfast.tables.conditions import Condition
from holdfast.tables.images import Images, key_of_name
from holdfast.tables.keys import json_key
from holdfast.tables.schema import KeyAttribute
from holdfast.tables.updates import plain
from holdfast.verbs.fields import Provenance
from holdfast.wire.items import item_fields, item_of_fields

if TYPE_CHECKING:
    from holdfast.rows import Record, Row
    from holdfast.tables.commands import ItemDone, ItemWrite
    from holdfast.tables.schema import TableSchema

Key: TypeAlias = str | int | float | bytes
KeyDefinition: TypeAlias = tuple[str, str] | Mapping[str, str] | KeyAttribute
Where: TypeAlias = Condition | Mapping[str, Any]
Paths: TypeAlias = Sequence[str | Sequence[str | int]]
Values: TypeAlias = Mapping[str, Any] | Sequence[tuple[Any, Any]]


class Walk(TypedDict, total=False):
    """The options of every walk over items.

    `filter` is the condition that items must meet, and `projection` the paths to show of each. `limit` is 1
    to 10,000, 1,000 if not given. `cursor` continues after the page that returned it. `reverse` begins at the
    end.
    """

    filter: Where | None
    projection: Paths | None
    limit: int | None
    cursor: str | None
    reverse: bool


class Expecting(Provenance, total=False):
    """The options of every write of an item.

    `expected_version` is the version that the item must have, 0 for no item. `condition` is what the existing
    item must meet.
    """

    expected_version: int | None
    condition: Where | None


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the options of a call to fields."""
    spelled = dict(given)
    if "writer" in spelled:
        spelled["last_writer"] = spelled.pop("writer")
    for name in ("condition", "filter"):
        if isinstance(spelled.get(name), Condition):
            spelled[name] = condition_json(spelled[name])
    return spelled


def definition(given: KeyDefinition) -> Any:
    """Convert a key attribute and its type to fields."""
    match given:
        case KeyAttribute(name=name, type=kind) | (name, kind):
            return {"name": name, "type": kind}
        case _:
            return given


def keyed(partition_key: Key, sort_key: Key | None) -> dict[str, Any]:
    """Convert the key of an item to fields."""
    return {"partition_key": json_key(partition_key), "sort_key": json_key(sort_key)}


def key(given: Any) -> dict[str, Any]:
    """Convert a key to fields. It may be given as one value, as a pair, or as the fields of a request."""
    if isinstance(given, Mapping):
        return {name: json_key(part) for name, part in given.items()}
    match given:
        case (partition_key, sort_key):
            return keyed(partition_key, sort_key)
        case _:
            return keyed(given, None)


def sort_condition(given: Mapping[str, Any] | None) -> Any:
    """Convert a condition on a sort key to fields."""
    if not isinstance(given, Mapping):
        return given
    return {
        name: [json_key(member) for member in value] if isinstance(value, (list, tuple)) else json_key(value)
        for name, value in given.items()
    }


def put(given: Any) -> dict[str, Any]:
    """Convert an item to put. The names of key attributes given as bytes are listed beside it."""
    if not isinstance(given, Mapping):
        return {"item": given}
    binary = [name for name, value in given.items() if isinstance(value, bytes)]
    item = {name: json_key(value) for name, value in given.items()}
    return {"item": item, "binary": binary} if binary else {"item": item}


def write(given: Any) -> Any:
    """Convert one of several writes."""
    return {kind: _body(body) for kind, body in given.items()} if isinstance(given, Mapping) else given


def _body(body: Any) -> Any:
    if not isinstance(body, Mapping):
        return body
    spelled = options(body)
    for name in ("partition_key", "sort_key"):
        if name in spelled:
            spelled[name] = json_key(spelled[name])
    for name in ("set", "remove", "add"):
        if name in spelled:
            spelled[name] = plain(spelled[name])
    if "item" in spelled:
        spelled |= put(spelled["item"])
    return spelled


def item_of(answer: Mapping[str, Any]) -> Item:
    """Return the item in a reply that has one."""
    return item_of_fields(answer["item"], answer["version"], answer.get("expires_at"))


def old_item_of(answer: Mapping[str, Any]) -> Item | None:
    """Return the item before a write, from its reply."""
    if answer["item"] is None:
        return None
    return item_of_fields(answer["item"], answer["old_version"], answer.get("old_expires_at"))


def items_of(answer: Mapping[str, Any]) -> list[Item | None]:
    """Return the items in a reply, by position."""
    rows = zip(answer["items"], answer["versions"], answer["expires_at"], strict=True)
    return [None if value is None else item_of_fields(value, version, at) for value, version, at in rows]


def result_of(answer: dict[str, Any] | HoldfastError) -> dict[str, Any] | HoldfastError:
    """Return the outcome of one of several writes."""
    if isinstance(answer, dict) and "item" in answer:
        return answer | {"item": made(answer["item"])}
    return answer


def page_of(answer: Mapping[str, Any]) -> ItemPage:
    """Convert a reply to a page."""
    items = [found for found in items_of(answer) if found is not None]
    return ItemPage(items=items, truncated=answer["truncated"], cursor=answer.get("cursor"))


def changes_of(answer: Mapping[str, Any]) -> ItemChanges:
    """Return the changes in a reply."""
    return ItemChanges(
        changes=[_change(change) for change in answer["changes"]],
        next=answer["next"],
        gap=answer.get("gap", False),
        oldest=answer.get("oldest"),
    )


def _change(change: Mapping[str, Any]) -> ItemChange:
    images = {name: made(change[name]) for name in ("old", "new") if name in change}
    return ItemChange(**dict(change) | images | {"at": instant(change["at"])})


def table_fields(schema: TableSchema) -> dict[str, Any]:
    """Convert a table's definition to the fields of a reply."""
    return {
        "table": schema.name,
        "partition_key": msgspec.structs.asdict(schema.partition_key),
        "sort_key": None if schema.sort_key is None else msgspec.structs.asdict(schema.sort_key),
        "ttl_attribute": schema.ttl_attribute,
        "stream": schema.stream,
        "indexes": [
            {"name": index.name, "key": msgspec.structs.asdict(index.key), "state": index.state}
            for index in schema.indexes
        ],
        "created_at": moment(schema.created_at),
    }


def got_fields(item: Item | None) -> dict[str, Any]:
    """Convert an item, or None, to the fields of the reply to a read."""
    return {"item": None} if item is None else item_fields(item)


def items_fields(items: list[Item | None]) -> dict[str, Any]:
    """Convert several items to fields: values, versions and deadlines, by position."""
    return {
        "items": [None if item is None else item.value for item in items],
        "versions": [None if item is None else item.version for item in items],
        "expires_at": [None if item is None else item.expires_at for item in items],
        "count": len(items),
    }


def page_fields(page: ItemPage) -> dict[str, Any]:
    """Convert a page to the fields of a reply."""
    return items_fields(list(page.items)) | {"truncated": page.truncated, "cursor": page.cursor}


def change_fields(record: Record, view: str) -> dict[str, Any]:
    """Convert a change of an item to fields, with the images of the view."""
    table, key = record.key.partition(":")[0], key_of_name(record.key)
    fields: dict[str, Any] = {
        "op": record.op,
        "table": table,
        "partition_key": key[0],
        "version": record.version,
        "at": moment(record.at),
        "last_writer": record.last_writer,
        "request_id": record.request_id,
    }
    if len(key) > 1:
        fields["sort_key"] = key[1]
    if record.op == "expired":
        fields |= {"lag_ms": record.lag_ms, "expired_version": record.expired_version}
    if view == "keys":
        return fields
    images = Images() if record.detail is None else msgspec.json.decode(record.detail, type=Images)
    if view in ("old", "both"):
        fields["old"] = images.old
    if view in ("new", "both"):
        fields["new"] = images.new
    return fields


def written_fields(write: ItemWrite, done: ItemDone) -> dict[str, Any]:
    """Convert the outcome of a write to fields, with the item that it returns."""
    returns = write.returns
    if isinstance(write, DeleteItem):
        gone = {} if done.version is None else {"version": done.version}
        return {"deleted": bool(gone), **gone} | (_old(done.old) if returns == "old" else {})
    answer: dict[str, Any] = {"version": done.version}
    if done.row is not None:
        answer["expires_at"] = None if done.row.expires_at is None else moment(done.row.expires_at)
    if returns == "new":
        answer["item"] = None if done.row is None else stored_item(done.row).value
    return answer | (_old(done.old) if returns == "old" else {})


def _old(row: Row | None) -> dict[str, Any]:
    """Convert the item before a write to fields, with its version and deadline."""
    if row is None:
        return {"item": None}
    old = stored_item(row)
    return {"item": old.value, "old_version": old.version, "old_expires_at": old.expires_at}
