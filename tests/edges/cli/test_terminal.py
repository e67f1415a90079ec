"""On a terminal: tables, a display that is drawn anew, and a bar that shows how far an export is."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
from typing import TYPE_CHECKING

import pytest

import holdfast
from tests.edges.cli.conftest import fill
from tests.forking import Forked, fork

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Program


class Terminal:
    """What a command shows to somebody who sits before it."""

    def __init__(self, program: Program, *, columns: int = 120, **variables: str) -> None:
        self._program = program
        self._variables = {"TERM": "xterm", "COLUMNS": str(columns), **variables}

    def start(self, *arguments: str) -> tuple[Forked, int]:
        """Begin a command, and give the end of the terminal at which one reads."""
        reader, writer = pty.openpty()
        environment = self._program.environment | self._variables
        process = fork("holdfast", arguments, env=environment, streams=(writer, writer, writer))
        os.close(writer)
        return process, reader

    def show(self, *arguments: str, code: int = 0) -> str:
        """All that a command shows, which ends with this exit code."""
        process, reader = self.start(*arguments)
        shown = b""
        while part := read(reader):
            shown += part
        os.close(reader)
        assert process.wait(timeout=60) == code
        return shown.decode()


def read(reader: int) -> bytes:
    """What a terminal shows next; nothing at the end."""
    try:
        return os.read(reader, 65536)
    except OSError:  # the way a terminal says that the last writer is gone
        return b""


@pytest.fixture
def terminal(program: Program, url: str) -> Terminal:
    """A terminal, and two keys to look at."""
    fill(url, ("a[bold]", {"n": 1}, {"ttl": 5000}), ("b", 1, {}))
    return Terminal(program)


def test_tables(terminal: Terminal) -> None:
    """Rows are a table with a heading; what looks like markup is shown as it is."""
    shown = terminal.show("list", "--long")
    assert "updated" in shown
    assert "a[bold]" in shown
    assert "─" in shown


def test_a_value_is_set_out_on_a_terminal(terminal: Terminal) -> None:
    """A value is JSON over several lines for eyes, and on one line for programs and with --json."""
    assert terminal.show("get", "a[bold]") == '{\r\n  "n": 1\r\n}\r\n'
    assert terminal.show("get", "a[bold]", "--json") == '{"n":1}\r\n'


def test_the_bar_of_an_export(terminal: Terminal) -> None:
    """On a terminal an export shows how far it is, and leaves the line clean."""
    shown = terminal.show("export")
    assert "2/2" in shown
    assert '"key":"a[bold]"' in shown


def test_the_bar_of_an_export_of_tables(terminal: Terminal, url: str) -> None:
    """An export of tables shows how many of all items it has written."""
    asyncio.run(_scores(url))
    assert "3/3" in terminal.show("export", "--tables")


async def _scores(url: str) -> None:
    async with holdfast.open(url, reap=False) as store:
        tables = store.tables("jobs")
        await tables.create_table("scores", partition_key=("user", "string"))
        await tables.create_index("scores", "by_team", key=("team", "string"))
        for user in ("ada", "grace", "alan"):
            await tables.put_item("scores", {"user": user, "team": "a"})


def test_the_bars_of_whole_stores(terminal: Terminal, url: str, tmp_path: Path) -> None:
    """A backup, its restore, a copy, a switch and a comparison show how much of how much is done."""
    file, two, three = (str(tmp_path / name) for name in ("b", "two.db", "three.db"))
    for command in (
        ("backup", file, "--url", url),
        ("restore", file, "--url", two),
        ("copy", url, three),
        ("diff", url, three),
    ):
        shown = terminal.show(*command)
        assert re.search(r"(?<!\d)4/4(?!\d)", shown), (command, shown)  # two entries, two records
    shown = terminal.show("copy", two, str(tmp_path / "four.db"), "--switch")
    done, total = map(int, re.findall(r"(\d+)/(\d+)\b", shown)[-1])
    assert done == total, shown
    assert total in {8, 12}, shown  # copied and compared once, or twice if that does not take long


NASTY = "\x1b]0;x\x07\r\n\x7f\x9b31m\x90\u061c\u200e\u202egpj\u2066\u2069\u2028"
"""Text that would set a title, colour what follows, break lines and turn the reading direction around."""
HARMFUL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
DRAWING = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
"""What rich itself tells a terminal, to set colours and to move about."""


COMMANDS = (
    "list",
    "list --long",
    "list --json",
    "get KEY",
    "get TEXT --raw",
    "get KEY --long",
    "get KEY --json",
    "get KEY --long --json",
    "history KEY",
    "history KEY --json",
    "trash list",
    "trash list --json",
    "audit log",
    "audit log --json",
    "export",
)


@pytest.mark.unmeasured
def test_nothing_commands_the_terminal(program: Program, url: str) -> None:
    """Keys, values and writers show as they are and do nothing, whatever a plugin wrote."""
    key = f"k{NASTY}"
    asyncio.run(_written(url, key))
    for command in COMMANDS:
        arguments = [{"KEY": key, "TEXT": "text"}.get(word, word) for word in command.split()]
        shown = DRAWING.sub("", Terminal(program, columns=400).show(*arguments))
        assert HARMFUL.search(shown.replace("\r\n", "\n")) is None, command
        assert "\\u202e" in shown, command


async def _written(url: str, key: str) -> None:
    async with holdfast.open(url, reap=False) as store:
        await store.set_policy("kv/jobs", {"audit": True, "trash": True})
        for name in (key, f"gone{NASTY}"):
            await store.kv("jobs").set(name, {NASTY: [NASTY]}, writer="me\u202e\u2066")
        await store.kv("jobs").set("text", NASTY)
        await store.kv("jobs").delete(f"gone{NASTY}")


def test_escaped_output_is_the_same_json(program: Program, url: str) -> None:
    """A program that reads the output gets every character back."""
    fill(url, (f"k{NASTY}", {NASTY: NASTY}, {}))
    assert json.loads(program("get", f"k{NASTY}").stdout) == {NASTY: NASTY}
    assert json.loads(program("export").stdout.split("\n")[1])["value"] == {NASTY: NASTY}


def test_top_is_drawn_anew(terminal: Terminal) -> None:
    """The display of namespaces is drawn on its own screen, which Ctrl-C leaves."""
    process, reader = terminal.start("top", "--interval", "0.05")
    shown = b""
    while b"kv/jobs" not in shown:
        shown += read(reader)
    process.send_signal(signal.SIGINT)
    while part := read(reader):
        shown += part
    os.close(reader)
    assert process.wait(timeout=60) == 130
    assert shown.startswith(b"\x1b[?1049h")
    assert b"\x1b[?1049l" in shown
    assert b"Traceback" not in shown


def test_help_is_in_boxes(terminal: Terminal) -> None:
    """Help is drawn in boxes for people."""
    assert "╭" in terminal.show("set", "--help")


def test_a_watch_in_columns(terminal: Terminal) -> None:
    """Changes are set in columns for eyes."""
    process, reader = terminal.start("watch", "--since", "0")
    shown = b""
    while shown.count(b"\n") < 2:
        shown += read(reader)
    process.send_signal(signal.SIGINT)
    while read(reader):
        pass
    os.close(reader)
    assert process.wait(timeout=60) == 130
    assert b"  set             2  b  embedded" in shown
