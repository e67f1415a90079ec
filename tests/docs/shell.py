"""A shell for the commands of a page, which knows no more than pages use.

`holdfast` runs in this process, since a new one takes long; only what serves or waits for Ctrl-C is a
process of its own. Addresses and folders that a page names are replaced by those of the test, and replaced
back in what is shown. Nothing outside the test's folder is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import nats
import pytest

from holdfast.edges import cli
from tests.docs.test_examples import SERVICE, Block, blocks_of
from tests.edges.running import PATIENCE, Up

HTTP: Final = "http://127.0.0.1:8420"
"""Where pages find the health and the metrics of a service."""
FOLDERS: Final = (
    "/backup/",
    "/backups/",
    "/data/",
    "/elsewhere/",
    "/srv/holdfast/",
    "/var/lib/holdfast/",
    "/var/log/",
)
"""Folders of a reader's machine."""
_VARIABLE: Final = re.compile(r"\w+=")
_SHOWN: Final = re.compile(
    r"…|[0-9a-f]{4}…|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)|\b\d+\.\d+\b"
)
"""What differs from run to run: anything, a hash, a time, and a number with a fraction."""


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
    return words[next(number for number, word in enumerate(words) if not _VARIABLE.match(word)) :]


def pattern_of(shown: str) -> str:
    """An expression for what a page shows, in which only what differs from run to run is free."""
    kinds = {"…": ".*", "Z": r"[-\d]+T[:\d.]+Z", "+00:00": r"[-\d]+T[:\d.]+\+00:00"}
    parts, last = [], 0
    for free in _SHOWN.finditer(shown):
        text = free.group()
        kind = next((kind for end, kind in kinds.items() if text.endswith(end)), r"[\d.]+")
        parts += [re.escape(shown[last : free.start()]), kind]
        last = free.end()
    return "".join([*parts, re.escape(shown[last:])])


class Services:
    """The service that a page speaks to: one at a time, from the first `holdfast up` or request on."""

    def __init__(self, home: Path, runner: asyncio.Runner) -> None:
        self.home = home
        self._runner = runner
        self._up: Up | None = None

    @property
    def url(self) -> str:
        """The address of the one that runs. One is started if there is none."""
        return (self._up or self.start()).url

    def start(self, *arguments: str, **variables: str) -> Up:
        """Start one with these arguments and variables, instead of the one that runs."""
        self.stop()
        scripts = Path(sys.executable).parent
        up = Up(self.home, arguments, {"PATH": f"{scripts}:{os.environ['PATH']}", **variables})
        self._runner.run(up.start())
        self._up = up
        return up

    def running(self) -> dict[str, str]:
        """The addresses of the service that runs, by those that a page names; empty if none runs."""
        up = self._up
        return {SERVICE: up.url, HTTP: f"http://127.0.0.1:{up.http_port}"} if up else {}

    def stop(self) -> None:
        """Stop the one that runs, as Ctrl-C does."""
        if self._up is not None:
            up, self._up = self._up, None
            assert self._runner.run(up.stop()) == 0


class Shell:
    """Runs commands one after the other.

    Args:
        patch: Sets variables.
        folder: The folder that stands for the reader's machine.
        services: Serve what commands ask for.
    """

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, services: Services) -> None:
        self.places: dict[str, str] = {}
        self.services = services
        self._patch = patch
        self._folder = folder
        self._code = 0

    def __call__(self, text: str) -> str:
        """Run a command; all that it shows."""
        places = self._places_in(text)
        for page, here in places.items():
            text = text.replace(page, here)
        shown, given = "", b""
        for words in stages_of(text):
            expanded = (os.path.expandvars(word.replace("$?", str(self._code))) for word in words)
            given, told = self._stage(list(expanded), given)
            shown += told
        shown += given.decode()
        for page, here in (places | self.services.running()).items():
            shown = shown.replace(here, page)
        return shown

    def require(self, command: Command) -> None:
        """Run a command that must show what the page says, or succeed where it shows nothing."""
        shown = self(command.text)
        if command.shown:
            assert re.fullmatch(pattern_of(command.shown), shown), f"line {command.line}: {shown}"
        else:
            assert self._code == 0, f"line {command.line}: {shown}"

    def _places_in(self, text: str) -> dict[str, str]:
        asks = SERVICE in text or HTTP in text
        if asks and "holdfast up" not in text and not self.services.running():
            self.services.start()
        folders = {name: f"{self._folder}{name}" for name in FOLDERS}
        for folder in folders.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        return {**self.places, **self.services.running(), **folders}

    def _stage(self, words: list[str], given: bytes) -> tuple[bytes, str]:
        """Run a program with the variables before it, and send its output where it goes."""
        target, mode = None, "wb"
        if ">" in words or ">>" in words:
            target, mode = Path(words.pop()), "wb" if words.pop() == ">" else "ab"
        if words[0] == "export":
            for setting in words[1:]:
                self._patch.setenv(*setting.split("=", 1))
            return b"", ""
        called = without_settings(words)
        with pytest.MonkeyPatch.context() as patch:
            for setting in words[: len(words) - len(called)]:
                patch.setenv(*setting.split("=", 1))
            out, err = self._run(called, given)
        if target is None:
            return out, err
        with target.open(mode) as file:
            file.write(out)
        return b"", err

    def _run(self, words: list[str], given: bytes) -> tuple[bytes, str]:
        match words:
            case ["holdfast", "up", *arguments]:
                return self._served(arguments)
            case ["holdfast", "watch", *arguments]:
                return self._watched(arguments)
            case ["holdfast", *arguments]:
                return self._holdfast(arguments, given)
            case ["curl", *arguments]:
                return self._curled(arguments), ""
            case ["nats", "req", subject, payload]:
                return asyncio.run(self._requested(subject, payload)), ""
            case ["python", *arguments]:
                words = [sys.executable, *arguments]
        done = subprocess.run(words, input=given, capture_output=True, check=False)
        self._code = done.returncode
        return done.stdout, done.stderr.decode()

    def _curled(self, arguments: list[str]) -> bytes:
        """Send a request over HTTP as curl does, with its options for a method and a body: the answer."""
        options = dict(pairwise(arguments))
        [address] = [word for word in arguments if word.startswith("http")]
        data = options.get("-d")
        request = urllib.request.Request(
            address, method=options.get("-X"), data=None if data is None else data.encode()
        )
        with urllib.request.urlopen(request) as answer:
            self._code = 0
            return bytes(answer.read()) + (b"" if "metrics" in address else b"\n")

    async def _requested(self, subject: str, payload: str) -> bytes:
        """Send a request to the page's service, as the tool of the NATS project does: the reply."""
        client = await nats.connect(self.services.url)
        reply = await client.request(subject, payload.encode(), timeout=PATIENCE)
        await client.close()
        self._code = 0
        return reply.data + b"\n"

    def _holdfast(self, arguments: list[str], given: bytes) -> tuple[bytes, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self._code = cli.run(arguments)
        out.flush()
        return out.buffer.getvalue(), err.getvalue()

    def _served(self, arguments: list[str]) -> tuple[bytes, str]:
        """Start a service, which goes on: what it says."""
        variables = {name: one for name, one in os.environ.items() if name == "HOLDFAST_LOG_LEVEL"}
        up = self.services.start(*arguments, **variables)
        self._code = 0
        said = "\n".join(up.said) + "\n"
        data = {"/home/ada/.local/share": str(self.services.home)}
        for page, here in {**self.services.running(), **data}.items():
            said = said.replace(here, page)
        return said.encode(), ""

    def _watched(self, arguments: list[str]) -> tuple[bytes, str]:
        """Start a watch, change something until it is shown, and press Ctrl-C."""
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "watch", *arguments], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        shown = b""
        while not shown:
            assert process.poll() is None
            self._holdfast(["set", f"{arguments[0]}watched", "1"], b"")
            shown = process.stdout.read() or b""
        process.send_signal(signal.SIGINT)
        os.set_blocking(process.stdout.fileno(), True)
        shown += process.communicate()[0]
        self._code = 0 if process.returncode in (0, 130) else process.returncode
        return shown, ""
