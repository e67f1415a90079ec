"""Paths to values within an item, and projections, which are the parts of an item that a caller asks for.

A path is text such as `meta.tag` or `list[0].x`. The names of attributes may contain any character. One that
contains `.`, `[` or `]` can't be part of such a text: the path is then the list of its steps, `["a.b", 0]`.

A path that leads nowhere is no error when reading or removing. Assigning creates the missing objects and
lists on the way, since an update also creates missing items. It is refused only if another value is in the
way, or if a list would get a gap.

A projection is compiled once per call, however many items it is applied to. Missing values are left out, and
so are objects and lists that would be empty without them. It fails on an item only if that costs too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from holdfast import rules
from holdfast.errors import ValidationError
from holdfast.work import NODE, STEP, Work

Path: TypeAlias = tuple[str | int, ...]
Tree: TypeAlias = "dict[str | int, Tree]"

MAX_PATHS: Final = 1_000
MAX_POSITION: Final = 999_999
_PART: Final = re.compile(r"([^.\[\]]+)((?:\[(?:0|[1-9][0-9]{0,5})\])*)(?:\.(?=.)|\Z)", re.DOTALL)


class Missing(Enum):
    """The type of `MISSING`: no value exists, not even null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def path_of(given: object, *, field: str) -> Path:
    """Return a path given by a caller as text, or as a list of names and positions.

    Raises:
        ValidationError: It is neither, does not begin with a name, or has more steps than an item can nest.
    """
    path = _read(given, field) if isinstance(given, str) else _listed(given, field)
    if len(path) > rules.MAX_NESTING:
        raise ValidationError(
            f"{field} holds a path of {len(path)} steps; at most {rules.MAX_NESTING} are allowed", field=field
        )
    if any(_surrogate(step) for step in path if isinstance(step, str)):
        raise ValidationError(f"{field} holds a path with a lone surrogate", field=field)
    return path


def spelled(path: Path) -> str | list[str | int]:
    """Return a path in a form that callers may use, as text if possible."""
    text = str(path[0]) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[1:])
    try:
        return text if _read(text, "path") == path else list(path)
    except ValidationError:
        return list(path)


def shown(path: Path) -> str:
    """Return a path as messages show it."""
    return rules.shown(str(spelled(path)))


def paths_of(given: object, *, field: str) -> tuple[Path, ...]:
    """Return a list of paths."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise ValidationError(f"{field} must be a list of paths", field=field)
    if len(given) > MAX_PATHS:
        raise ValidationError(f"{field} has {len(given)} paths; at most {MAX_PATHS} are allowed", field=field)
    return tuple(path_of(path, field=field) for path in given)


def lookup(item: Any, path: Path) -> Any:
    """Return the value at a path, or `MISSING`."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(item, (list, tuple)) or step >= len(item):
                return MISSING
            item = item[step]
        elif (isinstance(item, dict) or isinstance(item, Mapping)) and step in item:  # noqa: SIM101 (faster)
            item = item[step]
        else:
            return MISSING
    return item


def assign(item: dict[str, Any], path: Path, value: Any, *, field: str) -> None:
    """Set the value at a path, in place. The position after the end of a list appends to it.

    Raises:
        ValidationError: A value on the way has no such step, or a list is too short.
    """
    inner: Any = item
    for at, step in enumerate(path[:-1]):
        child = lookup(inner, (step,))
        if child is MISSING:
            child = [] if isinstance(path[at + 1], int) else {}
            _put(inner, path[: at + 1], child, field)
        inner = child
    _put(inner, path, value, field)


def discard(item: dict[str, Any], path: Path) -> None:
    """Remove the value at a path, in place. Later members of a list move up."""
    holder = lookup(item, path[:-1])
    if lookup(holder, path[-1:]) is not MISSING:
        del holder[path[-1]]


def in_order(path: Path) -> list[tuple[bool, str | int]]:
    """Return a sort key for paths. A path sorts before longer ones it begins; positions sort as numbers."""
    return [(isinstance(step, int), step) for step in path]


def tree_of(paths: Iterable[Path]) -> Tree:
    """Return paths as a tree of their steps. A path replaces longer ones that begin with it."""
    root: Tree = {}
    for path in sorted(paths, key=len):
        tree = root
        for step in path:
            if step in tree and not tree[step]:
                break
            tree = tree.setdefault(step, {})
    return root


def _put(container: Any, path: Path, value: Any, field: str) -> None:
    step = path[-1]
    if isinstance(step, str) and isinstance(container, dict):
        container[step] = value
    elif isinstance(step, int) and isinstance(container, list) and step <= len(container):
        container[step : step + 1] = [value]
    elif isinstance(step, int) and isinstance(container, list):
        raise ValidationError(
            f"{field}: the list has {len(container)} members, so nothing can be put at {shown(path)}",
            field=field,
        )
    else:
        kind = "a list" if isinstance(step, int) else "an object"
        raise ValidationError(f"{field}: {shown(path[:-1])} is not {kind}", field=field)


def _surrogate(name: str) -> bool:
    return not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name)


def _read(text: str, field: str) -> Path:
    if "[" not in text and "]" not in text and all(names := text.split(".")):  # the common case
        return tuple(names)
    path: list[str | int] = []
    at = 0
    while match := _PART.match(text, at):
        name, positions = match.groups()
        path.append(name)
        path += [int(position) for position in positions[1:-1].split("][") if position]
        at = match.end()
    if not path or at != len(text):
        raise ValidationError(
            f"{field} holds the path {rules.shown(text)}; a path looks like meta.tag or list[0].x, and names "
            'with other characters need a list of steps: ["a.b", 0]',
            field=field,
        )
    return tuple(path)


def _listed(given: object, field: str) -> Path:
    steps = [_whole(step) for step in given] if isinstance(given, (list, tuple)) else []
    path = [step for step in steps if _is_step(step)]
    if not path or not isinstance(path[0], str) or len(path) < len(steps):
        raise ValidationError(
            f"{field} holds {rules.shown(given)} for a path, which is text or a list of names and positions "
            "that begins with a name",
            field=field,
        )
    return tuple(path)


def _whole(step: object) -> object:
    """Return a position such as 5.0, which JSON does not tell from 5, as a whole number."""
    return int(step) if isinstance(step, float) and step.is_integer() else step


def _is_step(step: object) -> TypeGuard[str | int]:
    return isinstance(step, str) or (type(step) is int and 0 <= step <= MAX_POSITION)


_STEP: Final = 8 * STEP
"""Steps of work for a step of a projection, which is looked up and copied."""


class Projection(msgspec.Struct, frozen=True):
    """Paths as a tree of their steps, in the order in which members of lists are shown."""

    tree: dict[str | int, Any]


def compiled(paths: Sequence[Path]) -> Projection:
    """Return the projection to these paths. If one is a prefix of another, the shorter one applies."""
    return Projection(_in_order(tree_of(paths)))


def project(item: dict[str, Any], projection: Projection, *, work: Work | None = None) -> dict[str, Any]:
    """Return the projected part of an item, in objects and lists like its own.

    The selected members of a list keep their order and leave no gaps.

    Raises:
        TooExpensive: This takes more work than allowed.
    """
    counted = work or Work()
    counted.begin("the projection")
    part = _part(item, projection.tree, counted)
    return {} if part is MISSING else part


def _in_order(tree: Tree) -> Tree:
    steps = sorted(tree, key=lambda step: step if isinstance(step, int) else 0)
    return {step: _in_order(tree[step]) for step in steps}


def _part(value: Any, tree: Tree, work: Work) -> Any:
    """Return the part of a value that a tree selects. A tree without branches selects all of it."""
    if not tree or value is MISSING:
        return value
    work.spend(NODE + _STEP * len(tree))
    members = {}
    for step, branch in tree.items():
        part = _part(lookup(value, (step,)), branch, work)
        if part is not MISSING:
            members[step] = part
    if not members:
        return MISSING
    return members if isinstance(value, dict) else list(members.values())
