"""How answers about tables are put: fields under the names of the plugin dialect.

Law: times are datetimes; each door spells them its own way. Nothing is looked up. An item is passed on as the
JSON text that is stored, and only who needs its attributes makes them of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.clock import moment
from holdfast.model import Item
from holdfast.stored import stored_item
from holdfast.tables.commands import DeleteItem
from holdfast.tables.images import Images, key_of_name

if TYPE_CHECKING:
    from holdfast.model import ItemPage
    from holdfast.rows import Record, Row
    from holdfast.tables.commands import ItemChange as ItemWrite
    from holdfast.tables.commands import ItemDone
    from holdfast.tables.schema import TableSchema


def table_fields(schema: TableSchema) -> dict[str, Any]:
    """A table as an answer describes it."""
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


def item_fields(item: Item | None) -> dict[str, Any]:
    """An item as an answer shows it."""
    if item is None:
        return {"item": None}
    return {"item": item.value, "version": item.version, "expires_at": item.expires_at}


def items_fields(items: list[Item | None]) -> dict[str, Any]:
    """Several items by position, and beside them their versions and deadlines."""
    return {
        "items": [None if item is None else item.value for item in items],
        "versions": [None if item is None else item.version for item in items],
        "expires_at": [None if item is None else item.expires_at for item in items],
        "count": len(items),
    }


def page_fields(page: ItemPage) -> dict[str, Any]:
    """A page as an answer shows it."""
    return items_fields(list(page.items)) | {"truncated": page.truncated, "cursor": page.cursor}


def change_fields(record: Record, view: str) -> dict[str, Any]:
    """A change of an item, with the images that a view has."""
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
    """What became of a write, with the item that it returns."""
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
    """The item before a write, with the version and the deadline that it had."""
    if row is None:
        return {"item": None}
    old = stored_item(row)
    return {"item": old.value, "old_version": old.version, "old_expires_at": old.expires_at}
