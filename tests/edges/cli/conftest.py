"""The command line under test, within this process for breadth and as a program where the process matters.

Both see an empty store and none of the user's own settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.edges import cli as command_line
from tests.edges.nats.ground import serving
from tests.forking import completed
from tests.nats import nats_server
from tests.parsing import quick_parser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PROGRAM = [sys.executable, "-m", "holdfast"]


@pytest.fixture(scope="session", autouse=True)
def parser() -> Iterator[None]:
    """Have the library that parses commands do less."""
    with quick_parser():
        yield


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on stdout."""
        return json.loads(self.out)

    @property
    def jsons(self) -> list[Any]:
        """The documents on stdout, one on each line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The document on stderr."""
        return json.loads(self.err)


class Cli:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch

    def __call__(self, *arguments: object, stdin: str | bytes = b"") -> Outcome:
        """Run a command."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = command_line.run([str(argument) for argument in arguments])
        return Outcome(code, *self._capsys.readouterr())

    def did(self, *arguments: object, stdin: str | bytes = b"") -> Outcome:
        """Run a command that must succeed without a word on stderr."""
        outcome = self(*arguments, stdin=stdin)
        assert (outcome.code, outcome.err) == (0, "")
        return outcome


class Program:
    """Runs commands as processes."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def __call__(self, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in a process that is forked."""
        return completed("holdfast", *map(str, arguments), env=self.environment, given=stdin)

    def run(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in an interpreter that is started for it."""
        return subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Begin a command that goes on, in an interpreter that is started for it."""
        return subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            env=self.environment,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )


EVERYWHERE = pytest.mark.parametrize("url", ["sqlite", "postgresql", "nats"], indirect=True)
"""Marks a test that is run on a file, on PostgreSQL and through a service."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store that does not exist yet: a file, or what `EVERYWHERE` asks for."""
    match getattr(request, "param", "sqlite"):
        case "postgresql":
            yield request.getfixturevalue("pg_url")
        case "nats":
            with served() as address:
                yield address
        case _:
            yield str(tmp_path / "state.db")


@contextlib.contextmanager
def served() -> Iterator[str]:
    """A service in a thread of its own, since commands have a loop of their own; its address."""
    told: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        async with nats_server() as server, serving(server.url, clock=SystemClock()):
            end = asyncio.Event()
            told.set_result((server.url, asyncio.get_running_loop(), end))
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="service under test")
    thread.start()
    address, loop, end = told.result(timeout=60)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(timeout=60)


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Commands about the plugin `jobs` of an empty store, in an empty folder."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "NATS_"))]:
        if not name.startswith("HOLDFAST_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_URL", url)
    monkeypatch.setenv("HOLDFAST_PLUGIN", "jobs")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "pydantic", raising=False)  # commands do not have it
    return Cli(capsys, monkeypatch)


@pytest.fixture
def program(url: str, tmp_path: Path) -> Program:
    """The same as a program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "NATS_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    own = {
        "HOLDFAST_URL": url,
        "HOLDFAST_PLUGIN": "jobs",
        "XDG_DATA_HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    return Program(kept | own)


def fill(url: str, *sets: tuple[str, Any, dict[str, Any]], plugin: str = "jobs") -> None:
    """Set keys one after the other, without the command line: a key, a value, and what else set is told."""

    async def set_all() -> None:
        async with holdfast.open(url, reap=False) as store:
            for key, value, more in sets:
                await store.kv(plugin).set(key, value, **more)

    asyncio.run(set_all())


def lines(texts: Sequence[str]) -> str:
    """Texts as lines."""
    return "".join(f"{text}\n" for text in texts)
