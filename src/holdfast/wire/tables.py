"""Replies to calls on tables: how a service shows the result of a command, and how a client reads it.

An item is passed on as its stored JSON text. It is decoded only where its attributes are needed. Times in
replies are datetimes; each door formats them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.clock import instant, milliseconds, moment
from holdfast.commands import Command, WriteCommand
from holdfast.errors import HoldfastError
from holdfast.model import Item, ItemPage
from holdfast.origin import origin_fields
from holdfast.rows import Record, Row
from holdfast.stored import stored_item
from holdfast.tables import replies
from holdfast.tables.commands import DeleteItem, GetItem, ItemDone, ItemWrite, RevealItem
from holdfast.tables.items import Images, key_of_name
from holdfast.tables.schema import TableSchema
from holdfast.wire.errors import error_fields, error_of
from holdfast.wire.replies import item_fields, item_of_fields


class Codec(msgspec.Struct, frozen=True):
    """How a reply is made and read.

    Args:
        show: Takes a command and its result, and returns the fields of the reply.
        read: Takes a command and the fields of its reply, and returns the result.
    """

    show: Callable[[Any, Any], dict[str, Any]]
    read: Callable[[Any, dict[str, Any]], Any]


def message_of(command: Command) -> dict[str, Any]:
    """Return the fields of the message that says what a command says."""
    fields = command.declared.fields_of(command)
    return fields | origin_fields(command.origin) if isinstance(command, WriteCommand) else fields


def shown(command: Command, result: Any) -> dict[str, Any]:
    """Return the fields of the reply to a command."""
    return CODECS.get(command.declared.reply, _PLAIN).show(command, result)


def result_of(command: Command, reply: Mapping[str, Any]) -> Any:
    """Return the result in a successful reply to a command."""
    fields = dict(reply)
    del fields["success"]
    return CODECS.get(command.declared.reply, _PLAIN).read(command, fields)


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
        return {"deleted": bool(gone), **gone} | (_old_fields(done.old) if returns == "old" else {})
    fields: dict[str, Any] = {"version": done.version}
    if done.row is not None:
        fields["expires_at"] = None if done.row.expires_at is None else moment(done.row.expires_at)
    if returns == "new":
        fields["item"] = None if done.row is None else stored_item(done.row).value
    return fields | (_old_fields(done.old) if returns == "old" else {})


def _old_fields(row: Row | None) -> dict[str, Any]:
    """Convert the item before a write to fields, with its version and deadline."""
    if row is None:
        return {"item": None}
    old = stored_item(row)
    return {"item": old.value, "old_version": old.version, "old_expires_at": old.expires_at}


def _read_written(command: ItemWrite, reply: Mapping[str, Any]) -> ItemDone:
    version = reply.get("version")
    if command.returns == "old":
        old = _row(reply["item"], reply.get("old_version", 0), reply.get("old_expires_at"))
        return ItemDone(version=version, old=old)
    if command.returns == "new":
        return ItemDone(version=version, row=_row(reply["item"], version or 0, reply.get("expires_at")))
    return ItemDone(version=version)


def _row(item: Any, version: int, expires_at: str | None) -> Row | None:
    """Rebuild as much of an item's row as a reply has."""
    if item is None:
        return None
    text = msgspec.json.encode(item).decode()
    return Row(
        value=text,
        size=len(text),
        version=version,
        created_at=0,
        updated_at=0,
        expires_at=None if expires_at is None else milliseconds(instant(expires_at)),
    )


def _show_item(command: GetItem | RevealItem, found: Row | Item | None) -> dict[str, Any]:
    if found is None:
        return {"item": None}
    return item_fields(stored_item(found) if isinstance(found, Row) else found)


def _read_item(command: GetItem | RevealItem, reply: Mapping[str, Any]) -> Item | None:
    if reply["item"] is None:
        return None
    return item_of_fields(reply["item"], reply["version"], reply.get("expires_at"))


def _show_items(command: Command, items: Sequence[Item | None]) -> dict[str, Any]:
    """Convert several items to fields: values, versions and deadlines, by position."""
    return {
        "items": [None if item is None else item.value for item in items],
        "versions": [None if item is None else item.version for item in items],
        "expires_at": [None if item is None else item.expires_at for item in items],
        "count": len(items),
    }


def _read_items(command: Command, reply: Mapping[str, Any]) -> list[Item | None]:
    rows = zip(reply["items"], reply["versions"], reply["expires_at"], strict=True)
    return [None if value is None else item_of_fields(value, version, at) for value, version, at in rows]


def _show_page(command: Command, page: ItemPage) -> dict[str, Any]:
    return _show_items(command, page.items) | {"truncated": page.truncated, "cursor": page.cursor}


def _read_page(command: Command, reply: Mapping[str, Any]) -> ItemPage:
    items = [item for item in _read_items(command, reply) if item is not None]
    return ItemPage(items=items, truncated=reply["truncated"], cursor=reply.get("cursor"))


def _show_results(command: Command, results: Sequence[dict[str, Any] | HoldfastError]) -> dict[str, Any]:
    return {
        "results": [
            {"success": False, **error_fields(result)}
            if isinstance(result, HoldfastError)
            else {"success": True, **result}
            for result in results
        ]
    }


def _read_results(command: Command, reply: Mapping[str, Any]) -> list[dict[str, Any] | HoldfastError]:
    return [
        {name: field for name, field in result.items() if name != "success"}
        if result["success"]
        else error_of(result)
        for result in reply["results"]
    ]


_WRITTEN: Final = Codec(written_fields, _read_written)
_PLAIN: Final = Codec(lambda command, result: result, lambda command, reply: reply)
"""That of results which are the fields of their reply."""
CODECS: Final[Mapping[Any, Codec]] = {
    replies.WrittenItemReply: _WRITTEN,
    replies.DeletedItemReply: _WRITTEN,
    replies.ItemReply: Codec(_show_item, _read_item),
    replies.ItemsReply: Codec(_show_items, _read_items),
    replies.ItemPageReply: Codec(_show_page, _read_page),
    replies.BatchWriteItemReply: Codec(_show_results, _read_results),
}
"""How replies are made and read that have items or several results."""
