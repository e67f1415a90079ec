"""Writes docs/explanation/architecture.svg, the picture of the library's layers, from the tree.

Its law: the layers are those that `./dev check` enforces, and each is described by the first sentence of its
docstring; no words of the picture stand here. It needs nothing but the standard library. `./dev pages`
writes the file.
"""

import ast
import re
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"
LIBRARY = ROOT / "src" / "holdfast"

WIDTH, MARGIN, GAP, LINE = 900, 20, 14, 17
LETTER = 7.1
"""How wide a letter of a sentence is, about."""


def layers() -> list[list[str]]:
    """The layers from the top down, each with the names of its modules and folders."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [contract for contract in contracts if contract["id"] == "layers"]
    return [re.findall(r"\((\w+)\)", layer) for layer in contract["layers"]]


def sentence(name: str) -> str:
    """The first sentence of the docstring of a module or a folder."""
    path = LIBRARY / name / "__init__.py"
    if not path.exists():
        path = LIBRARY / f"{name}.py"
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s", " ".join(told.split("\n\n")[0].split()))[0]


def drawn() -> str:
    """The picture: a row of boxes for each layer; the last layer, of many small modules, is one box."""
    parts: list[str] = []
    top = MARGIN
    for names in layers():
        boxes = _boxes(names)
        wide = (WIDTH - 2 * MARGIN - GAP * (len(boxes) - 1)) / len(boxes)
        texts = [textwrap.wrap(text, int((wide - 24) / LETTER)) for _, text in boxes]
        high = 30 + LINE * max(map(len, texts))
        for number, ((title, _), lines) in enumerate(zip(boxes, texts, strict=True)):
            parts += _box((MARGIN + number * (wide + GAP), top), (wide, high), title, lines)
        top += high + GAP
    size = f'width="{WIDTH}" height="{top}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {top}">',
            f'<rect {size} fill="white"/>',
            '<g font-family="sans-serif" font-size="13">',
            *parts,
            "</g>",
            "</svg>\n",
        ]
    )


def _boxes(names: list[str]) -> list[tuple[str, str]]:
    if len(names) > 3:
        return [("the vocabulary", ", ".join(sorted(names)))]
    return [(f"{name}/" if (LIBRARY / name).is_dir() else name, sentence(name)) for name in names]


def _box(corner: tuple[float, float], size: tuple[float, float], title: str, lines: list[str]) -> list[str]:
    (left, top), (wide, high) = corner, size
    at = f'x="{left + 12:g}"'
    form = f'width="{wide:g}" height="{high:g}" rx="4" fill="#f2f5f8" stroke="#5b6b7b"'
    return [
        f'<rect x="{left:g}" y="{top:g}" {form}/>',
        f'<text {at} y="{top + 19:g}" font-weight="bold" fill="#12304f">{escape(title, quote=False)}</text>',
        *(
            f'<text {at} y="{top + 19 + LINE * number:g}" fill="#333">{escape(line, quote=False)}</text>'
            for number, line in enumerate(lines, 1)
        ),
    ]
