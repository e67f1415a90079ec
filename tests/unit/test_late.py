"""Imports inside functions, and names that packages import on first use."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import holdfast
from holdfast import decide, operators, upkeep
from holdfast.handles import recipes

LIBRARY: Final = Path(holdfast.__file__).parent
REASON: Final = "# late: "
_FOR_TYPES: Final = re.compile(r"^if TYPE_CHECKING:\n(?:(?:[ \t].*)?\n)*", re.MULTILINE)
_INSIDE: Final = re.compile(r"^(?!import\b|from\b).*\bimport\b", re.MULTILINE)
"""A line that may be an import inside a function; one without an indent at its start is none."""


def unexplained(text: str) -> list[int]:
    """The lines of imports inside functions that have no reason above them.

    Imports that follow one another share the reason above the first.
    """
    if _INSIDE.search(_FOR_TYPES.sub("", text)) is None:
        return []  # to parse every file takes seconds
    lines = text.split("\n")
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    late = {
        node.lineno: node.end_lineno or node.lineno
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    explained = {start for start in late if lines[start - 2].strip().startswith(REASON)}
    for start in sorted(late):
        if any(late[before] in (start - 1, start - 2) for before in explained):
            explained.add(start)
    return sorted(late.keys() - explained)


@pytest.mark.unmeasured  # it reads the library and runs none of it
def test_an_import_inside_a_function_says_why() -> None:
    """A reader finds what a module needs at its top; any other import names a driver or a measured gain."""
    files = sorted(LIBRARY.rglob("*.py"))
    assert len(files) > 300
    found = {
        str(path.relative_to(LIBRARY)): lines
        for path in files
        if (lines := unexplained(path.read_text(encoding="utf-8")))
    }
    assert found == {}, "put the import at the top, or say why not in a comment above it: # late: …"


def test_an_unexplained_import_is_noticed() -> None:
    """The test above sees an import in a function, however deep; a reason is for one block."""
    assert unexplained("def f():\n    if 1:\n        import json\n") == [3]
    assert unexplained("def f():\n    # late: rare\n    import json\n    import re\n\n    import os\n") == []
    assert unexplained("def f():\n    # late: rare\n    import json\n    g()\n    h()\n    import os\n") == [
        6
    ]
    assert unexplained("import json\n\n\nasync def f():\n    pass\n") == []


@pytest.mark.parametrize(
    "package", [holdfast, decide, operators, upkeep, recipes], ids=lambda one: one.__name__
)
def test_a_package_exports_what_it_says(package: object) -> None:
    """Every name of a package can be imported, also one that is imported on first use; no other can."""
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is getattr(package, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        package.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    """Opening a store does not pay for recipes; the first use of one imports it."""
    code = (
        "import sys, holdfast, holdfast.handles.kv; from holdfast.handles import recipes\n"
        "seen = lambda: [one for one in ('counter', 'lock') if f'{recipes.__name__}.{one}' in sys.modules]\n"
        "print(seen()); recipes.counter; print(seen())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n['counter']\n"
