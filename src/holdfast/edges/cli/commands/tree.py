"""`holdfast tree`: the keys of a namespace as branches.

Only keys are read, and a branch below the requested depth is only counted.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.list import pages
from holdfast.edges.cli.options import number
from holdfast.edges.cli.output import document, line, shown_key
from holdfast.edges.cli.target import HERE, Target

SEPARATORS: Final = "/:"
_STEP: Final = "  "


class Branch:
    """A part of keys that ends with a separator, or a whole key, and the number of keys below it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys = 0
        self.branches: dict[str, Branch] = {}

    def document(self) -> dict[str, Any]:
        """Return the branch and those below it as a document."""
        fields: dict[str, Any] = {"name": self.name, "keys": self.keys}
        return (
            fields | {"branches": [one.document() for one in self.branches.values()]}
            if self.branches
            else fields
        )


async def tree(
    prefix: str = "",
    /,
    *,
    depth: Annotated[int | None, Parameter(converter=number)] = None,
    separators: str = SEPARATORS,
    target: Target = HERE,
) -> None:
    """Print the keys of a namespace as a tree, with the number of keys in each branch.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    depth
        Number of levels to show; all if not given.
    separators
        The characters after which keys branch: / and : if not given.
    """
    if depth is not None and (type(depth) is not int or depth < 1):
        raise holdfast.ValidationError("depth must be a whole number from 1", field="depth")
    root = Branch(prefix)
    parts = (
        re.compile(f"[^{re.escape(separators)}]*[{re.escape(separators)}]|.+", re.DOTALL)
        if separators
        else None
    )
    async with target.look() as store:
        walk = pages(target.keys(store), prefix, limit=None, cursor=None, values=False, follow=True)
        async for page in walk:
            for key in page.keys:
                _add(root, [key] if parts is None else parts.findall(key), depth)
    if target.json:
        document(root.document())
        return
    _print(root, "")


def _add(root: Branch, parts: list[str], depth: int | None) -> None:
    branch = root
    branch.keys += 1
    for part in parts[:depth]:
        branch = branch.branches.setdefault(part, Branch(part))
        branch.keys += 1


def _print(branch: Branch, indent: str) -> None:
    for name, one in branch.branches.items():
        line(f"{indent}{shown_key(name)}" + (f" ({one.keys})" if one.branches or one.keys > 1 else ""))
        _print(one, indent + _STEP)
