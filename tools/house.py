"""Print how large Holdfast is and how often it repeats itself: `python -m tools.house [FOLDER]`.

Nothing is enforced here. The figures help to judge a large change: code lines, files, the share of imports,
how many hand-written files spell a verb, and how many methods an engine has to have.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
VERBS: Final = {
    "incr": ("incr", "Incr"),
    "update_item": ("update_item", "UpdateItem"),
    "put_part": ("put_part",),
}
"""Verbs of three families, each with the words that spell it in code."""
NOT_COUNTED: Final = ("sync", "testing", "compat", "integrations", "handles/recipes", "edges/mcp")
"""Where naming a verb repeats nothing: generated code, the conformance kit, and users of the verb."""
_SILENT: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - _docstring_lines(ast.parse(source))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of strings that are statements of their own."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def import_lines(source: str) -> int:
    """Return how many lines are imports."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in nodes)


def spells(source: str, words: tuple[str, ...]) -> bool:
    """Return whether code names a verb: as a name, an attribute, a definition or a whole string."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name)
                | ast.Attribute(attr=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.alias(name=name)
                | ast.keyword(arg=name)
                | ast.Constant(value=str(name))
            ) if name in words:
                return True
            case _:
                pass
    return False


def protocols(folder: Path) -> list[str]:
    """Describe the protocols of an engine: what it must have, may have, and what its methods return."""
    described = []
    for path in sorted(folder.glob("engine/*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
                marks = [
                    [ast.unparse(mark) for mark in part.decorator_list]
                    for part in node.body
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                properties = sum("property" in names for names in marks)
                optional = "runtime_checkable" in map(ast.unparse, node.decorator_list)
                kind = "engine" if node.name == "Engine" else "optional" if optional else "returned"
                described.append(
                    f"{kind} protocol {node.name}: {len(marks) - properties} methods, {properties} properties"
                )
    return described


def main(folder: Path) -> None:
    """Print the figures of the package in a folder."""
    sources = {path: path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    code = {path: len(code_lines(source)) for path, source in sources.items()}
    imports = sum(import_lines(source) for source in sources.values())
    print(f"code lines: {sum(code.values()):,}")
    print(f"files: {len(sources)}")
    print(f"imports: {100 * imports / sum(code.values()):.1f} % of the code")
    for verb, words in VERBS.items():
        files = [
            str(path.relative_to(folder))
            for path, source in sources.items()
            if not str(path.relative_to(folder)).startswith(NOT_COUNTED) and spells(source, words)
        ]
        print(f"files that spell {verb}: {len(files)}")
        for file in files:
            print(f"    {file}")
    print(*protocols(folder), sep="\n")
    for part in sorted({path.relative_to(folder).parts[0] for path in sources if path.parent != folder}):
        inside = [path for path in sources if path.relative_to(folder).parts[0] == part]
        print(f"{part}: {len(inside)} files, {sum(code[path] for path in inside):,} code lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "holdfast")
