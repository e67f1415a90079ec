"""Each how-to, in an empty environment that has only the extra that the page names.

The page's Python runs from top to bottom, as a reader types it, and prints what the page says. It sees
nothing of the repository and none of the packages of its developers.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.distribution.environments import ROOT
from tests.docs.test_examples import DATABASE_VARIABLE, SERVICE, examples_of, served

if TYPE_CHECKING:
    from tests.distribution.conftest import Install

FOLDERS: Final = (ROOT / "docs" / "howto", ROOT / "docs" / "tutorial")
INSTALLED: Final = re.compile(r"pip install '?holdfast-kv(?:\[([a-z0-9,-]+)\])?'?$", re.MULTILINE)
THE_READERS: Final = {
    "nats": "a bot has a client of NATS of its own",
    "pytest": "who tests has pytest",
}
"""Packages that a page imports and that are the reader's own, with the reason."""

TYPED_IN: Final = """
import ast, asyncio, contextlib, inspect, io, json, sys
names = {"__name__": "__main__"}
with asyncio.Runner() as runner:
    for source, expected, line in json.load(open("page.json")):
        code = compile(source, f"line {line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = eval(code, names)
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(result)
        if printed.getvalue() != (expected or ""):
            sys.exit(f"line {line} printed {printed.getvalue()!r}, not {expected!r}")
print("done")
"""


def pages() -> list[Any]:
    """The pages with Python, each with the extra that it names first; without one it needs none."""
    found = []
    for page in sorted(path for folder in FOLDERS for path in folder.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        code = "".join(example.block.text for example in examples_of(text))
        imported = set(re.findall(r"^\s*(?:import|from) (\w+)", code, flags=re.MULTILINE))
        if code and not imported & THE_READERS.keys() and DATABASE_VARIABLE not in text:
            named = INSTALLED.findall(text)
            found.append(pytest.param(page, named[0] if named else "", id=page.stem))
    return found


@pytest.mark.parametrize(("page", "extra"), pages())
def test_a_page_needs_only_its_extra(install: Install, page: Path, extra: str, tmp_path: Path) -> None:
    """A reader who installs what the page names, and nothing else, gets what the page promises."""
    text = page.read_text(encoding="utf-8")
    environment = install(extra)
    with asyncio.Runner() as runner, served(text, tmp_path, runner) as service:
        blocks = [
            (block.text.replace(SERVICE, service), expected, block.line)
            for block, expected in examples_of(text)
        ]
        (tmp_path / "page.json").write_text(json.dumps(blocks), encoding="utf-8")
        done = environment.run("python", "-c", TYPED_IN, where=tmp_path)
    assert (done.returncode, done.stdout.strip()[-4:]) == (0, "done"), done.stderr[-2_000:]


def test_every_integration_has_its_page() -> None:
    """Each extra for another project is named by the page of that name, which is run here."""
    run = {one.values[0].stem: one.values[1] for one in pages()}
    for extra in (
        "a2a",
        "adk",
        "agno",
        "django",
        "keyvalue",
        "langgraph",
        "limits",
        "openai-agents",
        "openfeature",
        "starlette",
        "strands",
    ):
        assert run[extra] == extra
