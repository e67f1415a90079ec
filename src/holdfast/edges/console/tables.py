"""The tables of a plugin, the items of a table, and one item.

Law: as in `holdfast.edges.console.pages`. A list of items shows their keys, and of other attributes only
name, type and size. One item is shown whole after a reveal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.console.item_history import item_history
from holdfast.edges.console.owners import held, owner_of, reveal_of
from holdfast.errors import HoldfastError, KeyNotFound, MissingField, ValidationError
from holdfast.wire.payload import decode

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit

MOST_TABLES: Final = 200
"""Number of tables that are described."""
MOST_ITEMS: Final = 100
MOST_NUMBER: Final = 40
"""Number of characters of a key that is a number."""
_KINDS: Final = {str: "text", bool: "switch", int: "number", float: "number", list: "list", dict: "object"}


async def table_plugins(visit: Visit) -> dict[str, Any]:
    """Return the plugins that have tables."""
    found = await held(visit, "table")
    shown = ("keys", "kept_bytes", "changed_at")
    return {
        "plugins": [
            {"plugin": owner_of(one["namespace"]), **{name: one[name] for name in shown}}
            for one in found
            if visit.fits(owner_of(one["namespace"]))
        ],
        "filter": visit.filter,
    }


async def tables(visit: Visit) -> dict[str, Any]:
    """Return the tables of a plugin, described."""
    plugin = visit.path["plugin"]
    listed = (await visit.call("table", plugin, "list_tables"))["tables"]
    names = [name for name in listed if visit.fits(name)]
    described = [
        await visit.call("table", plugin, "describe_table", table=name) for name in names[:MOST_TABLES]
    ]
    more = len(names) > MOST_TABLES
    return {"plugin": plugin, "tables": described, "more": more, "filter": visit.filter}


async def table(visit: Visit) -> dict[str, Any]:
    """Return items of a table: all, those of a partition, or those that an index finds."""
    plugin, name = visit.path["plugin"], visit.path["table"]
    about = await visit.call("table", plugin, "describe_table", table=name)
    asked = {
        one: visit.query[one] for one in ("partition", "index", "value", "filter") if visit.query.get(one)
    }
    shown = {"plugin": plugin, "table": about, "asked": asked}
    walk = _walk(about, asked)
    if walk is None:
        return shown | {"items": [], "cursor": None}
    verb, fields = walk
    page = await visit.call(
        "table",
        plugin,
        verb,
        **fields,
        table=name,
        filter=_condition(asked.get("filter")),
        limit=visit.number("limit", default=MOST_ITEMS, most=MOST_ITEMS),
        cursor=visit.query.get("cursor") or None,
    )
    rows = zip(page["items"], page["versions"], page["expires_at"], strict=True)
    return shown | {"items": [_masked(about, *row) for row in rows], "cursor": page["cursor"]}


async def item(visit: Visit) -> dict[str, Any]:
    """Return one item: its attributes masked, or all of it after a reveal."""
    plugin, name = visit.path["plugin"], visit.path["table"]
    about = await visit.call("table", plugin, "describe_table", table=name)
    key = _key(about, visit)
    revealed = visit.query.get("reveal") == "1"
    why = visit.query.get("why") or None
    verb = "reveal_item" if revealed else "get_item"
    found = await visit.call("table", plugin, verb, table=name, **key, why=why if revealed else None)
    if found["item"] is None:
        raise KeyNotFound("there is no such item", field="partition")
    shown = _masked(about, found["item"], found["version"], found["expires_at"])
    if revealed:
        # A script that decoded the item and wrote it out would round long numbers.
        pretty = msgspec.json.format(msgspec.json.encode(found["item"]), indent=2)
        shown |= {"value": found["item"], "text": pretty.decode()}
    history = await item_history(visit, plugin, about, key, version=found["version"], values=revealed)
    reveal = await reveal_of(visit, "table", plugin)
    return {
        "plugin": plugin,
        "table": about,
        "key": key,
        "item": shown,
        "history": history,
        "reveal": reveal,
        "revealed": revealed,
    }


def _walk(about: dict[str, Any], asked: dict[str, str]) -> tuple[str, dict[str, Any]] | None:
    """Return the verb that finds the items asked for, and its fields; None for an index without a value."""
    if "index" in asked:
        index = next((one for one in about["indexes"] if one["name"] == asked["index"]), None)
        if index is None:
            raise ValidationError("the table has no such index", field="index")
        if "value" not in asked:
            return None
        return "query_index", {"index": index["name"], "key_value": _typed(index["key"], asked["value"])}
    if "partition" in asked:
        return "query", {"partition_key": _typed(about["partition_key"], asked["partition"])}
    return "scan", {}


def _key(about: dict[str, Any], visit: Visit) -> dict[str, Any]:
    """Return the key of the item asked for."""
    if "partition" not in visit.query:
        raise MissingField("give the item's key, as partition and sort", field="partition")
    key = {"partition_key": _typed(about["partition_key"], visit.query["partition"])}
    if about["sort_key"] is not None:
        key["sort_key"] = _typed(about["sort_key"], visit.query.get("sort", ""))
    return key


def _typed(attribute: dict[str, Any], text: str) -> str | int | float:
    """Return a key as the type of its attribute. A binary stays in base64."""
    if attribute["type"] != "number":
        return text
    try:
        found = msgspec.json.decode(text[:MOST_NUMBER])
    except msgspec.DecodeError:
        found = None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValidationError(f"{attribute['name']} is a number", field=attribute["name"])
    return found


def _condition(text: str | None) -> Any:
    if text is None:
        return None
    try:
        found = decode(text.encode())
    except HoldfastError:
        found = None
    if not isinstance(found, dict):
        example = '{"score": {"gt": 10}}'
        raise ValidationError(f"filter must be a condition as JSON, such as {example}", field="filter")
    return found


def _masked(
    about: dict[str, Any], found: dict[str, Any], version: int, expires_at: str | None
) -> dict[str, Any]:
    """Return an item with its key, and of every other attribute its type and size."""
    names = [about[key]["name"] for key in ("partition_key", "sort_key") if about[key] is not None]
    return {
        "key": {name: found.get(name) for name in names},
        "attributes": {
            name: {"kind": _KINDS.get(type(said), "null"), "bytes": len(msgspec.json.encode(said))}
            for name, said in found.items()
            if name not in names
        },
        "version": version,
        "expires_at": expires_at,
    }
