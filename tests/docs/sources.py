"""The source of the package as syntax trees, for tests that hold a page against what the code says.

The source is read, never run. A text of the source is a template: its fixed parts, with a hole wherever
something is put in when the program runs.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Template: TypeAlias = tuple[str | None, ...]
"""The fixed parts of a text in their order; None is a hole."""

PACKAGE: Final = Path(__file__).resolve().parents[2] / "src" / "holdfast"
_HOLE: Final = re.compile(r"%[-+.\d]*[a-z]|\{\w*\}")
"""Where logging and `str.format` put something in."""
_SILENT: Final = (ast.Name, ast.Import, ast.ImportFrom, ast.expr_context, ast.operator, ast.cmpop)
"""What holds no text."""


def trees(found: re.Pattern[str] | None = None) -> Iterator[ast.Module]:
    """Every module of the package but the classes of errors and what is made for tests.

    They come one by one: to keep them all, and look for garbage in them, takes longer than to parse them.

    Args:
        found: What a module must have in its text; by default all modules are parsed.
    """
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] not in ("errors.py", "testing"):
            text = path.read_text(encoding="utf-8")
            if found is None or found.search(text):
                yield ast.parse(text)


@cache
def templates() -> frozenset[Template]:
    """Every text in the package that is no documentation."""
    return frozenset(one for tree in trees() for one in _texts(tree))


def _texts(tree: ast.AST) -> Iterator[Template]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield _with_holes(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield tuple(part.value if isinstance(part, ast.Constant) else None for part in node.values)  # type: ignore[misc]
            waiting += [part for part in node.values if not isinstance(part, ast.Constant)]
        elif not isinstance(node, _SILENT) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            waiting += ast.iter_child_nodes(node)


def _with_holes(text: str) -> Template:
    parts: list[str | None] = []
    end = 0
    for found in _HOLE.finditer(text):
        parts += [text[end : found.start()], None]
        end = found.end()
    return (*parts, text[end:])
