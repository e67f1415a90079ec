"""Every Python example of the documentation runs, and prints what the page says that it prints.

The blocks of a page run from top to bottom in one namespace and in an empty folder, as a reader would
type them into `python -m asyncio`. Programs that a block starts with `sys.executable` are forked. What is not
to be run is listed here with the reason.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import re
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.edges.running import Up

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATABASE_VARIABLE: Final = "DATABASE_URL"
"""The environment variable from which examples take the address of a PostgreSQL."""

SERVICE: Final = "nats://127.0.0.1:4222"
"""The address that an example connects to with `nats.connect`: there a service is running."""

NOT_RUN: Final[dict[str, str]] = {
    "docs/howto/add-a-verb.md": "parts of files, which tests/edges/calls/test_add_a_verb.py runs",
}
"""Pages that may hold a block fenced as `python no-run`, each with the reason."""


class Block(NamedTuple):
    """A fenced block of a page."""

    info: str
    line: int
    text: str


class Example(NamedTuple):
    """A Python block, and what the page says that it prints."""

    block: Block
    printed: str | None


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, and of a fence that is never closed all that follows."""
    found: list[Block] = []
    opened: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(page.splitlines(), start=1):
        if opened is None:
            if line.startswith("```"):
                opened = line[3:].strip(), number + 1, []
        elif line.strip() == "```":
            info, start, lines = opened
            found.append(Block(info, start, "\n".join(lines) + "\n"))
            opened = None
        else:
            opened[2].append(line)
    assert opened is None, f"the fence above line {opened[1]} is never closed"
    return found


def examples_of(page: str) -> list[Example]:
    """The Python blocks of a page; a block of text that follows one is what it prints."""
    blocks = blocks_of(page)
    return [
        Example(block, after.text if after is not None and after.info == "text" else None)
        for block, after in zip_longest(blocks, blocks[1:])
        if block.info == "python"
    ]


def compiled(block: Block, page: Path, service: str = SERVICE) -> CodeType:
    """The code of a block with the lines of its page, in which `await` may stand outside of a function."""
    source = "\n" * (block.line - 1) + block.text.replace(SERVICE, service)
    code: CodeType = compile(
        source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    return code


def run(code: CodeType, names: dict[str, Any], runner: asyncio.Runner) -> str:
    """Run a block, in the page's loop if it awaits anything and outside of any loop if not."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(code, names)
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(result)
    return printed.getvalue()


async def left_behind() -> list[str]:
    """The tasks that are still there, which an open store has."""
    return sorted(task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()})


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page to be run in an empty folder; if it wants a PostgreSQL, there is an empty database for it."""
    path: Path = request.param
    monkeypatch.chdir(tmp_path)
    if DATABASE_VARIABLE in path.read_text(encoding="utf-8"):
        monkeypatch.setenv(DATABASE_VARIABLE, request.getfixturevalue("pg_url"))
    return path


@contextlib.contextmanager
def served(text: str, home: Path, runner: asyncio.Runner) -> Iterator[str]:
    """Run a service for a page that connects to one: its address."""
    if not any(f'{way}("{SERVICE}")' in text for way in ("nats.connect", "holdfast.open")):
        yield SERVICE
        return
    up = Up(home / "service", (), {})
    runner.run(up.start())
    try:
        yield up.url
    finally:
        runner.run(up.stop())


def test_examples_do_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """A reader who types an example gets what the page promises, and every store is closed at the end."""
    names: dict[str, Any] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    with asyncio.Runner() as runner, served(text, tmp_path, runner) as service:
        for block, expected in examples_of(text):
            printed = run(compiled(block, page, service), names, runner)
            assert printed == (expected or ""), f"{page.name}, line {block.line}"
        assert runner.run(left_behind()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_example_escapes(page: Path) -> None:
    """A block is Python that runs, or is listed with a reason; a block of text is what an example prints."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^[ \t>]+```", text, re.MULTILINE), "an indented fence would not be found"
    blocks = blocks_of(text)
    for before, block in zip([None, *blocks], blocks, strict=False):
        if block.info == "text":
            assert before is not None
            assert before.info == "python", f"line {block.line}: what printed this?"
        elif block.info.startswith("python"):
            listed = block.info == "python no-run" and NOT_RUN.get(str(page.relative_to(ROOT)))
            assert block.info == "python" or listed, f"line {block.line}: {block.info}"
        elif block.info == "json":
            json.loads(block.text)
        else:
            assert block.info in {"console", "sql", "drawing", "toml"}, f"line {block.line}: {block.info!r}"


def test_the_reader_of_pages_finds_blocks() -> None:
    """The two tests above prove nothing about blocks that are not found."""
    page = "a\n```python\nprint(1)\n```\n```text\n1\n```\nb\n```console\n$ x\n```\n"
    assert examples_of(page) == [Example(Block("python", 3, "print(1)\n"), "1\n")]
    assert [block.info for block in blocks_of(page)] == ["python", "text", "console"]
    assert sum(len(examples_of(path.read_text(encoding="utf-8"))) for path in PAGES) > 60
