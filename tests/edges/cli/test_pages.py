"""The pages about the command line: one is made from the commands, the other's examples are run.

Law: a page never promises what the program does not do.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from holdfast.edges.cli.exit_codes import EXIT_CODES
from holdfast.edges.cli.reference import reference

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Program

pytestmark = pytest.mark.unmeasured

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
MARK: Final = "=== example "
MADE_BY: Final = "python -m holdfast.edges.cli.reference > docs/reference/cli.md"


class Example(NamedTuple):
    """A command of a page, and what the page says that it prints."""

    command: str
    printed: str


def examples_of(page: str) -> list[Example]:
    """The commands of a page's console blocks, in their order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Example(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def pattern_of(printed: str) -> str:
    """What is printed, where an ellipsis stands for anything within a line."""
    return ".*".join(map(re.escape, printed.split("…")))


def test_the_reference_is_up_to_date() -> None:
    """The page of commands is what the commands say; it is written anew by the line in the message."""
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), f"run: {MADE_BY}"


def test_the_reference_has_every_exit_code_and_error() -> None:
    """A script's author finds what each number means."""
    page = reference()
    assert all(f"`{code}`" in page for code in EXIT_CODES)
    assert all(f"\n| {number} | " in page for number in {*EXIT_CODES.values(), 0, 130, 141})


@pytest.mark.parametrize("name", ["howto/export-and-import.md"])
def test_shell_examples_print_what_the_page_says(name: str, program: Program, tmp_path: Path) -> None:
    """Typed into one shell, in an empty folder, every command prints exactly what stands below it."""
    examples = examples_of((DOCS / name).read_text(encoding="utf-8"))
    script = "".join(f"code=$?; echo '{MARK}'; (exit $code)\n{example.command}\n" for example in examples)
    binaries = f"{Path(sys.executable).parent}:{program.environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env=program.environment | {"PATH": binaries},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    answers = done.stdout.split(f"{MARK}\n")[1:]
    assert len(answers) == len(examples) > 10
    for example, answer in zip(examples, answers, strict=True):
        assert re.fullmatch(pattern_of(example.printed), answer), f"$ {example.command}\n{answer}"


def test_the_reader_of_pages_finds_commands() -> None:
    """The test above proves nothing about commands that are not found."""
    page = "a\n```console\n$ x 1\none\ntwo\n$ y\n```\nb\n```console\n$ z\n3…\n```\n"
    assert examples_of(page) == [Example("x 1", "one\ntwo\n"), Example("y", ""), Example("z", "3…\n")]
    assert re.fullmatch(pattern_of("3…\n"), "34.\n")
    assert not re.fullmatch(pattern_of("3…\n"), "4\n")
