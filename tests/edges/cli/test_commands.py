"""`holdfast commands`: a program learns what this command line can do, from the command line itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import docstring_parser
import msgspec
import pytest
from cyclopts import App

from holdfast.edges.cli.app import app
from holdfast.edges.cli.commands.commands import known_commands, shown_command
from holdfast.edges.cli.output import EXIT_CODES
from tests.parsing import ASSEMBLE

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Every command by the words that call it, as a program reads of it. To make this takes a while."""
    shown = msgspec.json.encode([shown_command(one) for one in known_commands(app)])
    return {one["command"]: one for one in msgspec.json.decode(shown)}


def test_every_command_is_listed(cli: Cli, told: dict[str, dict[str, Any]]) -> None:
    """Every command that the parser knows is there, and with it the exit code of every error."""
    document = cli.did("commands", "--json").json
    assert {one["command"]: one for one in document["commands"]} == told
    assert {"get", "table index drop", "commands", "ttl set"} <= told.keys()
    codes = document["exit_codes"]
    assert {error: one["code"] for one in codes for error in one["errors"]} == EXIT_CODES
    assert {0, 130, 141} <= {one["code"] for one in codes}
    assert all(one["meaning"] for one in codes)


def test_each_docstring_is_parsed_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of commands is quick: options that commands share are read from their source once."""
    parsed: Counter[object] = Counter()
    parse = docstring_parser.parse_from_object

    def counting(thing: Any) -> Any:
        parsed[thing] += 1
        return parse(thing)

    monkeypatch.setattr(docstring_parser, "parse_from_object", counting)
    monkeypatch.setattr(App, "assemble_argument_collection", ASSEMBLE)
    cli.did("commands", "--json")
    assert len(parsed) > 50
    assert set(parsed.values()) == {1}
    assert docstring_parser.parse_from_object is counting


def test_a_command_says_what_it_takes(told: dict[str, dict[str, Any]]) -> None:
    """A program sees how each argument is given, whether it must be, and what it means."""
    drop = told["table drop"]
    assert (drop["destroys"], drop["asks"], drop["aliases"]) == (True, True, [])
    [table, yes] = [one for one in drop["arguments"] if one["group"] is None]
    assert (table["names"], table["positional"], table["required"]) == (["TABLE"], True, True)
    assert (yes["names"], yes["value"], yes["required"]) == (["--yes", "-y"], None, False)
    assert told["delete"]["aliases"] == ["rm"]
    [ttl] = [one for one in told["set"]["arguments"] if "--ttl" in one["names"]]
    assert (ttl["value"], ttl["positional"]) == ("TTL", False)
    [stream] = [one for one in told["table create"]["arguments"] if "--stream" in one["names"]]
    assert stream["choices"] == ["both", "keys", "new", "old"]


def test_a_command_says_whether_it_destroys(told: dict[str, dict[str, Any]]) -> None:
    """A command that may delete destroys, and asks before it does; one that reads or only writes does not."""
    destroying = {name for name, one in told.items() if one["destroys"]}
    assert {"delete", "batch", "table delete", "flag clear", "blob delete", "copy", "restore"} <= destroying
    assert destroying.isdisjoint({"get", "set", "list", "backup", "stats", "export", "commands"})


def test_people_get_a_table(cli: Cli, told: dict[str, dict[str, Any]]) -> None:
    """Without --json a command stands on one line: its words, whether it destroys, and what it does."""
    lines = cli.did("commands").out.splitlines()
    assert any(line.startswith("get\t-\tPrint the value of a key") for line in lines)
    assert any(line.startswith("table drop\tdestroys\t") for line in lines)
    assert [line.partition("\t")[0] for line in lines] == list(told)
