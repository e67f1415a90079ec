"""Commands that only read: they make no store and no file, on whatever engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.edges.cli.schema import BASE
from tests.edges.cli.conftest import fill
from tests.edges.cli.test_terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program

READS = (
    "get k",
    "ttl k",
    "ttl get k",
    "list",
    "list --long",
    "history k",
    "export",
    "stats",
    "top --once --interval 0.01",
    "namespace list",
    "namespace show",
    "trash list",
    "deadletter list",
    "audit log",
    "audit verify",
    "table list",
    "table describe t",
    "ping",
    "watch",
    "rescue copy.db",
)


def files(folder: Path) -> set[str]:
    """What is in a folder and below."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("command", READS)
def test_a_read_makes_nothing(cli: Cli, tmp_path: Path, command: str) -> None:
    """Looking for something where there is no store leaves no file behind."""
    cli(*command.split())
    assert files(tmp_path) == set()


def test_the_users_own_store_is_not_made_by_looking(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the folder of the user's own store is made."""
    monkeypatch.delenv("HOLDFAST_URL")
    assert cli.did("list").out == ""
    assert files(tmp_path) == set()


def test_a_person_is_told_that_there_is_no_store(program: Program, url: str) -> None:
    """On a terminal an empty answer is told from that of a wrong path."""
    assert Terminal(program).show("list") == f"holdfast: there is no store at {url} yet\r\n"


def test_no_store_is_an_empty_one(cli: Cli) -> None:
    """Scripts get the same answers as from a store in which nothing is."""
    assert cli("get", "k", "--json").error["error_code"] == "KEY_NOT_FOUND"
    outcome = cli("list", "--json")
    assert (outcome.code, outcome.json["keys"], outcome.err) == (0, [], "")


@pytest.mark.parametrize("command", ["ping", "watch"])
def test_a_command_that_needs_a_store_says_so(cli: Cli, command: str) -> None:
    """A command that would wait for ever, or speak of writes, says that there is no store."""
    outcome = cli(command)
    assert (outcome.code, "the first write creates it" in outcome.err) == (5, True)


def test_reading_an_existing_store_adds_no_file(cli: Cli, url: str, tmp_path: Path) -> None:
    """A copied file stays alone: no lock, no ballast and no log appear beside it."""
    fill(url, ("k", 1, {}))
    for path in tmp_path.iterdir():
        if path.name != "state.db":
            path.unlink()
    assert cli.did("get", "k").out == "1\n"
    assert cli.did("list").out == "k\n"
    assert cli.did("stats").out.startswith("kv/jobs\t1\t")
    assert files(tmp_path) == {"state.db"}


def test_an_older_store_is_not_migrated_by_looking(cli: Cli, url: str) -> None:
    """A read says how to bring a store up to date and leaves it as it is."""
    cli("migrate", "up")
    older = cli.did("migrate", "down", "--yes").out
    outcome = cli("list")
    assert (outcome.code, "holdfast migrate up" in outcome.err) == (5, True)
    assert cli.did("migrate", "current").out == older


def test_a_read_makes_nothing_in_postgresql(cli: Cli, pg_url: str) -> None:
    """An empty database stays empty."""
    for command in ("get k", "list", "stats"):
        cli(*command.split(), "--url", pg_url)
    assert cli.did("migrate", "current", "--db", pg_url).out == f"{BASE}\n"
    cli.did("set", "k", "1", "--url", pg_url)
    assert cli.did("list", "--url", pg_url).out == "k\n"
