"""The commands of the pages about TLS and about isolation do what the pages say.

The commands are taken from the page. Only addresses are others: everything listens on 127.0.0.1. The
`holdfast` that they find is forked, since an interpreter for each would take longer than what they do.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from holdfast.edges.nats.server import find
from tests.docs.test_examples import ROOT, blocks_of
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 60.0

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


class Shell:
    """Runs commands in a folder. Those that serve are left running, the service until it is started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._serving: dict[str, subprocess.Popen[bytes]] = {}
        programs = folder / "programs"
        programs.mkdir()
        (programs / "nats-server").symlink_to(find())
        (programs / "holdfast").symlink_to(Path(sys.executable).with_name("holdfast"))
        unwanted = ("HOLDFAST", "NATS", "PYTHONDONTWRITEBYTECODE")
        kept = {name: one for name, one in os.environ.items() if not name.startswith(unwanted)}
        self._environment = kept | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOLDFAST_DATA_DIR": str(folder / "data"),
            "HOLDFAST_HTTP_PORT": "0",
        }

    def run(self, command: str) -> str:
        """What a command prints; one that serves is waited for until it does."""
        command = self._here(command)
        if " holdfast up" in command:
            self._serve("up", command)
            return ""
        if command.startswith("nats-server -c"):
            self._serve("server", command)
            return ""
        done = self._done(command)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def refusal(self, command: str) -> str:
        """What a command complains of."""
        done = self._done(self._here(command))
        assert done.returncode != 0, command
        return done.stderr

    def _here(self, command: str) -> str:
        for page, here in (("0.0.0.0", "127.0.0.1"), ("bus.example", "127.0.0.1"), ("4222", str(self.port))):
            command = command.replace(page, here)
        return command

    def _done(self, command: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", command]
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def end(self, name: str) -> None:
        """End what serves under a name, if it does."""
        process = self._serving.pop(name, None)
        if process is not None:
            process.terminate()
            process.communicate(timeout=PATIENCE)

    def end_all(self) -> None:
        """End everything, the service before the server."""
        for name in ("up", "server"):
            self.end(name)

    def _serve(self, name: str, command: str) -> None:
        self.end(name)
        words = f"exec env {command}"
        output = subprocess.PIPE if name == "up" else subprocess.DEVNULL
        process = subprocess.Popen(
            ["sh", "-c", words],
            cwd=self.folder,
            env=self._environment,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        self._serving[name] = process
        if process.stdout is not None:
            assert process.stdout.readline().startswith(b"Holdfast is up"), command
        else:
            self._wait_for_port()

    def _wait_for_port(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError("the server does not listen")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell in an empty folder."""
    one = Shell(tmp_path)
    yield one
    one.end_all()


def commands(name: str) -> list[str]:
    """The commands of a page, one after the other."""
    page = ROOT / "docs" / "howto" / name
    blocks = [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.info == "console"]
    return [line.removeprefix("$ ") for block in blocks for line in block.text.splitlines()]


@needs_openssl
def test_the_page_works_from_top_to_bottom(shell: Shell) -> None:
    """What a reader types in the page's order ends with the entry being read over TLS with a certificate."""
    page = commands("tls.md")
    printed = [shell.run(command) for command in page]
    assert printed[-1] == '"hello"\n'
    plain = page[-1].replace("&tls_cert=client.pem&tls_key=client-key.pem", "")
    assert "certificate required" in shell.refusal(plain)
    assert "its certificate is not trusted" in shell.refusal(plain.replace("&tls_ca=ca.pem", ""))


def test_the_page_about_isolation(shell: Shell) -> None:
    """The configuration of the page is loaded, and after a renewal loaded again by a server that runs."""
    first, second, rotate, reload = commands("isolate-plugins.md")
    for command in (first, second):
        shell.run(command)
    shell.run(f"nats-server -c bus/nats-server.conf -p {shell.port} -P nats-server.pid")
    before = (shell.folder / "bus/plugins/trivia.only.read.nk").read_text()
    shell.run(rotate)
    assert (shell.folder / "bus/plugins/trivia.only.read.nk").read_text() != before
    assert reload == "nats-server --signal reload"
    shell.run(f"{reload}=nats-server.pid")  # with a single server on a machine it need not be named
