"""What `set`, `remove` and `add` make of an item.

The model keeps the leaves of nested objects by their paths, and knows no lists; those have tables.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.tables.updates import Update, if_not_exists, update_of, updated
from holdfast.testing.exact import refusal, same
from tests.unit.tables.samples import EXAMPLES, events

if TYPE_CHECKING:
    from holdfast.tables.paths import Path

SCHEMA = events()
KEY = {"user": "alice", "at": 7}


def after(item: dict[str, Any], **actions: Any) -> dict[str, Any]:
    """An item after an update that a caller asks for; the one before must not change."""
    before = copy.deepcopy(item)
    result = updated(item, update_of(SCHEMA, **actions))
    assert item == before
    return result


_names = st.sampled_from("abc")
_trees = st.recursive(
    st.integers(0, 9), lambda inner: st.dictionaries(_names, inner, min_size=1, max_size=2), max_leaves=5
)
_paths = st.lists(_names, min_size=1, max_size=3).map(tuple)
_actions = st.dictionaries(_paths, st.sampled_from(["set", "if", "remove", "add"]), min_size=1, max_size=4)


def flat(value: Any, path: Path = ()) -> dict[Path, Any]:
    """The leaves of nested objects by their paths."""
    if not isinstance(value, dict):
        return {path: value}
    found: dict[Path, Any] = {}
    for name, member in value.items():
        found |= flat(member, (*path, name))
    return found


@EXAMPLES
@given(st.dictionaries(_names, _trees, max_size=3), _actions)
def test_updates_against_a_model(item: dict[str, Any], actions: dict[Path, str]) -> None:
    """An update changes what it names and nothing else, or it is refused."""
    chosen = {
        name: [path for path, action in actions.items() if action == name] for name in ("set", "if", "add")
    }
    update: dict[str, Any] = {
        "set": [[path, 100] for path in chosen["set"]]
        + [(path, if_not_exists(200)) for path in chosen["if"]],
        "remove": [path for path, action in actions.items() if action == "remove"],
        "add": dict.fromkeys(chosen["add"], 1),
    }
    leaves = flat(item)
    overlap = any(one == other[: len(one)] for one, other in itertools.permutations(actions, 2))
    writes = [path for path, action in actions.items() if action in {"set", "add"}]
    writes += [path for path in chosen["if"] if not _under(leaves, path)]
    blocked = any(path[:end] in leaves for path in writes for end in range(1, len(path)))
    unfit = any(path not in leaves and _under(leaves, path) for path in chosen["add"])
    if overlap or blocked or unfit:
        with pytest.raises(ValidationError):
            after(item, **update)
        return
    sums = {path: leaves.get(path, 0) + 1 for path in chosen["add"]}
    wanted = {path: leaf for path, leaf in leaves.items() if not any(path[: len(at)] == at for at in actions)}
    wanted |= {path: leaf for path, leaf in leaves.items() for at in chosen["if"] if path[: len(at)] == at}
    wanted |= dict.fromkeys(chosen["set"], 100) | sums
    wanted |= {path: 200 for path in chosen["if"] if not _under(leaves, path)}
    assert flat(after(item, **update)) == wanted


def _under(leaves: dict[Path, Any], path: Path) -> bool:
    return any(leaf[: len(path)] == path for leaf in leaves)


@pytest.mark.parametrize(
    ("actions", "wanted"),
    [
        ({"set": {"list[0]": 9}}, [9, 1, 2]),
        ({"set": {"list[3]": 9}}, [0, 1, 2, 9]),
        ({"set": {"list[4]": 8, "list[3]": 9}}, [0, 1, 2, 9, 8]),
        ({"remove": ["list[0]", "list[1]"]}, [2]),
        ({"remove": ["list[0]"], "set": {"list[2]": 9, "list[3]": 8}}, [1, 9, 8]),
        ({"add": {"list[1]": 5}, "remove": ["list[0]", "list[7]"]}, [6, 2]),
        ({"add": {"list": [2, 3, 3.0, 1.0]}}, [0, 1, 2, 3]),
        ({"add": {"list": (5,)}}, [0, 1, 2, 5]),
        ({"set": {"list": {"if_not_exists": 5}}}, [0, 1, 2]),
    ],
)
def test_list_positions_are_those_before_the_update(actions: dict[str, Any], wanted: list[Any]) -> None:
    """Positions in a list are those before the update, and a list never gets a gap."""
    assert after(KEY | {"list": [0, 1, 2]}, **actions) == KEY | {"list": wanted}


def test_update_of_a_missing_item_creates_it() -> None:
    """An update of what is not there makes the item from its key, with whatever the paths need."""
    made = after(
        KEY,
        set={"meta.tag": "x", "first": if_not_exists(1), ("a.b", 0): None},
        add={"score": 1, "meta.tags": ["b", "a", "b"]},
        remove=["nothing"],
    )
    wanted = {"meta": {"tag": "x", "tags": ["b", "a"]}, "first": 1, "a.b": [None], "score": 1}
    assert made == KEY | wanted


def test_added_integers_stay_exact() -> None:
    """Integers stay exact, floats may join, and what no number can hold is refused."""
    for before, by, wanted in ((1, 2, 3), (2**60, 1, 2**60 + 1), (1, 0.5, 1.5), (1.0, 1, 2.0), (3, -5, -2)):
        assert same(after({"n": before}, add={"n": by})["n"], wanted)
    for before, by in ((1e308, 1e308), (10**400, 0.5), (10**4300 - 1, 1)):
        with refusal(ValidationError, field="add", says="too large"):
            after({"n": before}, add={"n": by})


@pytest.mark.parametrize(
    ("found", "by"),
    [
        ("1", 1),
        (True, 1),
        (None, 1),
        ([1], 1),
        ({}, 1),
        (1, [1]),
        ("a", ["a"]),
        (["a"], [1]),
        ([1, "a"], ["b"]),
        ([True], [1]),
        ([{}], ["a"]),
    ],
)
def test_add_rejects_values_of_another_kind(found: Any, by: Any) -> None:
    """A number is added only to a number, and members only to a set of their kind."""
    with refusal(ValidationError, field="add", says="the value at 'n' is not"):
        after({"n": found}, add={"n": by})


def test_sets_keep_their_order() -> None:
    """Members are added to a list once each, behind those that are there; an empty list takes any."""
    assert after({"s": ["b", "a", "b"]}, add={"s": ["a", "c"]}) == {"s": ["b", "a", "b", "c"]}
    assert after({"s": []}, add={"s": [1, 1.0, 2]}) == {"s": [1, 2]}


class Counting(int):
    """An integer that counts how often it is compared with another of the same hash."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@pytest.mark.parametrize("there", [True, False])
def test_numbers_with_one_hash_are_not_compared_with_each_other(there: bool) -> None:
    """The members of a set may be chosen such that Python gives them all the same hash."""
    members = [Counting(number * (2**61 - 1)) for number in range(1, 301)]
    Counting.compared = 0
    update = Update(add=((("s",), members[:1] if there else members),))
    assert updated(KEY | ({"s": members} if there else {}), update) == KEY | {"s": members}
    assert Counting.compared < 2_000


def test_large_numbers_are_told_apart_by_their_values() -> None:
    """Large integers and floats are the same member if they are the same number."""
    added = after(
        {"s": [2**70, -(2**60), 5]}, add={"s": [2.0**70, 2**70 + 1, -(2.0**60), 5.0, 1e308, int(1e308)]}
    )
    assert same(added["s"], [2**70, -(2**60), 5, 2**70 + 1, 1e308])


@pytest.mark.parametrize(
    ("actions", "field", "words"),
    [
        ({}, "set", "1 to 1000 actions"),
        ({"set": {}, "remove": []}, "set", "1 to 1000 actions"),
        (
            {"remove": [f"a{number}" for number in range(600)], "set": {f"b{n}": 1 for n in range(401)}},
            "set",
            "1001",
        ),
        ({"set": "a"}, "set", "must be an object"),
        ({"set": [["a"]]}, "set", "list of pairs"),
        ({"add": 5}, "add", "must be an object"),
        ({"set": {"a..b": 1}}, "set", "path"),
        ({"remove": "a"}, "remove", "list of paths"),
        ({"add": {"a": "x"}}, "add", "takes a number"),
        ({"add": {"a": True}}, "add", "takes a number"),
        ({"add": {"a": []}}, "add", "takes a number"),
        ({"add": {"a": [1, "x"]}}, "add", "takes a number"),
        ({"add": {"a": [True]}}, "add", "takes a number"),
        ({"set": {"a": float("nan")}}, "set", "NaN"),
        ({"set": {"a": if_not_exists(b"x")}}, "set", "bytes"),
        ({"add": {"a": float("inf")}}, "add", "Infinity"),
        ({"set": {"user": "bob"}}, "set", "'user' is part of the key"),
        ({"set": {"user.name": "bob"}}, "set", "'user' is part of the key"),
        ({"add": {"at": 1}}, "add", "'at' is part of the key"),
        ({"remove": ["at"]}, "remove", "'at' is part of the key"),
        ({"set": {"a": 1}, "remove": ["a"]}, "remove", "'a' overlaps"),
        ({"set": {"a.b[0]": 1}, "add": {"a": 1}}, "set", "'a.b[0]' overlaps"),
        ({"set": [["a", 1], ["a", 2]]}, "set", "overlaps"),
        ({"remove": ["a", "a[0]", "b"]}, "remove", "'a[0]' overlaps"),
    ],
)
def test_illegal_updates_are_refused(actions: dict[str, Any], field: str, words: str) -> None:
    """An update that touches the key, one place twice, or makes no sense is refused before it begins."""
    with refusal(ValidationError, field=field, says=words):
        update_of(SCHEMA, **actions)


def test_update_copies_only_what_it_changes() -> None:
    """The cost of an update of a large item is that of its change, and the item before it stays as it was."""
    before: dict[str, Any] = {"large": [[1], [2]], "a": {"b": [1, 2], "c": [3]}}
    result = after(before, set={"a.b[0]": 9}, remove=["large[0]"])
    assert result == {"large": [[2]], "a": {"b": [9, 2], "c": [3]}}
    assert result["large"][0] is before["large"][1]
    assert result["a"]["c"] is before["a"]["c"]


def test_update_is_limited_to_the_size_of_an_item() -> None:
    """An update brings no more than an item can hold."""
    half = "x" * 250_000
    with refusal(ValueTooLarge, field="set", says="409600 bytes that an item may have"):
        update_of(SCHEMA, set={"a": half, "b": half})
    with refusal(ValueTooLarge, field="set", says="exceeds 400KB"):
        update_of(SCHEMA, set={"a": half * 2})


def test_if_not_exists_is_spelled_alike_in_json() -> None:
    """What is set only where there is nothing looks on the wire as a caller spells it."""
    update = update_of(SCHEMA, set={"a[0]": if_not_exists(1)}, remove=["b"], add={"c": 2})
    sent = msgspec.to_builtins(update)
    assert sent == {"set": ((("a", 0), {"if_not_exists": 1}),), "remove": (("b",),), "add": ((("c",), 2),)}
    assert update_of(SCHEMA, **msgspec.json.decode(msgspec.json.encode(update))) == update
    assert updated({}, Update(set=((("a",), [1, {"b": (2,)}]),))) == {"a": [1, {"b": (2,)}]}
