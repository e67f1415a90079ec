"""The name to install is `holdfast-kv`: whoever follows our words must not install another project.

Every text of the repository is searched, this one too, so no example here is written in one piece.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WRONG: Final = "hold" + "fast"
RIGHT: Final = f"{WRONG}-kv"

_END: Final = r"(?![\w.-])"
_INSTALLS: Final = re.compile(
    r"\b(?:pip[\d.]*|pipx|uv|uvx|poetry|pdm|conda)\s+(?:(?:pip|tool|self)\s+)?"
    r"(?:install|add|run|inject|upgrade|download|uninstall)\b"
    rf"(?:[ \t]+[^\s`'\",;:]+)*?[\s'\"\\]+{WRONG}{_END}"
)
_RUNS: Final = re.compile(rf"\buvx\s+['\"]?{WRONG}{_END}")
_EXTRA: Final = re.compile(rf"(?<![\w.-]){WRONG}\\?\[[a-z]+(?:,[a-z]+)*\\?\]")
_METADATA: Final = re.compile(
    rf"\b(?:version|requires|metadata|distribution|files)\(\s*['\"]{WRONG}['\"]\s*\)"
)
_FORMS: Final = (
    (_INSTALLS, ("pip", "uv", "poetry", "pdm", "conda")),
    (_RUNS, ("uvx",)),
    (_EXTRA, (f"{WRONG}[", f"{WRONG}\\[")),
    (_METADATA, (f"'{WRONG}'", f'"{WRONG}"')),
)
"""Each form with words of which a text that has it has one, since to search for words is quick."""


def wrong_names(text: str) -> list[str]:
    """Return every piece of a text that would install another project, or look for it among the installed."""
    return [
        found[0]
        for form, words in _FORMS
        if any(word in text for word in words)
        for found in form.finditer(text)
    ]


def texts() -> dict[str, str]:
    """Return every text of the repository by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8", errors="replace")
        for path in paths
        if path.is_file()
    }


def test_no_text_installs_another_project() -> None:
    """README, docs, messages, help, comments and tests name the distribution that is ours."""
    found = texts()
    assert {"README.md", "src/holdfast/__main__.py", "docs/index.md", "pyproject.toml"} <= found.keys()
    assert {path: wrong for path, text in found.items() if (wrong := wrong_names(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install {}",
        "$ pip install {}                # SQLite",
        "pip install '{}[postgres]'",
        'pip3 install "{}[postgres,nats]"',
        "python -m pip install --upgrade {}",
        "pip install -U {}==0.1.0",
        "`pip install {}`; then",
        "pip install\n{}",
        "uv add {}",
        "uv pip install {}",
        "uv tool install '{}[server]'",
        "pipx install {}",
        "uvx {}",
        "it needs {}[postgres].",
        r"match=r'\'{}\[server\]'",
        'version("{}")',
    ],
)
def test_the_search_finds_every_form(text: str) -> None:
    """The test above proves nothing about a form that the search does not see."""
    assert wrong_names(text.format(WRONG)) != []
    assert wrong_names(text.format(RIGHT)) == []


@pytest.mark.parametrize(
    "text",
    ["pip install the package, then run {} up", "{}.open(url)", "{}['a']", "uv run python -m {}.engines"],
)
def test_the_search_leaves_the_command_alone(text: str) -> None:
    """The import and the command are called so."""
    assert wrong_names(text.format(WRONG)) == []
