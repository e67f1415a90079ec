"""Requests with a lone surrogate in one place each, made from requests that are answered with success.

Every verb of keys, tables and operators is here, with every field that it looks at. A lone surrogate is
half of a character: JSON can spell it, UTF-8 can't, and so nothing that holds one can be kept or told.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

LONE: Final = "a\ud800"
_ALONE: Final = frozenset({"fence", "request_id", "cursor"})
"""Fields that would have a request refused for another reason: they are there only to be spoilt."""
_FIELDS: Final = frozenset(
    {"semantics", "request", "partition_key", "sort_key", "index_key", "put", "update", "delete", "check"}
)
"""Objects that hold fields, of which unknown ones are ignored."""

_SAID: Final = {
    "last_writer": "bot:1",
    "request_id": "r",
    "spec_ref": "s",
    "fence": {"lock": "l", "token": 0},
}
_MEANING: Final = {"purpose": "lock", "producer": "p", "consumer_hints": ["a"]}
_ITEM: Final = {"id": "a", "at": "b", "n": 1, "deep": {"list": ["x", {"y": "z"}]}}
_OF: Final = {"table": "t", "partition_key": "a", "sort_key": "b"}
_IF: Final = {
    "condition": {
        "and": [
            {"n": {"eq": "x"}},
            {"or": [{"not": {"n": {"in": ["x"]}}}, {"id": {"begins_with": "x"}}]},
            {"deep.list": {"contains": "x"}},
            {"n": {"between": ["x", "y"], "type": "string"}},
        ]
    }
}
_WALK: Final = {"filter": _IF["condition"], "projection": ["n", ["id"]], "cursor": "Y3Vyc29y"}
_ENTRY: Final = {
    "key": "k",
    "value": {"a": ["b"]},
    "version": 1,
    "last_writer": "bot:1",
    "created_at": "2031-05-01T12:30:00Z",
    "updated_at": "2031-05-01T12:30:00Z",
    "expires_at": "2031-05-01T12:30:00Z",
    "semantics": _MEANING,
    "request_id": "r",
    "spec_ref": "s",
}
_SET: Final = {"key": "k", "value": {"a": ["b"]}, "semantics": _MEANING}

KEYS: Final[dict[str, dict[str, Any]]] = {
    "set": {**_SET, **_SAID},
    "get": {"key": "k"},
    "delete": {"key": "k", **_SAID},
    "incr": {"key": "n", **_SAID},
    "exists": {"key": "k"},
    "get_ttl": {"key": "k"},
    "set_ttl": {"key": "k", "ttl_seconds": 60, **_SAID},
    "touch": {"key": "k", "ttl_seconds": 60, **_SAID},
    "remove_ttl": {"key": "k", **_SAID},
    "restore": {"key": "k", **_SAID},
    "get_many": {"keys": ["k", "n"]},
    "set_many": {"items": [_SET, {"key": "n", "value": 1}], **_SAID},
    "delete_many": {"keys": ["k", "n"], **_SAID},
    "delete_prefix": {"prefix": "k", "cursor": "aw", "last_writer": "bot:1", "spec_ref": "s"},
    "batch": {
        "checks": [{"key": "k", "version": 0}],
        "writes": [_SET, {"key": "n", "incr": 1}, {"key": "m", "delete": True}, {"guard": "l"}],
        **_SAID,
    },
    "list": {
        "prefix": "k",
        "cursor": "aw",
        "purpose": "lock",
        "producer": "p",
        "last_writer": "bot:1",
        "spec_ref": "s",
        "expires_before": "2031-05-01T12:30:00Z",
    },
    "changes": {"prefix": "k", "since": 0},
    "history": {"key": "k"},
    "stats": {},
    "ready": {},
    "escalate": {
        "verb": "set",
        "request": {**_SET, "request_id": "r"},
        "error_code": "BUSY",
        "attempts": 5,
        "message": "m",
    },
}
TABLES: Final[dict[str, dict[str, Any]]] = {
    "create_table": {
        "table": "t",
        "partition_key": {"name": "id", "type": "string"},
        "sort_key": {"name": "at", "type": "string"},
        "ttl_attribute": "expires",
        "stream": "both",
        **_SAID,
    },
    "drop_table": {"table": "gone", **_SAID},
    "describe_table": {"table": "t"},
    "list_tables": {},
    "put_item": {"table": "t", "item": _ITEM, "return_values": "new", **_IF, **_SAID},
    "get_item": {**_OF, "projection": ["n", ["id"]]},
    "reveal_item": {**_OF, "why": "OPS-1", "last_writer": "w"},
    "update_item": {
        **_OF,
        "set": {"x.y": {"v": ["w"]}},
        "add": {"n": 1},
        "remove": ["z[0]"],
        "return_values": "old",
        **_IF,
        **_SAID,
    },
    "delete_item": {**_OF, "return_values": "old", **_IF, **_SAID},
    "query": {"table": "t", "partition_key": "a", "sort_key_condition": {"between": ["a", "z"]}, **_WALK},
    "scan": {"table": "t", **_WALK},
    "create_index": {"table": "t", "index": "i", "index_key": {"name": "n", "type": "number"}, **_SAID},
    "drop_index": {"table": "t", "index": "gone", **_SAID},
    "query_index": {"table": "t", "index": "s", "key_value": "x", **_WALK},
    "check_index": {"table": "t", "index": "i"},
    "batch_get_item": {"table": "t", "keys": [{"partition_key": "a", "sort_key": "b"}]},
    "batch_write_item": {
        "table": "t",
        "writes": [{"put": {"item": _ITEM, **_IF}}, {"delete": {**_OF, **_IF}}],
        **_SAID,
    },
    "transact_write": {
        "writes": [
            {"put": {"table": "t", "item": _ITEM, **_IF}},
            {"update": {**_OF, "sort_key": "c", "set": {"x": "v"}, **_IF}},
            {"delete": {**_OF, "sort_key": "d", **_IF}},
            {"check": {**_OF, "sort_key": "e", **_IF}},
        ],
        **_SAID,
    },
    "set_ttl": {**_OF, "ttl_seconds": 60, **_SAID},
    "remove_ttl": {**_OF, **_SAID},
    "get_ttl": _OF,
    "sweep_expired_ttl": {"table": "t"},
    "changes": {"table": "t", "since": 0, "view": "both"},
    "stats": {},
}
OPERATORS: Final[dict[str, dict[str, Any]]] = {
    "namespaces": {"cursor": "aw"},
    "stats": {"namespace": "kv/p"},
    "policy": {"namespace": "kv/p"},
    "set_policy": {"namespace": "kv/p", "policy": {"quota_keys": 1_000}, **_SAID},
    "audit": {
        "namespace": "kv/p",
        "prefix": "k",
        "last_writer": "bot:1",
        "op": "set",
        "purpose": "lock",
        "request_id": "r",
        "since": "2031-05-01T12:30:00Z",
        "until": "2031-05-01T12:30:00Z",
    },
    "audits": {},
    "audit_verify": {"namespace": "kv/p", "after": 1, "anchor": "feed"},
    "trash": {"namespace": "kv/p", "prefix": "k", "cursor": "aw"},
    "deadletters": {"namespace": "kv/p"},
    "deadletter_retry": {"namespace": "kv/p", "number": 1},
    "deadletter_drop": {"namespace": "kv/p", "number": 1},
    "deadletter_reveal": {"namespace": "kv/p", "number": 1, "why": "OPS-1"},
    "rescue": {"path": "copy.db"},
    "load": {"namespace": "kv/p", "entries": [_ENTRY], "keep_versions": False, **_SAID},
    "sweep": {},
    "upkeep": {},
    "ready": {},
}


class Spoilt(NamedTuple):
    """A request with a lone surrogate, and where it is: a path of names and positions."""

    verb: str
    place: tuple[str | int, ...]
    fields: dict[str, Any]


def spoilt(requests: dict[str, dict[str, Any]]) -> Iterator[Spoilt]:
    """Every request with a lone surrogate in each place in turn: a value, a member or a name within one."""
    for verb, fields in requests.items():
        for place in places(fields):
            yield Spoilt(verb, place, _with_lone(_without(fields, place), place))


def places(given: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all values below an object or a list, and a new name in each object but the first."""
    if isinstance(given, dict):
        if above:
            yield (*above, LONE)
        for name, member in given.items():
            yield (*above, name)
            yield from places(member, (*above, name))
    elif isinstance(given, list):
        for position, member in enumerate(given):
            yield (*above, position)
            yield from places(member, (*above, position))


def ignored(place: tuple[str | int, ...]) -> bool:
    """Whether a lone surrogate is in a name that nobody looks at, as with any unknown name beside fields."""
    return place[-1] == LONE and (isinstance(place[-2], int) or place[-2] in _FIELDS)


def usual(fields: dict[str, Any]) -> dict[str, Any]:
    """A request as somebody would send it."""
    return {name: field for name, field in fields.items() if name not in _ALONE}


def _without(fields: dict[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    return {name: field for name, field in fields.items() if name not in _ALONE or name == place[0]}


def _with_lone(fields: dict[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    """A copy with a lone surrogate in one place."""
    made = copy.deepcopy(fields)
    at: Any = made
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = 1 if place[-1] == LONE else LONE
    return made
