"""The pages of tables: the plugins that have some, the tables of one, items, and one item with its history.

Where the policy of the namespace is `open`, items are shown as they are. Elsewhere they are shown by their
keys, and other attributes by type and size; one item, and what its changes changed, is shown whole after a
reveal. The journal has no index by item, so a bounded part of it is looked through.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import families
from holdfast.edges.console.overview import head_of
from holdfast.edges.console.visits import Visit, beginning, permitted
from holdfast.errors import HoldfastError, KeyNotFound, MissingField, ValidationError
from holdfast.wire.payload import decode

MOST_TABLES: Final = 200
"""Number of tables that are described."""
MOST_ITEMS: Final = 100
MOST_TEXT: Final = 80
"""Number of bytes of an attribute that a list shows."""
MOST_NUMBER: Final = 40
"""Number of characters of a key that is a number."""
SPAN: Final = 2_000
"""Number of changes of all tables of the plugin, up to the item's last one, that are looked through."""
MOST_CALLS: Final = 8
"""Number of pages of changes that are read for that."""
MOST_CHANGES: Final = 20
"""Number of changes that are shown."""
WITH_IMAGES: Final = 10
"""Number of them that are shown with what they changed."""
_OF_CHANGES: Final = ("op", "version", "at", "last_writer", "request_id")
_KINDS: Final = {str: "text", bool: "switch", int: "number", float: "number", list: "list", dict: "object"}


async def tables(visit: Visit) -> dict[str, Any]:
    """Return the tables of a plugin, described."""
    plugin = visit.path["plugin"]
    listed = (await visit.call("table", plugin, "list_tables"))["tables"]
    names = [name for name in listed if visit.fits(name)]
    described = [
        await visit.call("table", plugin, "describe_table", table=name) for name in names[:MOST_TABLES]
    ]
    more = len(names) > MOST_TABLES
    return {
        "plugin": plugin,
        "tables": described,
        "more": more,
        "filter": visit.filter,
        "head": await head_of(visit, "table", plugin),
        "may": visit.allowed_verbs("table", plugin),
    }


async def table(visit: Visit) -> dict[str, Any]:
    """Return items of a table: all, those of a partition, or those that an index finds."""
    plugin, name = visit.path["plugin"], visit.path["table"]
    about = await visit.call("table", plugin, "describe_table", table=name)
    filters = {
        one: visit.query[one] for one in ("partition", "index", "value", "filter") if visit.query.get(one)
    }
    reveal = await visit.reveal_of(families.tables(plugin))
    values = visit.shows(reveal, "table", plugin, "reveal_item")
    may = visit.allowed_verbs("table", plugin)
    view = {"plugin": plugin, "table": about, "asked": filters, "may": may, **reveal, "revealed": values}
    search = _search(about, filters)
    if search is None:
        return view | {"items": [], "cursor": None}
    verb, fields = search
    page = await visit.call(
        "table",
        plugin,
        verb,
        **fields,
        table=name,
        filter=_condition(filters.get("filter")),
        limit=visit.number("limit", default=MOST_ITEMS, most=MOST_ITEMS),
        cursor=visit.query.get("cursor") or None,
    )
    rows = zip(page["items"], page["versions"], page["expires_at"], strict=True)
    return view | {"items": [_shown(about, *row, values=values) for row in rows], "cursor": page["cursor"]}


async def item(visit: Visit) -> dict[str, Any]:
    """Return one item: all of it after a reveal or where the policy is `open`, else its attributes masked."""
    plugin, name = visit.path["plugin"], visit.path["table"]
    about = await visit.call("table", plugin, "describe_table", table=name)
    key = _key(about, visit)
    reveals = visit.query.get("reveal") == "1"
    why = visit.query.get("why") or None
    reveal = await visit.reveal_of(families.tables(plugin))
    verb = "reveal_item" if reveals else "get_item"
    stored = await visit.call("table", plugin, verb, table=name, **key, why=why if reveals else None)
    if stored["item"] is None:
        raise KeyNotFound("there is no such item", field="partition")
    revealed = reveals or visit.shows(reveal, "table", plugin, "reveal_item")
    view = _shown(about, stored["item"], stored["version"], stored["expires_at"], values=False)
    view["size"] = len(msgspec.json.encode(stored["item"]))
    if revealed:
        view |= {"value": stored["item"], "text": _text(stored["item"])}
    history = await _history(visit, plugin, about, key, version=stored["version"], values=revealed)
    return {
        "plugin": plugin,
        "table": about,
        "key": key,
        "item": view,
        "history": history,
        "may": visit.allowed_verbs("table", plugin),
        **reveal,
        "revealed": revealed,
    }


def _search(about: dict[str, Any], filters: dict[str, str]) -> tuple[str, dict[str, Any]] | None:
    """Return the verb that finds the items and its fields; None for an index without a value."""
    if "index" in filters:
        index = next((one for one in about["indexes"] if one["name"] == filters["index"]), None)
        if index is None:
            raise ValidationError("the table has no such index", field="index")
        if "value" not in filters:
            return None
        return "query_index", {"index": index["name"], "key_value": _typed(index["key"], filters["value"])}
    if "partition" in filters:
        return "query", {"partition_key": _typed(about["partition_key"], filters["partition"])}
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
        number = msgspec.json.decode(text[:MOST_NUMBER])
    except msgspec.DecodeError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValidationError(f"{attribute['name']} must be a number", field=attribute["name"])
    return number


def _condition(text: str | None) -> Any:
    if text is None:
        return None
    try:
        condition = decode(text.encode())
    except HoldfastError:
        condition = None
    if not isinstance(condition, dict):
        example = '{"score": {"gt": 10}}'
        raise ValidationError(f"filter must be a condition as JSON, such as {example}", field="filter")
    return condition


def _shown(
    about: dict[str, Any], item: dict[str, Any], version: int, expires_at: str | None, *, values: bool
) -> dict[str, Any]:
    """Return an item: its key, the type and size of its other attributes and, with `values`, their text."""
    names = [about[key]["name"] for key in ("partition_key", "sort_key") if about[key] is not None]
    return {
        "key": {name: item.get(name) for name in names},
        "attributes": {
            name: {"kind": _KINDS.get(type(attribute), "null"), "bytes": len(text)}
            | ({"text": beginning(text, MOST_TEXT)} if values else {})
            for name, attribute in item.items()
            if name not in names
            for text in [msgspec.json.encode(attribute)]
        },
        "version": version,
        "expires_at": expires_at,
    }


async def _history(
    visit: Visit, plugin: str, about: dict[str, Any], key: dict[str, Any], *, version: int, values: bool
) -> list[dict[str, Any]] | None:
    """Return the latest changes of an item, newest first; None if the visitor may not see them.

    With `values`, each has the item before and after it, if the table's stream keeps that.
    """
    changes = await _changes(visit, plugin, about["table"], key, version)
    if changes is None:
        return None
    newest = changes[::-1][:MOST_CHANGES]
    views: list[dict[str, Any]] = [{name: one.get(name) for name in _OF_CHANGES} for one in newest]
    if values and about["stream"] != "keys":
        for one in views[:WITH_IMAGES]:
            one.update(await _images(visit, plugin, about, one["version"]))
    return views


async def _changes(
    visit: Visit, plugin: str, table: str, key: dict[str, Any], version: int
) -> list[dict[str, Any]] | None:
    """Return the changes of an item among the last ones of its table, oldest first."""
    changes: list[dict[str, Any]] = []
    since = max(0, version - SPAN)
    for _ in range(MOST_CALLS):
        page = await permitted(visit.call("table", plugin, "changes", table=table, since=since, limit=SPAN))
        if page is None:
            return None
        changes += [
            one for one in page["changes"] if all(one.get(name) == part for name, part in key.items())
        ]
        if not page["changes"] or page["next"] >= version:
            break
        since = page["next"]
    return changes


async def _images(visit: Visit, plugin: str, about: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the item before and after a change, as text, as far as the journal keeps them."""
    page = await visit.call(
        "table",
        plugin,
        "changes",
        table=about["table"],
        since=version - 1,
        limit=1,
        view=about["stream"],
    )
    change: dict[str, Any] = next((one for one in page["changes"] if one["version"] == version), {})
    return {name: _text(change[name]) for name in ("old", "new") if name in change}


def _text(item: dict[str, Any] | None) -> str | None:
    """Return an item on several lines. A script that decoded it would round long numbers."""
    return None if item is None else msgspec.json.format(msgspec.json.encode(item), indent=2).decode()
