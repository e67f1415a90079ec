"""Help: it lists every command by its use, and every option of each command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.cli.app import app
from holdfast.edges.cli.options import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import App

    from tests.edges.cli.conftest import Cli

_FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def commands(group: App = app, *path: str) -> Iterator[tuple[tuple[str, ...], App]]:
    """Every command with the words that call it."""
    hidden = {*group.help_flags, *group.version_flags}
    for name, command in group.resolved_commands().items():
        if name in hidden:
            continue
        if command.default_command is not None:
            yield (*path, name), command
        if any(inner not in {*command.help_flags, *command.version_flags} for inner in command):
            yield from commands(command, *path, name)


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_every_option(cli: Cli, path: tuple[str, ...]) -> None:
    """What a command takes is what its help lists, with limits and defaults that can be pasted."""
    arguments = ALL[path].assemble_argument_collection(default_parameter=EVERY, parse_docstring=True)
    taken = {name for argument in arguments for name in argument.names if name.startswith("-")}
    shown = cli.did(*path, "--help").out
    assert _listed(shown) - {"--help", "-h", "--version"} == taken
    assert re.search(r"\d,\d{3}", shown) is None


def test_up_has_its_flags(cli: Cli) -> None:
    """Somebody who starts a service for the first time finds out how to choose ports, data and log level."""
    shown = cli.did("up", "--help").out
    for flag in ("db", "nats", "nats-port", "nats-config", "http-port", "data-dir", "log-level"):
        assert f"--{flag}" in shown


def test_commands_are_grouped_by_use(cli: Cli) -> None:
    """The list of commands begins with the one that starts a service, and says what each is for."""
    shown = cli.did("--help").out
    headings = [line.rstrip(":") for line in shown.splitlines() if line.endswith(":")]
    assert headings[:2] == ["Starting a service", "Keys"]
    first = shown.partition("Starting a service:\n")[2]
    assert first.lstrip().startswith("up")
    assert "Commands:" not in shown
    assert "  list, ls: List the keys" in shown


def _listed(text: str) -> set[str]:
    """The options that the lines of help begin with."""
    found: set[str] = set()
    for line in text.splitlines():
        names = re.match(r"\s*((?:[A-Z_*\[\]-]+,? )?-[^:]*)", line)
        if names is not None:
            found.update(_FLAG.findall(names[1]))
    return found
