"""What the calls about tables are made of.

Few tables, keys and values, so that calls collide. A version and a deadline are words here, since only
the machine knows what they mean at the time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Plain = dict[str, Any]

TABLES = st.sampled_from(["t", "t", "t", "u"])
INDEXES = st.sampled_from(["by_tag", "by_n"])
PARTITIONS = ["a", "a\x00", "b"]
SORTS: list[Any] = [1, 1.0, 2.5, -1, 2**53 + 1]
TAGS: list[Any] = ["x", "x", "y", "x\x00", 1, None]
NUMBERS: list[Any] = [1, 1.0, 2, -0.5, True, "n"]
ENDS = st.sampled_from([None] * 4 + ["soon", "soon", "later", "past", 0, "text", True])
"""What the ttl attribute holds: a word for a time, or something that is none."""
TWO_TAGS = st.sampled_from([["x", "x"], ["x", "y"]])
TWO_ENDS = st.sampled_from([["soon", "later"], ["later", "soon"], [None, "soon"], ["soon", None]])
"""What two writes of one item hold one after the other."""
CONDITIONS: st.SearchStrategy[Plain | None] = st.sampled_from(
    [
        *[None] * 5,
        {"tag": {"eq": "x"}},
        {"n": {"gt": 0}},
        {"n": {"eq": 1}},
        {"m.a": {"exists": True}},
        {"p": {"not_exists": True}},
        {"not": {"tag": {"eq": "x"}}},
        {"or": [{"n": {"gt": 1}}, {"tag": {"not_exists": True}}]},
    ]
)
VERSIONS = st.sampled_from(["any"] * 5 + ["right", "right", "zero", "next"])
RETURNS = st.sampled_from(["new", "new", "old", "none"])
SELDOM = st.sampled_from([False, False, False, True])
REQUESTS = st.sampled_from([None] * 6 + ["r1", "r2"])


@st.composite
def keys(draw: st.DrawFn, table: str) -> list[Any]:
    """The key of an item of a table."""
    partition = draw(st.sampled_from(PARTITIONS))
    return [partition, draw(st.sampled_from(SORTS))] if table == "t" else [partition]


@st.composite
def items(draw: st.DrawFn, table: str) -> Plain:
    """An item; its deadline is still a word."""
    key = draw(keys(table))
    item: Plain = dict(zip(("p", "s"), key, strict=False))
    for name, values in (("tag", TAGS), ("n", NUMBERS), ("m", [{"a": 1}, {}, 5])):
        if draw(st.booleans()):
            item[name] = draw(st.sampled_from(values))
    end = draw(ENDS)
    return item if end is None else item | {"e": end}


@st.composite
def updates(draw: st.DrawFn) -> Plain:
    """An update, whose actions touch different places."""
    changes: Plain = {}
    for path in draw(st.lists(st.sampled_from(["tag", "n", "m.a", "e"]), min_size=1, unique=True)):
        verb = draw(st.sampled_from(["set", "set", "remove", "add"]))
        if verb == "remove":
            changes.setdefault("remove", []).append(path)
        elif path == "e":
            changes.setdefault("set", {})[path] = draw(ENDS)
        elif verb == "add":
            changes.setdefault("add", {})[path] = draw(st.sampled_from([1, 1, -2.5]))
        else:
            values = {"tag": TAGS, "n": NUMBERS, "m.a": [1, "z"]}
            changes.setdefault("set", {})[path] = draw(st.sampled_from(values[path]))
    return changes


@st.composite
def writes(
    draw: st.DrawFn, tables: st.SearchStrategy[str] = TABLES, kinds: str = "pudc"
) -> tuple[str, Plain]:
    """One write of several."""
    verb = {"p": "put", "u": "update", "d": "delete", "c": "check"}[draw(st.sampled_from(kinds))]
    table = draw(tables)
    given: Plain = {"table": table}
    if verb == "put":
        given["item"] = draw(items(table))
    else:
        given["key"] = draw(keys(table))
    if verb == "update":
        given["changes"] = draw(updates())
    return verb, given | {"expected": draw(VERSIONS), "condition": draw(CONDITIONS)}
