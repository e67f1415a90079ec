"""Requests that may be expensive, one builder for each verb of keys and tables.

A builder draws a few numbers and builds all the rest from them by repeating, since drawing takes a
hundred times as long. So a search tries thousands of requests in minutes, and hill climbing has few numbers
to change. Every request has at most 64 KB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from hypothesis import strategies as st

from tests.robustness.cost_ground import INDEXABLE, ITEMS, KEYS, SHAPES, TWINS

T = TypeVar("T")
Fields: TypeAlias = dict[str, Any]

ROOM: Final = 60_000
"""How many bytes of a request its largest part may have; the others are small."""
NEVER: Final = 9_999_999
"""A version that nothing has."""


class Dice:
    """The few numbers that a request is built from.

    Args:
        draw: Draws from a strategy of Hypothesis.
    """

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def number(self, most: int, *, least: int = 1) -> int:
        """A number up to a limit."""
        return self._draw(st.integers(least, most))

    def one_of(self, options: Sequence[T]) -> T:
        """One of several options, of which the first is the simplest."""
        return options[self._draw(st.integers(0, len(options) - 1))]

    def maybe(self, fields: Fields) -> Fields:
        """These fields or none."""
        return fields if self._draw(st.booleans()) else {}


def repeated(part: Any, count: int, *, room: int = ROOM) -> list[Any]:
    """A part as many times as is asked for, as far as there is room for it."""
    return [part] * max(1, min(count, room // (len(_text(part)) + 1)))


def fitting(parts: list[Any], *, room: int = ROOM) -> list[Any]:
    """The first of several parts that there is room for."""
    each = max(len(_text(part)) for part in parts) + 1
    return parts[: max(1, room // each)]


def _text(part: Any) -> str:
    return json.dumps(part, separators=(",", ":"))


def keys(dice: Dice, most: int = 1_000) -> list[str]:
    """Keys of 64 KB each, some of them more than once."""
    first, step = dice.number(KEYS, least=0), dice.one_of([1, 2, 7, 0])
    return [f"k{(first + step * number) % KEYS}" for number in range(dice.number(most))]


def item_keys(dice: Dice, most: int = ITEMS) -> list[Fields]:
    """Keys of items of nearly 400 KB each."""
    return [{"partition_key": f"i{number % ITEMS}"} for number in range(dice.number(most))]


def value(dice: Dice) -> Any:
    """A value that takes long to read, to check or to write."""
    part = dice.one_of(
        [1, "x" * 100, [], {}, 0.1234567890123456, [[[[]]]], {"": {}}, int("9" * 4_000), "\x01é\U0001f600"]
    )
    many, depth = repeated(part, dice.number(30_000)), dice.number(60)
    match dice.number(2, least=0):
        case 0:
            return many
        case 1:
            return _nested(many, depth)
        case _:
            return {str(number): part for number in range(min(len(many), ROOM // (len(_text(part)) + 9)))}


def _nested(inner: Any, depth: int) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


NEEDLES: Final[list[Any]] = [
    *(-7, 0.25, "zz", None, True, [], [2], {"": 2}, "a" * 40 + "b" + "a" * 40, "ab" * 200, [[[[2]]]]),
    *([1] * 50, [[]] * 50, {str(number): number for number in range(20)}),
]
PATHS: Final = ["l", "l[0]", "l[60000]", "l" + "[0]" * 40, "l.33999", "none.at.all", "x" + ".y" * 62]


def comparison(dice: Dice) -> Fields:
    """A comparison with something that is not there, so that all has to be looked at."""
    needle = dice.one_of(NEEDLES)
    body: Fields = dice.one_of(
        [
            {"contains": needle},
            {"eq": needle},
            {"ne": needle},
            {"in": [needle] * 8},
            {"size": {"gt": 900_000}},
            {"type": "null"},
            {"between": ["zz", "zzz"]},
            {"begins_with": "b"},
            {"not_exists": True},
        ]
    )
    return {dice.one_of(PATHS): body}


def condition(dice: Dice, *, room: int = ROOM) -> Fields:
    """Comparisons, up to as many as a request has room for, or one with a value as large as there is."""
    if dice.maybe({"large": 1}):
        twin = TWINS[dice.one_of(sorted(TWINS))]
        if len(_text(twin)) < room:
            return {"l": {dice.one_of(["eq", "ne", "contains"]): twin}}
    one = comparison(dice)
    for _ in range(dice.number(30, least=0)):
        one = {"not": one}
    many = repeated(one, dice.number(1_000), room=room)
    return {dice.one_of(["or", "and"]): many}


def projection(dice: Dice) -> list[Any]:
    """Many paths, long ones, or both."""
    count = dice.number(1_000)
    paths: list[Any] = dice.one_of(
        [
            ["l"],
            [f"l[{number}]" for number in range(count)],
            [f"l.{number}" for number in range(count)],
            [f"l[{number % 50}]" + "[0]" * 60 for number in range(count)],
            [f"l[{number}][0][0]" for number in range(count)],
            [["l", number, "", 0] for number in range(count)],
        ]
    )
    return fitting(paths)


def walk(dice: Dice) -> Fields:
    """What all walks over items take."""
    chosen = dice.maybe({"projection": projection(dice)})
    room = ROOM - len(_text(chosen))
    sought = dice.maybe({"filter": condition(dice, room=room)}) if room > 1_000 else {}
    return {
        **chosen,
        **sought,
        "limit": dice.one_of([10_000, 1]),
        "reverse": dice.one_of([False, True]),
    }


def expecting(dice: Dice, *, room: int = ROOM) -> Fields:
    """What a write expects, and does not find."""
    match dice.number(2, least=0):
        case 0:
            return {}
        case 1:
            return {"expected_version": NEVER}
        case _:
            return {"condition": condition(dice, room=room)}


def update(dice: Dice) -> Fields:
    """Updates with many paths, long paths or large values."""
    count, step = dice.number(1_000), dice.one_of([1, 50])
    match dice.number(6, least=0):
        case 0:
            return {"remove": fitting([f"l[{number * step}]" for number in range(count)])}
        case 1:
            return {"set": {f"a{number}.b.c.d": number for number in range(count)}}
        case 2:
            return {"add": {"l": list(range(count * 10))}}
        case 3:
            return {"set": {"x" + ".y" * 60 + str(number): [] for number in range(min(count, 400))}}
        case 4:
            return {"set": {f"l[{number * step}]": {"if_not_exists": []} for number in range(count)}}
        case 5:
            return {"set": {f"l[{number * step}]": [] for number in range(count)}}
        case _:
            return {"set": {"y": value(dice)}}


def returned(dice: Dice) -> Fields:
    """What a write shows."""
    return {"return_values": dice.one_of(["none", "old", "new"])}


def shaped(dice: Dice) -> Fields:
    """The key of an item of nearly 400 KB, of any shape."""
    table, partition = dice.one_of([*(("t", shape) for shape in sorted(SHAPES)), ("large", "i0")])
    return {"table": table, "partition_key": partition}


def remembered(dice: Dice) -> Fields:
    """An id, with which the answer is kept; a new one each time, or the same."""
    return dice.maybe({"request_id": f"r{dice.number(1_000_000)}"})


# The verbs of keys.


def _get_key(dice: Dice) -> Fields:
    return {"key": dice.one_of(["k0", "k1", "spare", "none"])}


def _change_key(dice: Dice) -> Fields:
    expected = dice.maybe({"expected_version": NEVER})
    return _get_key(dice) | expected | remembered(dice) | dice.maybe({"envelope": True})


def _set(dice: Dice) -> Fields:
    return _change_key(dice) | {"value": value(dice)}


def _append(dice: Dice) -> Fields:
    log = {"name": dice.one_of(["log", "k"]), "value": value(dice)}
    return log | dice.maybe({"keep": dice.one_of([1, 100])}) | remembered(dice)


def _set_many(dice: Dice) -> Fields:
    content, expected = dice.one_of([1, [], [[]] * 50, "x" * 200]), dice.maybe({"expected_version": NEVER})
    names = keys(dice) if expected else [f"z{number}" for number in range(dice.number(1_000))]
    items = [{"key": name, "value": content} | expected for name in names]
    return {"items": fitting(items)} | remembered(dice) | dice.maybe({"envelope": True})


def _batch(dice: Dice) -> Fields:
    version = dice.one_of([0, 1, NEVER])
    checks = [{"key": key, "version": version} for key in keys(dice)]
    writes = repeated({"key": "spare", "value": dice.one_of([1, [[]] * 20])}, dice.number(1_000), room=25_000)
    return {"checks": fitting(checks, room=35_000), "writes": writes} | remembered(dice)


def _escalate(dice: Dice) -> Fields:
    verb, build = dice.one_of([("set", _set), ("set_many", _set_many), ("batch", _batch)])
    request = build(dice) | {"request_id": f"given-up-{dice.number(1_000_000)}"}
    return {"verb": verb, "request": request, "error_code": "BUSY", "attempts": 3, "message": "x" * 400}


def _list(dice: Dice) -> Fields:
    return {
        "values": dice.one_of([False, True]),
        "limit": dice.one_of([10_000, 1]),
        **dice.maybe({"prefix": dice.one_of(["k", "z", "k1"])}),
        **dice.maybe({"producer": "nobody"}),
    }


KEY_REQUESTS: Final[dict[str, Callable[[Dice], Fields]]] = {
    "get": _get_key,
    "get_many": lambda dice: {"keys": keys(dice)},
    "exists": _get_key,
    "reveal": lambda dice: _get_key(dice) | {"why": "a complaint"},
    "get_ttl": _get_key,
    "history": lambda dice: _get_key(dice) | {"limit": dice.one_of([10_000, 1])},
    "list": _list,
    "changes": lambda dice: {"since": dice.number(3_000, least=0), "limit": dice.one_of([10_000, 1])},
    "stats": lambda dice: {},
    "ready": lambda dice: {},
    "set": _set,
    "set_many": _set_many,
    "append": _append,
    "delete": _change_key,
    "delete_many": lambda dice: {"keys": keys(dice)} | remembered(dice),
    "delete_prefix": lambda dice: {"prefix": dice.one_of(("z", "k", "k1")), "limit": 10_000},
    "incr": _change_key,
    "set_ttl": lambda dice: _change_key(dice) | {"ttl_seconds": 100_000},
    "touch": lambda dice: _change_key(dice) | {"ttl_seconds": 100_000},
    "remove_ttl": _change_key,
    "restore": _change_key,
    "batch": _batch,
    "escalate": _escalate,
}

# The verbs of tables.


def _put_item(dice: Dice) -> Fields:
    if dice.maybe({"known": 1}):
        item: Fields = {"p": dice.one_of(sorted(SHAPES))}
        return {"table": "t", "item": item, "expected_version": NEVER} | returned(dice)
    content = value(dice)
    expected = expecting(dice, room=ROOM - len(_text(content)))
    return {"table": "t", "item": {"p": "spare", "l": content}} | expected | returned(dice)


def _update_item(dice: Dice) -> Fields:
    what, on = update(dice), dice.one_of([shaped(dice), {"table": "t", "partition_key": "spare"}])
    return on | what | expecting(dice, room=ROOM - len(_text(what))) | returned(dice) | remembered(dice)


def _delete_item(dice: Dice) -> Fields:
    return shaped(dice) | expecting(dice) | returned(dice) | remembered(dice)


def _batch_write_item(dice: Dice) -> Fields:
    expected = expecting(dice, room=ROOM // dice.one_of([1, 10, 100]))
    if dice.maybe({"delete": 1}):
        writes = [{"delete": key | expected} for key in item_keys(dice, 1_000)]
        return {"table": "large", "writes": fitting(writes)} | remembered(dice)
    put = {"put": {"item": {"p": dice.one_of(sorted(SHAPES))}, "expected_version": NEVER} | expected}
    return {"table": "t", "writes": repeated(put, dice.number(1_000))} | remembered(dice)


def _transact_write(dice: Dice) -> Fields:
    many = item_keys(dice)
    room = ROOM // len(many)
    kind = dice.one_of(["check", "update", "delete"])
    what: Fields = {"set": {"x": 1}} if kind == "update" else {}
    writes = [{kind: key | what | expecting(dice, room=room - 100)} for key in many[:1]]
    return {"table": "large", "writes": [{kind: writes[0][kind] | key} for key in many]} | remembered(dice)


def _with_ttl(dice: Dice) -> Fields:
    expected = expecting(dice)
    return {"table": "large", "partition_key": "i0"} | expected | returned(dice)


def _query(dice: Dice) -> Fields:
    table, partition = dice.one_of([*(("t", shape) for shape in sorted(SHAPES)), ("twins", "lists")])
    return {"table": table, "partition_key": partition} | walk(dice)


TABLE_REQUESTS: Final[dict[str, Callable[[Dice], Fields]]] = {
    "scan": lambda dice: {"table": dice.one_of(["t", "large", "twins"])} | walk(dice),
    "query": _query,
    "query_index": lambda dice: {"table": "large", "index": "by", "key_value": "x"} | walk(dice),
    "reveal_item": lambda dice: shaped(dice) | {"why": "a complaint"},
    "get_item": lambda dice: shaped(dice) | dice.maybe({"projection": projection(dice)}),
    "put_item": _put_item,
    "update_item": _update_item,
    "delete_item": _delete_item,
    "batch_get_item": lambda dice: {"table": "large", "keys": item_keys(dice, 1_000)},
    "batch_write_item": _batch_write_item,
    "transact_write": _transact_write,
    "changes": lambda dice: {
        "table": dice.one_of(["t", "large"]),
        "view": dice.one_of(["both", "new", "keys"]),
        "limit": 10_000,
    },
    "check_index": lambda dice: {"table": "large", "index": "by"},
    "create_index": lambda dice: {"table": "large", "index": "new", "index_key": dice.one_of(INDEXABLE)},
    "drop_index": lambda dice: {"table": "large", "index": "old"},
    "create_table": lambda dice: {"table": "new", "partition_key": {"name": "p", "type": "string"}},
    "drop_table": lambda dice: {"table": "gone"},
    "describe_table": lambda dice: {"table": "large"},
    "list_tables": lambda dice: {},
    "set_ttl": lambda dice: _with_ttl(dice) | {"ttl_seconds": 100_000},
    "remove_ttl": _with_ttl,
    "get_ttl": lambda dice: {"table": "large", "partition_key": "i0"},
    "sweep_expired_ttl": lambda dice: {"table": "due"},
    "stats": lambda dice: {},
}

REQUESTS: Final = {
    **{("kv", verb): build for verb, build in KEY_REQUESTS.items()},
    **{("table", verb): build for verb, build in TABLE_REQUESTS.items()},
}


@st.composite
def requests(draw: st.DrawFn, family: str, verb: str) -> Fields:
    """Requests of one verb."""
    return REQUESTS[family, verb](Dice(draw))
