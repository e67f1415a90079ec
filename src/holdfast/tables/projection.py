"""Projections: the parts of an item that a caller wants to see.

Law: a projection never fails on an item. What is not there is left out, and so is what would only hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import ValidationError
from holdfast.tables.paths import MISSING, lookup, paths_of, tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.tables.paths import Path, Tree


def projection_of(given: object, *, field: str = "projection") -> tuple[Path, ...]:
    """The paths of a projection, of which there must be one.

    Raises:
        ValidationError: It is no list of paths.
    """
    paths = paths_of(given, field=field)
    if not paths:
        raise ValidationError(f"{field} must name at least one path", field=field)
    return paths


def project(item: dict[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """What an item has at these paths, in objects and lists like its own.

    The chosen members of a list close up in their order. Of two paths of which one begins with the other, the
    shorter tells.
    """
    part = _part(item, tree_of(paths))
    return {} if part is MISSING else part


def _part(value: Any, tree: Tree) -> Any:
    """What a value has of a tree; a tree without branches stands for all of it."""
    if not tree or value is MISSING:
        return value
    steps = sorted(tree, key=lambda step: step if isinstance(step, int) else 0)
    parts = {step: _part(lookup(value, (step,)), tree[step]) for step in steps}
    found = {step: part for step, part in parts.items() if part is not MISSING}
    if not found:
        return MISSING
    return found if isinstance(value, dict) else list(found.values())
