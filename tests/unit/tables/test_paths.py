"""Paths into items, and projections.

A path is tested by what it finds and leaves; spelling it is tested apart.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.tables.paths import (
    MISSING,
    assign,
    compiled,
    discard,
    lookup,
    path_of,
    paths_of,
    project,
    spelled,
)
from holdfast.testing.exact import refusal
from tests.unit.tables.samples import EXAMPLES, items, json_values, paths

if TYPE_CHECKING:
    from holdfast.tables.paths import Path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("meta.tag", ("meta", "tag")),
        ("list[0].x", ("list", 0, "x")),
        ("a[10][2]", ("a", 10, 2)),
        ("a b.é\n.0", ("a b", "é\n", "0")),
    ],
)
def test_path_text_and_list_mean_the_same(text: str, path: Path) -> None:
    """Dots walk into objects and brackets into lists; a list of steps says the same."""
    assert path_of(text, field="set") == path == path_of(list(path), field="set")
    assert spelled(path) == text


def test_a_whole_float_is_a_position() -> None:
    """JSON has one kind of number, so 1.0 is the position 1."""
    path = path_of(["a", 1.0], field="set")
    assert path == ("a", 1)
    assert isinstance(path[1], int)


@EXAMPLES
@given(paths)
def test_every_path_can_be_spelled(path: Path) -> None:
    """What can't be said as text is said as a list, and means the same."""
    assert path_of(spelled(path), field="set") == path


@pytest.mark.parametrize(
    "wrong",
    [
        *("", ".", "a.", ".a", "a..b", "[0]", "a[", "a]", "a[x]", "a[-1]", "a[01]", "a[0]b", "a[1000000]"),
        *(None, 5, [], [0], ["a", True], ["a", -1], ["a", 1.5], ["a", None], {"a": 1}, b"a"),
    ],
)
def test_illegal_paths_are_refused(wrong: object) -> None:
    """What is no path is refused, with the field that holds it."""
    with refusal(ValidationError, field="remove", says="path"):
        path_of(wrong, field="remove")


def test_path_length_is_limited() -> None:
    """A path has no more steps than an item can nest, names can be stored, lists are bounded."""
    assert len(path_of(".".join("a" * 64), field="set")) == 64
    with refusal(ValidationError, field="set", says="65 steps; at most 64"):
        path_of(".".join("a" * 65), field="set")
    with refusal(ValidationError, field="set", says="surrogate"):
        path_of(["\ud800"], field="set")
    for wrong in ("a", None, {"a": 1}):
        with refusal(ValidationError, field="remove", says="must be a list of paths", about=wrong):
            paths_of(wrong, field="remove")
    with refusal(ValidationError, field="remove", says="1001 paths; at most 1000"):
        paths_of(["a"] * 1001, field="remove")


def test_path_finds_its_value_or_nothing() -> None:
    """A path finds the value at it, null too, and nothing where it leads nowhere."""
    item = {"a": {"b": [1, {"c": None}]}, "a.b": 2}
    assert lookup(item, ("a", "b", 1, "c")) is None
    assert lookup(item, ("a.b",)) == 2
    for path in (("x",), ("a", "x"), ("a", 0), ("a", "b", 2), ("a", "b", "c"), ("a", "b", 0, "c")):
        assert lookup(item, path) is MISSING


@EXAMPLES
@given(items, paths, json_values)
def test_assigned_value_is_found_at_its_path(item: dict[str, Any], path: Path, value: Any) -> None:
    """A value that was assigned at a path is found there, and removing it removes nothing else."""
    changed = copy.deepcopy(item)
    try:
        assign(changed, path, value, field="set")
    except ValidationError:
        return
    assert lookup(changed, path) == value
    if lookup(item, path) is MISSING and lookup(item, path[:-1]) is not MISSING:
        discard(changed, path)
        assert changed == item


def test_missing_parents_are_made() -> None:
    """Objects and lists that are missing on the way are made, since an update makes missing items too."""
    item: dict[str, Any] = {}
    assign(item, ("meta", "tags", 0, "x"), 1, field="set")
    assign(item, ("meta", "tags", 1), 2, field="set")
    assign(item, ("meta", "tags", 0, "x"), 3, field="set")
    assert item == {"meta": {"tags": [{"x": 3}, 2]}}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("n", "x"), "'n' is not an object"),
        (("n", "x", "y"), "'n' is not an object"),
        (("n", 0), "'n' is not a list"),
        (("list", "x"), "'list' is not an object"),
        (("object", 0), "'object' is not a list"),
        (("null", "x"), "'null' is not an object"),
        (("list", 2), "has 1 members, so nothing can be put at 'list[2]'"),
        (("new", 1), "has 0 members"),
        (("a.b", 0, "x"), "is not a list"),
    ],
)
def test_assignment_rejects_impossible_places(path: Path, words: str) -> None:
    """Nothing is put into what is neither object nor list, and a list gets no gap."""
    item = {"n": 1, "list": [0], "object": {}, "null": None, "a.b": "text"}
    with refusal(ValidationError, field="set", says=words):
        assign(item, path, 1, field="set")


def test_removal_closes_gaps_and_ignores_missing_paths() -> None:
    """Members of a list close up; a path that leads nowhere removes nothing."""
    item = {"list": [0, 1, 2], "a": {"b": 1, "c": 2}}
    for path in (("list", 1), ("a", "b"), ("x", "y"), ("list", 9), ("list", "x"), ("a", 0)):
        discard(item, path)
    assert item == {"list": [0, 2], "a": {"c": 2}}


@pytest.mark.parametrize(
    ("chosen", "part"),
    [
        (["a"], {"a": {"b": 1, "c": [10, 11, {"d": 12, "e": 13}]}}),
        (["a.b"], {"a": {"b": 1}}),
        (["a.c[2].d", "a.c[0]"], {"a": {"c": [10, {"d": 12}]}}),
        (["a.c[1]", "a.c[0]"], {"a": {"c": [10, 11]}}),
        (["a.b", "a"], {"a": {"b": 1, "c": [10, 11, {"d": 12, "e": 13}]}}),
        (["a.b", "a.b"], {"a": {"b": 1}}),
        ([["x.y"], "null"], {"x.y": 2, "null": None}),
        (["nothing", "a.x", "a.c[9]", "a.b.x", "a[0]", "a.c.x"], {}),
        (["a.c[1]", "a.c.x"], {"a": {"c": [11]}}),
    ],
)
def test_projection_shows_only_its_paths(chosen: list[Any], part: dict[str, Any]) -> None:
    """A projection shows what is at its paths, in objects and lists like those of the item."""
    item = {"a": {"b": 1, "c": [10, 11, {"d": 12, "e": 13}]}, "x.y": 2, "null": None}
    before = copy.deepcopy(item)
    assert project(item, compiled(paths_of(chosen, field="projection"))) == part
    assert item == before


@EXAMPLES
@given(items, st.lists(paths, min_size=1, max_size=4))
def test_a_projection_has_what_was_asked_for(item: dict[str, Any], chosen: list[Path]) -> None:
    """Every attribute of a projection was asked for, and is there with all that was asked of it."""
    part = project(item, compiled(chosen))
    assert set(part) == {path[0] for path in chosen if lookup(item, path) is not MISSING}
    for path in chosen:
        if all(isinstance(step, str) for step in path):
            assert lookup(part, path) == lookup(item, path)
