"""The program as a process: exit codes, pipes, signals, and what it costs to start it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

import holdfast
from tests.edges.cli.conftest import PROGRAM, fill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program

HEAVY = {"alembic", "rich", "sqlalchemy", "structlog"}


def test_heavy_libraries_are_not_imported(program: Program, url: str) -> None:
    """A command starts quickly: it imports no library that it does not use."""
    fill(url, ("k", 1, {}))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:], "list", "--long"],
        env=program.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert {"holdfast", "cyclopts", "msgspec"} <= imported
    assert not imported & HEAVY


def test_exit_codes_of_the_process(program: Program) -> None:
    """Scripts see the outcome: data on stdout, the reason on stderr, the kind of failure in the exit code."""
    missing = program.run("get", "k")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr == "holdfast: there is no key 'k'\n"
    stored = program("set", "k", "-", stdin='{"from":"stdin"}')
    assert (stored.returncode, stored.stdout, stored.stderr) == (0, "1\n", "")
    conflict = program("set", "k", "1", "--if-version", "0", "--json")
    assert (conflict.returncode, conflict.stdout) == (4, "")
    assert json.loads(conflict.stderr)["current"]["value"] == {"from": "stdin"}
    usage = program("set", "k")
    assert (usage.returncode, usage.stdout) == (2, "")
    assert "holdfast set --help" in usage.stderr


async def test_a_file_that_another_process_has_open(program: Program, url: str) -> None:
    """A command writes to a file and reads it while another process has it open, too."""
    async with holdfast.open(url) as store:
        await store.kv("jobs").set("k", 1)
        written = await asyncio.to_thread(program, "set", "k", "2")
        read = await asyncio.to_thread(program, "get", "k")
        entry = await store.kv("jobs").get("k")
    assert (written.returncode, written.stdout, written.stderr) == (0, "2\n", "")
    assert (read.returncode, read.stdout) == (0, "2\n")
    assert entry is not None
    assert (entry.value, entry.version) == (2, 2)


def test_a_watch_follows_and_ends_with_ctrl_c(program: Program, url: str) -> None:
    """Changes are printed as they come, from a file that others write to meanwhile; Ctrl-C ends the watch."""
    fill(url, ("a", 1, {"writer": "me"}))
    with program.start("watch", "--since", "0", "--json") as watching:
        assert watching.stdout is not None
        changes = [json.loads(watching.stdout.readline())]
        for key in ("b", "c"):
            written = program("set", key, 1)
            assert (written.returncode, written.stderr) == (0, "")
            changes.append(json.loads(watching.stdout.readline()))
        watching.send_signal(signal.SIGINT)
        rest, complained = watching.communicate(timeout=60)
    assert [(change["op"], change["key"]) for change in changes] == [
        ("set", "a"),
        ("set", "b"),
        ("set", "c"),
    ]
    assert (watching.returncode, rest, complained) == (130, "", "")


def test_a_watch_shows_lines(program: Program, url: str) -> None:
    """Without --json a change is a line with its time, what was done, version, key and writer."""
    fill(url, ("a:1", 1, {}), ("b:1", 1, {"writer": "me"}))
    with program.start("watch", "b:", "--since", "0") as watching:
        assert watching.stdout is not None
        line = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    assert line.rstrip("\n").split("\t")[1:] == ["set", "2", "b:1", "me"]


def test_top_ends_with_ctrl_c(program: Program, url: str) -> None:
    """Samples follow each other, with an empty line between, until Ctrl-C: exit code 130, no traceback."""
    fill(url, ("a", 1, {}))
    with program.start("top", "--interval", "0.05") as running:
        assert running.stdout is not None
        shown = [running.stdout.readline() for _ in range(3)]
        running.send_signal(signal.SIGINT)
        _, complained = running.communicate(timeout=60)
    assert shown == ["kv/jobs\t1\t2\t0.0\n", "\n", "kv/jobs\t1\t2\t0.0\n"]
    assert (running.returncode, complained) == (130, "")


@pytest.mark.parametrize("command", ["list --all", "export"])
def test_a_broken_pipe_is_silent(program: Program, url: str, command: str) -> None:
    """When a reader has had enough, the program ends without a word, as others do."""
    fill(url, *((f"{'k' * 200}{number}", "x" * 2000, {}) for number in range(500)))
    line = f"{' '.join(PROGRAM)} {command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], env=program.environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.endswith("\n141\n")
    assert done.stdout.count("\n") == 2


COMPLETED: Final = {
    "holdfast hi": ["history"],
    "holdfast ttl s": ["set"],
    "holdfast set --if-v": ["--if-version"],
    "holdfast get game:": ["game:42", "game:43"],
    "holdfast get tw": ["two words"],
    "holdfast get nothing": [],
}
"""Command lines, and how the last word may go on."""
ASKED_BY: Final = {
    "bash": (
        "COMP_LINE=$1 COMP_POINT=${#1}; _holdfast;"
        ' for one in "${COMPREPLY[@]}"; do eval "printf \'%s\\n\' $one"; done',
        "game:",
    ),
    "zsh": ("compadd() { print -l -- $offered }; _files() { }; LBUFFER=$1; _holdfast", ""),
    "fish": ("complete -C $argv[1]", ""),
}
"""How each shell asks for completions, and what its line has already when it does."""


@pytest.mark.unmeasured
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, cli: Cli, program: Program, url: str, tmp_path: Path) -> None:
    """With the script that is printed, a shell completes commands, options and the keys of the store."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    fill(url, *((key, 1, {}) for key in ("game:42", "game:43", "two words")))
    script = tmp_path / "script"
    script.write_text(("compdef() { }\n" if shell == "zsh" else "") + cli.did("completion", shell).out)
    asked, has = ASKED_BY[shell]
    empty = tmp_path / "empty"
    empty.mkdir()
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "holdfast").write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} "$@"\n')
    (commands / "holdfast").chmod(0o755)
    environment = program.environment | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    for line, words in COMPLETED.items():
        how = [shell, "-c", f"source {script}; {asked}", *(["shell"] if shell != "fish" else []), line]
        done = subprocess.run(how, env=environment, cwd=empty, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines() == [word.removeprefix(has) for word in words], done.stderr


@pytest.mark.unmeasured
def test_completion_is_installed(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the script went is said; where it can't go, why."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    installed = cli("--install-completion", "--shell", "bash")
    assert (installed.code, installed.out, str(home) in installed.err) == (0, "", True)
    assert any("holdfast" in path.name for path in home.rglob("*"))
    (home / "file").touch()
    refused = cli("--install-completion", "--shell", "fish", "--output", home / "file" / "x")
    assert (refused.code, refused.err.startswith("holdfast: ")) == (2, True)
    to_file = ("--install-completion", "--shell", "fish", "--output", home / "file")
    assert "already exists; --force replaces it" in cli(*to_file).err
    assert (home / "file").read_bytes() == b""
    assert cli(*to_file, "--force").code == 0
    monkeypatch.setattr("holdfast.edges.cli.commands.commands.detect_shell", _undetected)
    assert cli("completion").err == "holdfast: which shell? Name bash, zsh, fish or powershell\n"


def test_version_and_help(program: Program, cli: Cli) -> None:
    """--version and --help answer on stdout; every command is listed with what it does."""
    listed = program("--help").stdout
    for command in ("get: Print the value", "migrate: ", "ttl: ", "doctor: ", "up: "):
        assert f"  {command}" in listed
    assert cli.did("--version").out.strip().count(".") == 2
    assert "  remove: Let an entry live for ever" in cli.did("ttl", "--help").out
    assert "--if-version" in cli.did("set", "--help").out


def _undetected() -> str:
    from cyclopts.completion.detect import ShellDetectionError

    raise ShellDetectionError
