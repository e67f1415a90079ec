"""Projections: the parts of an item that a caller asks for.

Law: a projection is compiled once per call, however many items it is applied to. Missing values are left out,
and so are objects and lists that would be empty without them. It fails on an item only if that costs too
much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import ValidationError
from holdfast.tables.paths import MISSING, lookup, paths_of, tree_of
from holdfast.work import NODE, STEP, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.tables.paths import Path, Tree

_STEP: Final = 8 * STEP
"""Steps of work for a step of a projection, which is looked up and copied."""


class Projection(msgspec.Struct, frozen=True):
    """Paths as a tree of their steps, in the order in which members of lists are shown."""

    tree: dict[str | int, Any]


def projection_of(given: object, *, field: str = "projection") -> Projection:
    """Return a projection, which has at least one path.

    Raises:
        ValidationError: It is not a list of paths.
    """
    paths = paths_of(given, field=field)
    if not paths:
        raise ValidationError(f"{field} must name at least one path", field=field)
    return compiled(paths)


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
    found = {}
    for step, branch in tree.items():
        part = _part(lookup(value, (step,)), branch, work)
        if part is not MISSING:
            found[step] = part
    if not found:
        return MISSING
    return found if isinstance(value, dict) else list(found.values())
