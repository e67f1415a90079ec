"""`holdfast shell` at a terminal: the line, its history, and what the Tab key offers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shlex
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.cli.commands import commands as completion
from holdfast.edges.cli.commands import shell
from holdfast.edges.cli.target import HERE, KeptStore
from holdfast.edges.screen import HARMFUL
from tests.edges.cli.conftest import EVERYWHERE, fill
from tests.edges.cli.test_terminal import Terminal, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program
    from tests.forking import Forked

PROMPT = b"holdfast jobs>"
BEGUN = b"\x1b[?2004h"
"""What a terminal is told when a line begins."""
PATIENCE = 60.0
NASTY = (
    "a b",
    "a'quote",
    'a"double',
    "a$(touch x)",
    "a;ls",
    "a\\back",
    "a\x1b]0;x\x07",
    "a\u202egpj",
    "a\nb",
    "a*",
)
"""Keys that would be taken apart by a shell, or obeyed by a terminal."""


class Seat:
    """Somebody at a prompt."""

    def __init__(self, process: Forked, terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._shown = b""

    def until(self, text: bytes) -> bytes:
        """Wait for a text, and take all that was shown up to it."""
        while text not in self._shown:
            assert select.select([self._terminal], [], [], PATIENCE)[0], self._shown
            part = read(self._terminal)
            assert part, self._shown
            self._shown += part
        seen, _, self._shown = self._shown.partition(text)
        return seen

    def at_the_prompt(self) -> bytes:
        """Wait until a line can be typed; what was shown before."""
        return self.until(BEGUN) + self.until(PROMPT)

    def type(self, text: bytes) -> None:
        """Type."""
        os.write(self._terminal, text)

    def leave(self) -> int:
        """Press Ctrl-D; the exit code."""
        self.type(b"\x04")
        while read(self._terminal):
            pass
        return self.process.wait(timeout=PATIENCE)


@contextlib.contextmanager
def seated(program: Program) -> Iterator[Seat]:
    """A prompt for the length of a block."""
    process, terminal = Terminal(program, PROMPT_TOOLKIT_NO_CPR="1").start("shell")
    try:
        seat = Seat(process, terminal)
        yield seat
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_a_prompt(program: Program, tmp_path: Path) -> None:
    """Lines are run and kept for the owner alone; Ctrl-C clears a line or ends a command, Ctrl-D leaves."""
    with seated(program) as seat:
        seat.at_the_prompt()
        seat.type(b"set k 41\r")
        assert b"1\r\n" in seat.at_the_prompt()
        seat.type(b"delete k\x03")
        seat.at_the_prompt()
        seat.type(b" incr k\r")
        assert b"42\r\n" in seat.at_the_prompt()
        seat.type(b"get gone\r")
        assert b"there is no key" in seat.at_the_prompt()
        seat.type(b"watch --since 0\r")
        seat.until(b"  cli\r\n")
        seat.process.send_signal(signal.SIGINT)
        seat.at_the_prompt()
        seat.type(b"get k\r")
        assert b"42\r\n" in seat.at_the_prompt()
        assert seat.leave() == 0
    kept = tmp_path / "state" / "holdfast" / "shell-history"
    typed = [line[1:] for line in kept.read_text().splitlines() if line.startswith("+")]
    assert typed == ["set k 41", "get gone", "watch --since 0", "get k"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_the_tab_key(program: Program, url: str) -> None:
    """Tab completes a key whatever is in it, and a terminal is shown nothing that it would obey."""
    fill(url, ("esc\x1b]0;owned\x07 \u202e'x", "found it", {}))
    with seated(program) as seat:
        seat.at_the_prompt()
        seat.type(b"ge\t")
        seat.until(b"ge")
        seat.until(b"t")
        seat.type(b" esc\t")
        seen = seat.until(b"owned")
        seat.type(b"\r")
        seen += seat.until(b"found it")
        assert b"\x1b]0;owned" not in seen
        assert "\u202e".encode() not in seen
        seat.at_the_prompt()
        assert seat.leave() == 0


def test_a_history_that_others_could_read(program: Program, tmp_path: Path) -> None:
    """The file is closed to others; where there can be none, the prompt says so and works without."""
    kept = tmp_path / "state" / "holdfast" / "shell-history"
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    kept.chmod(0o644)
    with seated(program) as seat:
        seat.at_the_prompt()
        assert seat.leave() == 0
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.unlink()
    kept.symlink_to(tmp_path / "elsewhere")
    with seated(program) as seat:
        assert b"is not kept" in seat.at_the_prompt()
        seat.type(b"set a 1\r")
        seat.at_the_prompt()
        assert seat.leave() == 0
    assert not (tmp_path / "elsewhere").exists()


async def offered(text: str) -> list[str]:
    """What a line could go on with."""
    return [offer.text for offer in await completion.offers(text, HERE)]


async def test_commands_and_options(cli: Cli) -> None:
    """Commands, those of groups, and the options of each are completed from its own declarations."""
    assert await offered("se") == ["set"]
    assert {"get", "slowlog", "shell", "rm"} <= set(await offered(""))
    assert await offered("checkpoint ") == ["get", "set"]
    assert await offered("table index q") == ["query"]
    assert await offered("holdfast set k 1 --if") == ["--if-version"]
    assert "--json" in await offered("list --")
    assert await offered("-p jobs checkpoint g") == ["get"]
    assert await offered("nonsense x") == []


@EVERYWHERE
def test_names_of_the_store(cli: Cli, url: str) -> None:
    """Keys and namespaces are completed wherever they are meant, as one word of the line each."""
    fill(url, *((key, 1, {}) for key in NASTY))
    fill(url, ("other", 1, {}), plugin="trivia")
    cli.did("set", "jobs/1", "1", "--tenant", "acme", "--project", "web")
    asyncio.run(_complete())


async def _complete() -> None:
    found = await completion.offers("get a", HERE)
    assert sorted(shlex.split(offer.text)[0] for offer in found) == sorted(NASTY)
    assert not any(HARMFUL.search(offer.shown) for offer in found)
    assert await offered('history --limit 5 "a b') == ["'a b'"]
    assert await offered("set --keep-ttl oth") == []
    assert await offered("set -p trivia oth") == ["other"]
    assert await offered("rm --prefix o -p trivia --dry-run --plugin tr") == ["trivia"]
    assert await offered("rm -p trivia --prefix o") == ["other"]
    assert await offered("get -p ") == ["jobs", "trivia"]
    assert await offered("get --tenant ") == ["acme"]
    assert await offered("get --tenant acme --project ") == ["web"]
    assert await offered("namespace show kv/") == ["kv/jobs", "kv/trivia"]
    assert await offered("get --tenant acme --project web jo") == ["tenant/acme/project/web/jobs/1"]
    assert await offered("set a ") == []
    assert await offered("--plugin ") == ["jobs", "trivia"]
    assert await offered("-p trivia get oth") == ["other"]
    assert await offered("history --limit ") == []


async def test_a_store_that_does_not_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where names can't be had, nothing is offered and nothing is said."""
    monkeypatch.setenv("HOLDFAST_URL", "nats://127.0.0.1:9?timeout=1")
    assert await offered("get a") == []
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    monkeypatch.setenv("HOLDFAST_URL", "memory://")
    assert await offered("get a") == []


def test_without_the_library(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the package that is missing and what installs it; a pipe needs none."""
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.delitem(sys.modules, "holdfast.edges.cli.prompt", raising=False)
    commands = shell.Commands(KeptStore("memory://"), as_json=False, by_hand=True)
    with pytest.raises(holdfast.Unsupported, match=r"prompt_toolkit: pip install 'holdfast-kv\[cli\]'"):
        asyncio.run(shell._by_hand(commands, HERE))
    assert cli.did("shell", stdin="set a 1\n").out == "1\n"


def test_other_commands_do_without_the_library(program: Program) -> None:
    """No other command pays for the prompt."""
    code = "import sys; from holdfast.edges.cli.app import app; app.resolved_commands(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=program.environment, capture_output=True, text=True, check=True
    )
    assert "prompt_toolkit" not in loaded.stdout.split()
