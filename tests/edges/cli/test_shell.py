"""`holdfast shell` with commands from a pipe: one store, the same commands, and what goes wrong in one."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

import holdfast
from tests.edges.cli.conftest import EVERYWHERE, lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program


@EVERYWHERE
def test_commands_from_a_pipe(cli: Cli) -> None:
    """Each line is a command with the words and flags of the command line; quotes are those of a shell."""
    given = (
        "set a 1",
        "",
        "  # a remark",
        "holdfast incr a 4",
        "put 'x y' '{\"q\": [1]}' --ttl 1h",
        "ls",
        "get a",
    )
    assert cli.did("shell", stdin=lines(given)).out == "1\n5\n3\na\nx y\n5\n"


@EVERYWHERE
def test_one_store_for_all(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is opened once, and on a file or database once more when the first command writes."""
    cli.did("set", "seed", "0")
    opened: list[holdfast.Store] = []
    start = holdfast.Store.start

    async def counted(store: holdfast.Store) -> None:
        opened.append(store)
        await start(store)

    monkeypatch.setattr(holdfast.Store, "start", counted)
    given = ["ls", "get seed", *(f"set k{number} 1" for number in range(5)), "ls --json", "stats", "ls"]
    cli.did("shell", stdin=lines(given))
    assert len(opened) == (1 if url.startswith("nats") else 2)
    cli.did("shell", stdin=lines(["ls", "get seed", "ttl seed"]))
    assert len(opened) == (2 if url.startswith("nats") else 3)


def test_the_first_failure_is_the_exit_code(cli: Cli) -> None:
    """What fails is told, all other lines are run, and the code is that of the first that failed."""
    outcome = cli("shell", stdin=lines(["set a 1", "get gone", "set a 2 --if-version 9", "get a"]))
    assert (outcome.code, outcome.out) == (3, "1\n1\n")
    assert outcome.err.splitlines()[0] == "holdfast: there is no key 'gone'"
    assert "expected" in outcome.err.splitlines()[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("get 'a", "a quote is not closed"),
        ("get a\\", "nothing follows the last backslash"),
        ("nonsense", "is not a command"),
        ("get", "requires an argument"),
        ("up", "a terminal of its own"),
        ("--url x.db shell", "holdfast shell already"),
        ("set k -", "is not JSON"),
        ("rm --prefix a", "add --yes"),
    ],
)
def test_a_line_that_cannot_run_says_why_and_the_next_one_runs(cli: Cli, line: str, said: str) -> None:
    """A line that can't be run says why, runs nothing, and the next one has its turn."""
    outcome = cli("shell", stdin=lines([line, "set after 1"]))
    assert (outcome.code, outcome.out) == (2, "1\n")
    assert said in outcome.err
    assert cli.did("ls").out == "after\n"


@EVERYWHERE
def test_options_hold_for_every_command(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store, the namespace and --json are said once; a command may say otherwise, and nothing stays."""
    monkeypatch.delenv("HOLDFAST_URL")
    before = dict(os.environ)
    shown = cli.did(
        *("shell", "--url", url, "--tenant", "acme", "--project", "web", "--json"),
        stdin=lines(["set a 1", "get a", "set b 2 --plugin other", "ls -p other", "completion bash"]),
    )
    first, value, second, listed = shown.out.splitlines()[:4]
    assert '"key":"tenant/acme/project/web/a"' in first
    assert value == "1"
    assert '"key":"b"' in second
    assert '"keys":["b"]' in listed
    assert os.environ == before
    failed = cli("shell", "--url", url, "--json", "-p", "x", stdin="get gone\n")
    assert failed.error["error_code"] == "KEY_NOT_FOUND"


def test_a_context(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that is named once holds for every command, and outweighs variables."""
    cli("context", "add", "prod", "--url", f"{url}.prod", "--plugin", "kept")
    monkeypatch.setenv("HOLDFAST_PLUGIN", "other")
    cli.did("-c", "prod", "shell", stdin="set a 1\n")
    assert cli.did("ls", "--url", f"{url}.prod", "--plugin", "kept").out == "a\n"


def test_looking_makes_nothing(cli: Cli, tmp_path: Path) -> None:
    """Commands that read leave no file behind; what another process makes meanwhile is seen."""
    cli("shell", stdin=lines(["ls", "get a", "stats"]))
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    assert cli.did("shell", stdin=lines(["ls", "set a 1", "ls", "exit", "set b 1"])).out == "1\na\n"


def test_commands_that_need_the_store_closed(cli: Cli, url: str) -> None:
    """A prompt that has written lets go of the store for `migrate` and takes it up again."""
    outcome = cli("shell", stdin=lines(["set a 1", f"migrate down base --yes --db {url}", "set b 2", "ls"]))
    assert (outcome.code, outcome.out.splitlines()[-2:]) == (0, ["1", "b"]), outcome


def test_commands_do_not_read_the_pipe(cli: Cli) -> None:
    """A command that reads stdin finds it empty, and does not take the next commands for a value."""
    given = lines(["set k - --text", *["# a remark"] * 2_000, "set after 1"])
    cli.did("shell", stdin=given)
    assert cli.did("ls").out == "after\nk\n"
    assert cli.did("get", "k").json == ""


def test_ctrl_c_ends_a_pipe(program: Program) -> None:
    """Ctrl-C ends all, while a command runs and while none does."""
    for line in ("set a 1", "watch --since 0"):
        process = program.start("shell", stdin=-1)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        _, complaints = process.communicate()
        assert complaints == ""


def test_a_pipe_that_is_read_as_it_comes(program: Program) -> None:
    """A line is run when it comes, not when the last one has."""
    process = program.start("shell", stdin=-1)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(1, 4):
        process.stdin.write("incr n\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{number}\n"
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
