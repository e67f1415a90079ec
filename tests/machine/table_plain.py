"""How the oracle's calls about tables are made of a store, and its answers in the oracle's form.

Everything that a caller can see of an answer is kept, but for request ids that a store makes up.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConditionFailed, HoldfastError, VersionConflict
from holdfast.model import Item, ItemChange
from tests.machine.table_items import INDEXES, KEYS, TTL, Plain, text_of

if TYPE_CHECKING:
    from holdfast.handles.tables import Tables
    from holdfast.model import ItemPage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def ask(tables: Tables, verb: str, given: Plain) -> Any:
    """Make a call of the oracle at a store."""
    try:
        return plain(await _CALLS.get(verb, _by_key)(tables, verb, given))
    except HoldfastError as error:
        return plain(error)


def plain(answer: Any) -> Any:
    """An answer as the oracle would give it."""
    match answer:
        case Item():
            value, end = text_of(answer.value), _ms(answer.expires_at)
            return {"value": value, "version": answer.version, "expires_at": end}
        case ItemChange():
            return _change(answer)
        case VersionConflict():
            return _error(answer) | {"item": plain(answer.item), "reason": answer.reason}
        case ConditionFailed():
            conflicts = [
                {"position": one.position, "current": plain(one.current)} for one in answer.conflicts
            ]
            return _error(answer) | {"current": plain(answer.current), "conflicts": conflicts}
        case HoldfastError():
            return _error(answer)
        case list():
            return [plain(member) for member in answer]
        case _:
            return answer


def _error(error: HoldfastError) -> Plain:
    return {"error": type(error).__name__, "field": error.field}


def _change(change: ItemChange) -> Plain:
    key = [change.partition_key, change.sort_key][: len(KEYS[change.table])]
    return {
        "op": change.op,
        "table": change.table,
        "key": text_of(key),
        "version": change.version,
        "at": _ms(change.at),
        "old": None if change.old is None else text_of(change.old),
        "new": None if change.new is None else text_of(change.new),
        "lag_ms": change.lag_ms,
        "expired_version": change.expired_version,
    }


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round((at - _EPOCH).total_seconds() * 1000)


def _expecting(given: Plain) -> Plain:
    names = {"expected": "expected_version", "condition": "condition", "request_id": "request_id"}
    return {names[name]: value for name, value in given.items() if name in names and value is not None}


def _sort(key: list[Any]) -> Any:
    return key[1] if len(key) > 1 else None


async def _by_key(tables: Tables, verb: str, given: Plain) -> Any:
    table, key = given["table"], [given["key"][0], _sort(given["key"])] if "key" in given else []
    how = _expecting(given)
    if "returns" in given:
        how["return_values"] = given["returns"]
    match verb:
        case "put":
            return await tables.put_item(table, given["item"], **how)
        case "update":
            return await tables.update_item(table, key[0], key[1], **given["changes"], **how)
        case "delete":
            return await tables.delete_item(table, *key, **how)
        case "get":
            return await tables.get_item(table, *key)
        case "set_ttl":
            return await tables.set_ttl(table, key[0], key[1], given["ttl"])
        case _:
            return await getattr(tables, verb)(table, *key)


async def _create_table(tables: Tables, verb: str, given: Plain) -> None:
    names = KEYS[given["table"]]
    await tables.create_table(
        given["table"],
        partition_key=(names[0], "string"),
        sort_key=(names[1], "number") if len(names) > 1 else None,
        ttl_attribute=TTL[given["table"]],
    )


async def _create_index(tables: Tables, verb: str, given: Plain) -> None:
    name, kind = INDEXES[given["index"]]
    await tables.create_index(
        given["table"], given["index"], key=(name, "string" if kind is str else "number")
    )


async def _on_index(tables: Tables, verb: str, given: Plain) -> Any:
    return await getattr(tables, verb)(given["table"], given["index"])


async def _list_tables(tables: Tables, verb: str, given: Plain) -> list[str]:
    return await tables.list_tables()


async def _sweep(tables: Tables, verb: str, given: Plain) -> int:
    return await tables.sweep_expired_ttl(given["table"])


async def _changes(tables: Tables, verb: str, given: Plain) -> Any:
    found = await tables.changes(given["table"], limit=10_000, view="both")
    return found.changes


async def _transact(tables: Tables, verb: str, given: Plain) -> Any:
    return await tables.transact_write([{kind: _write(body)} for kind, body in given["writes"]])


async def _batch(tables: Tables, verb: str, given: Plain) -> Any:
    writes = [{kind: _write(body)} for kind, body in given["writes"]]
    results = await tables.batch_write_item(given["table"], writes)
    return [one if isinstance(one, HoldfastError) else one.get("version") for one in results]


def _write(body: Plain) -> Plain:
    made = _expecting(body) | {name: body[name] for name in ("table", "item") if name in body}
    if "key" in body:
        made |= {"partition_key": body["key"][0], "sort_key": _sort(body["key"])}
    changes: Plain = body.get("changes", {})
    return made | changes


async def _walk(tables: Tables, verb: str, given: Plain) -> Any:
    """All pages of a walk, of at most `limit` items each."""
    found: list[Any] = []
    cursor = None
    while True:
        page = await _page(tables, given, cursor)
        assert len(page.items) <= given["limit"]
        assert page.truncated is (page.cursor is not None)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def _page(tables: Tables, given: Plain, cursor: str | None) -> ItemPage:
    how: Plain = {
        "filter": given.get("where"),
        "limit": given["limit"],
        "reverse": given.get("reverse", False),
        "cursor": cursor,
    }
    if given.get("index") is not None:
        return await tables.query_index(given["table"], given["index"], given["value"], **how)
    if given.get("pk") is not None:
        return await tables.query(given["table"], given["pk"], sk=given.get("sk"), **how)
    return await tables.scan(given["table"], **how)


_CALLS: dict[str, Any] = {
    "create_table": _create_table,
    "create_index": _create_index,
    "drop_index": _on_index,
    "check_index": _on_index,
    "list_tables": _list_tables,
    "sweep": _sweep,
    "changes": _changes,
    "transact": _transact,
    "batch": _batch,
    "walk": _walk,
}
