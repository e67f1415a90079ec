"""Every generated file with its text, and the blocks between markers of pages that are generated in parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.edges.cli.commands.up import example_json, example_toml
from tools import dashboard, layers
from tools.pages import asyncapi, cli, errors, http, mcp, nights, schema, settings, verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT: Final = Path(__file__).resolve().parents[2]
REFERENCE: Final = ROOT / "docs" / "reference"
BLOCKS: Final[dict[str, Callable[[], Iterable[str]]]] = {
    **verbs.BLOCKS,
    **http.BLOCKS,
    **mcp.BLOCKS,
    **settings.BLOCKS,
    **nights.BLOCKS,
}
"""The lines of each block, by the name in its markers."""
_BLOCK: Final = re.compile(r"<!-- begin (\w+):.*?<!-- end \1 -->", re.DOTALL)


def with_blocks(text: str) -> str:
    """Return a page with the text between its markers made anew."""
    return _BLOCK.sub(lambda match: _block(match[1]), text)


def _block(name: str) -> str:
    return "\n".join(
        [f"<!-- begin {name}: made by ./dev pages -->", "", *BLOCKS[name](), "", f"<!-- end {name} -->"]
    )


def generated() -> dict[Path, str]:
    """Return the text of every generated file, by its path."""
    paths = [*sorted(REFERENCE.glob("*.md")), ROOT / "docs/explanation/trust.md"]
    pages = {path: path.read_text(encoding="utf-8") for path in paths}
    return {
        **{path: with_blocks(text) for path, text in pages.items() if _BLOCK.search(text)},
        REFERENCE / "cli.md": cli.reference(),
        REFERENCE / "errors.md": errors.reference(),
        REFERENCE / "asyncapi.yaml": asyncapi.text(),
        ROOT / "docs/explanation/architecture.svg": layers.drawn(),
        ROOT / "ops/grafana/holdfast.json": dashboard.text(),
        ROOT / "holdfast.toml.dist": example_toml(),
        ROOT / "config.json.dist": example_json(),
        **{
            ROOT / f"src/holdfast/engines/sql/ddl/{dialect}.sql": schema.render(dialect)
            for dialect in schema.DIALECTS
        },
    }
