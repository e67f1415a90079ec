"""Every console block of the documentation: its commands are understood, and what can run does what it shows.

Law: the commands of a page run from top to bottom in an empty folder, with its Python between them, in a
shell that knows no more than pages use. Only programs that are listed here are started, and none of them
changes anything outside that folder. Of our own commands those that are not run are listed with the reason,
and even then the command line must understand them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from holdfast.edges import cli
from holdfast.edges.cli.app import app, command_first
from tests.docs.test_examples import (
    DATABASE_VARIABLE,
    PAGES,
    ROOT,
    SERVICE,
    Block,
    blocks_of,
    compiled,
    run,
    served,
)

STARTED: Final = frozenset({"holdfast", "export", "cat", "head", "echo", "sqlite3", "psql"})
"""The programs that are run. Others that pages name set up a machine, or need one of the reader's own."""

NOT_RUN: Final = {
    r"export DATABASE_URL": "sets up the reader's own environment",
    r"holdfast up": "goes on until Ctrl-C; tests/edges/test_up.py runs it",
    r"cat prometheus|cat \./holdfast\.toml|cat secret\.json": "shows a file of the reader's own",
    r"holdfast (bench|rescue|ping) .*--url (nats|postgresql)://": "needs a running service or database",
    r"holdfast --url nats://": "needs a running service",
    r"holdfast slowlog": "needs a running service; tests/edges/cli/test_slowlog.py runs it",
    r"holdfast list .*@bus\.example|echo 'tls ": "needs a server of the reader's own",
    r"holdfast (audit|deadletter|doctor|namespace set kv/billing)": "is about a store that the page tells of",
    r"holdfast migrate --reset-clock": "is about a store whose clock was ahead",
}
"""Commands that are not run, each kind with the reason."""

RUN_ELSEWHERE: Final = {
    ROOT / "docs/howto/deployment-checklist.md": "tests/docs/test_checklist.py runs it beside a service",
    ROOT / "docs/howto/isolate-plugins.md": "tests/docs/test_bus_pages.py runs it beside a NATS server",
    ROOT / "docs/howto/run-with-compose.md": "needs Docker; tests/deploy reads the files",
    ROOT / "docs/howto/tls.md": "tests/docs/test_bus_pages.py runs it beside a NATS server",
    ROOT / "docs/howto/use-the-command-line.md": "needs an editor and a service; tests/edges/cli runs each",
}
"""Pages whose commands need more than an empty folder, and what runs them instead."""


class Command(NamedTuple):
    """A command of a page, the line where it stands, and what it shows."""

    line: int
    text: str
    shown: str


def commands_of(page: str) -> list[Command]:
    """The commands of all console blocks of a page."""
    blocks = (block for block in blocks_of(page) if block.info == "console")
    return [command for block in blocks for command in commands_in(block)]


def commands_in(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines()):
        if found and found[-1].text.endswith("\\"):
            found[-1] = found[-1]._replace(text=found[-1].text[:-1] + line)
        elif line.startswith("$ "):
            found.append(Command(block.line + number, line[2:], ""))
        else:
            assert found, f"line {block.line}: which command shows this?"
            found[-1] = found[-1]._replace(shown=f"{found[-1].shown}{line}\n")
    return found


def stages_of(text: str) -> list[list[str]]:
    """The words of each program of a pipe."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    stages: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


def without_settings(words: list[str]) -> list[str]:
    """The words of a program, without the variables that are set for it."""
    return words[next(number for number, word in enumerate(words) if not re.match(r"\w+=", word)) :]


class Shell:
    """Runs commands one after the other; `holdfast` in this process, since a new one takes long."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._code = 0

    def __call__(self, text: str) -> str:
        """Run a command; all that it shows."""
        shown, given = "", b""
        for words in stages_of(text):
            told_of = (os.path.expandvars(word.replace("$?", str(self._code))) for word in words)
            given, told = self._run(list(told_of), given)
            shown += told
        return shown + given.decode()

    def require(self, command: Command) -> None:
        """Run a command that must show what the page says, or succeed where it shows nothing."""
        shown = self(command.text)
        pattern = ".*".join(map(re.escape, command.shown.split("…")))
        as_told = re.fullmatch(pattern, shown) if command.shown else self._code == 0
        assert as_told, f"line {command.line}: {shown}"

    def _run(self, words: list[str], given: bytes) -> tuple[bytes, str]:
        if words[0] == "export":
            for setting in words[1:]:
                self._patch.setenv(*setting.split("=", 1))
            return b"", ""
        if words[0] == "holdfast":
            return self._holdfast(words[1:], given)
        target = Path(words.pop()) if ">>" in words and words.pop(-2) else None
        done = subprocess.run(words, input=given, capture_output=True, check=False)
        self._code = done.returncode
        if target is None:
            return done.stdout, done.stderr.decode()
        with target.open("ab") as file:
            file.write(done.stdout)
        return b"", done.stderr.decode()

    def _holdfast(self, arguments: list[str], given: bytes) -> tuple[bytes, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self._code = cli.run(arguments)
        out.flush()
        return out.buffer.getvalue(), err.getvalue()


def is_run(command: Command) -> bool:
    """Whether a command is one that is run here."""
    started = all(words[0] in STARTED for words in stages_of(command.text))
    return started and not any(re.match(pattern, command.text) for pattern in NOT_RUN)


def pages_with(*, run: bool) -> list[Path]:
    """The pages that have a command which is run, or any command."""
    found = ((page, commands_of(page.read_text(encoding="utf-8"))) for page in PAGES)
    wanted = (one for one in found if not run or one[0] not in RUN_ELSEWHERE)
    return [page for page, commands in wanted if any(not run or is_run(one) for one in commands)]


@pytest.mark.parametrize("page", pages_with(run=True), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_do_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A reader who types the commands of a page sees what it shows; `…` stands for anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    shell, names = Shell(monkeypatch), {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    if DATABASE_VARIABLE in text:
        monkeypatch.setenv(DATABASE_VARIABLE, request.getfixturevalue("pg_url"))
    with asyncio.Runner() as runner, served(text, tmp_path, runner) as service:
        for block in blocks_of(text):
            if block.info == "python":
                run(compiled(block, page, service), names, runner)
            elif block.info == "console":
                for command in filter(is_run, commands_in(block)):
                    shell.require(command._replace(text=command.text.replace(SERVICE, service)))


@pytest.mark.parametrize("page", pages_with(run=False), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_understood(page: Path) -> None:
    """Every command of ours on a page is one that there is, with arguments and flags that it takes."""
    for command in commands_of(page.read_text(encoding="utf-8")):
        for words in stages_of(command.text):
            called = without_settings(words) if words[0] != "export" else words
            called = called[: called.index(">")] if ">" in called else called
            if called[0] == "holdfast":
                app.parse_args(command_first(called[1:]), exit_on_error=False, print_error=False)


def test_the_shell_notices() -> None:
    """The tests above would prove nothing if commands were not found, or all of them were left out."""
    page = "```console\n$ a 'b c' | d\n1\n2\n$ e\n```\n"
    assert commands_of(page) == [Command(2, "a 'b c' | d", "1\n2\n"), Command(5, "e", "")]
    assert stages_of("a 'b c' | d >> f # why") == [["a", "b c"], ["d", ">>", "f"]]
    run = [one for page in PAGES for one in commands_of(page.read_text(encoding="utf-8")) if is_run(one)]
    assert len(run) > 15
    with pytest.raises(Exception, match="nonsense"):
        app.parse_args(["list", "--nonsense"], exit_on_error=False, print_error=False)
