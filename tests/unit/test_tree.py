"""The tree stays readable: one class per name, short files, short functions.

Law: the figures are taken from the source of the library as it is. Each check must also reject a small
tree that breaks its rule.
"""

from __future__ import annotations

import ast
import statistics
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LIBRARY: Final = Path(__file__).resolve().parents[2] / "src" / "holdfast"
SOURCES: Final = {
    str(path.relative_to(LIBRARY)): path.read_text(encoding="utf-8") for path in LIBRARY.rglob("*.py")
}
MOST_LINES: Final = 400

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes(text: str) -> list[ast.ClassDef | Function]:
    """The classes and functions of a file. Expressions, which hold none, are passed over to save time."""
    found: list[ast.ClassDef | Function] = []
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append(node)
            if isinstance(node, ast.ClassDef | Function):
                found.append(node)
    return found


def classes_of_one_name(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that several classes have, and the files of those classes."""
    files = defaultdict(list)
    for file, text in sources.items():
        for node in nodes(text):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file)
    return {name: found for name, found in files.items() if len(found) > 1}


def long_files(sources: Mapping[str, str]) -> list[str]:
    """The files with too many lines."""
    return sorted(file for file, text in sources.items() if text.count("\n") > MOST_LINES)


def function_lengths(texts: Iterable[str]) -> list[int]:
    """The lines of each function, its docstring left out, the shortest first."""
    return sorted(
        _lines(node) for text in texts for node in nodes(text) if not isinstance(node, ast.ClassDef)
    )


def _lines(function: Function) -> int:
    return len(set(range(function.lineno, (function.end_lineno or 0) + 1)) - set(_docstring(function)))


def _docstring(function: Function) -> Iterator[int]:
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
            yield from range(first, last + 1)


def test_no_two_classes_have_one_name() -> None:
    """A reader who meets the name of a class knows which class is meant."""
    shared = classes_of_one_name(SOURCES)
    assert shared == {}


def test_two_classes_of_one_name_are_noticed() -> None:
    """The check also sees a class inside a block, as for the type checker."""
    sources = {
        "a.py": "class Same: ...\nclass Other: ...",
        "b.py": "if True:\n    class Same: ...",
    }
    assert classes_of_one_name(sources) == {"Same": ["a.py", "b.py"]}


def test_no_file_is_long() -> None:
    """A file holds one subject, which a reader can take in at one sitting."""
    assert long_files(SOURCES) == []


def test_a_long_file_is_noticed() -> None:
    """A file may have 400 lines, and no more."""
    sources = {"long.py": "pass\n" * (MOST_LINES + 1), "longest.py": "pass\n" * MOST_LINES}
    assert long_files(sources) == ["long.py"]


def test_functions_are_short() -> None:
    """Half of all functions have at most 6 lines, and nine of ten at most 16."""
    lengths = function_lengths(SOURCES.values())
    assert len(lengths) > 3_000
    assert statistics.median(lengths) <= 6
    assert lengths[len(lengths) * 9 // 10] <= 16


def test_the_lines_of_a_function_are_counted() -> None:
    """The signature and the body count, in methods too; the docstring does not."""
    text = '''
class A:
    def one(self): ...

    async def four(
        self,
    ):
        """Say something.

        And more.
        """
        return 1
'''
    assert function_lengths([text]) == [1, 4]
