"""Projections: the parts of an item that a caller wants to see.

Law: a projection of a call is read once, whatever it is applied to. What is not there is left out, and so is
what would only hold it. It fails on an item only if that would cost too much.
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
"""What a step of a projection costs: it is looked up, and what is found is put together."""


class Projection(msgspec.Struct, frozen=True):
    """Paths by their steps, in the order in which members of lists are shown."""

    tree: dict[str | int, Any]


def projection_of(given: object, *, field: str = "projection") -> Projection:
    """A projection, which has at least one path.

    Raises:
        ValidationError: It is no list of paths.
    """
    paths = paths_of(given, field=field)
    if not paths:
        raise ValidationError(f"{field} must name at least one path", field=field)
    return compiled(paths)


def compiled(paths: Sequence[Path]) -> Projection:
    """The projection to these paths. Of two of which one begins with the other, the shorter tells."""
    return Projection(_in_order(tree_of(paths)))


def project(item: dict[str, Any], projection: Projection, *, work: Work | None = None) -> dict[str, Any]:
    """What an item has of a projection, in objects and lists like its own.

    The chosen members of a list close up in their order.

    Raises:
        TooExpensive: It would take more work than there may be.
    """
    counted = work or Work()
    counted.begin("the projection")
    part = _part(item, projection.tree, counted)
    return {} if part is MISSING else part


def _in_order(tree: Tree) -> Tree:
    steps = sorted(tree, key=lambda step: step if isinstance(step, int) else 0)
    return {step: _in_order(tree[step]) for step in steps}


def _part(value: Any, tree: Tree, work: Work) -> Any:
    """What a value has of a tree; a tree without branches stands for all of it."""
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
