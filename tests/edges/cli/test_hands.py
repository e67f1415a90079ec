"""What people type without looking it up: durations, aliases, short flags, and options before the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.edges.cli.app import app
from tests.edges.cli.conftest import fill

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h", 3600),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1h30m", 5400),
        ("0.5h", 1800),
    ],
)
def test_durations(cli: Cli, given: str, seconds: int) -> None:
    """A time to live may have a unit."""
    cli.did("set", "k", "1", "--ttl", given)
    assert int(cli.did("ttl", "k").out) in (seconds, seconds - 1)


@pytest.mark.parametrize("given", ["30x", "1h30", "h", "1h-1m", "-30s", "1.5s", "0s", "30 s", ""])
def test_an_invalid_duration_is_refused_and_nothing_is_written(cli: Cli, given: str) -> None:
    """What is no time to live is refused, and nothing is written."""
    assert cli("set", "k", "1", "--ttl", given).code == 2
    assert cli("get", "k").code == 3


@pytest.mark.parametrize("given", ["1h30", "nonsense", "30x", "true", "[", ""])
def test_a_bad_duration_is_told_with_the_cure(cli: Cli, given: str) -> None:
    """The message names what was typed and says what a duration looks like."""
    told = cli("set", "k", "1", "--ttl", given).err
    assert f"{given!a} is not a duration" in told
    assert "30s, 5m, 1h, 2d" in told


@pytest.mark.parametrize("given", ["abc", "true", "", "1,000", "["])
def test_a_bad_number_is_named(cli: Cli, given: str) -> None:
    """The message names the option and what was typed, in words of the command line."""
    told = cli("list", "--limit", given).err
    assert "--limit" in told
    assert f"{given!a} is not a number." in told
    assert f"{given!a} is not a number." in cli("incr", "n", given).err


def test_a_mistyped_option_is_not_taken_for_a_number(cli: Cli) -> None:
    """A command that takes negative numbers still knows an option that does not exist."""
    assert "Unknown option: --by." in cli("incr", "n", "--by", "2").err
    assert cli.did("incr", "n", "-2").out == "-2\n"


def test_durations_elsewhere(cli: Cli) -> None:
    """Every length of time takes units: deadlines, and the times of a policy."""
    cli.did("set", "k", "1")
    cli.did("ttl", "set", "k", "1d")
    assert int(cli.did("ttl", "get", "k").out) in (86_400, 86_399)
    outcome = cli("namespace", "set", "--ttl-default", "1h", "--trash-retention", "2d", "--json")
    assert (outcome.json["policy"]["ttl_default"], outcome.json["policy"]["trash_retention"]) == (
        3600,
        172_800,
    )


def test_aliases(cli: Cli) -> None:
    """The names of other tools do the same."""
    assert cli.did("put", "k", "1").out == "1\n"
    assert cli.did("ls").out == "k\n"
    assert cli.did("rm", "k", "--yes").out == "deleted\n"
    assert cli.did("namespace", "ls").out.startswith("kv/jobs\t")


def test_help_is_a_command_too(cli: Cli) -> None:
    """`holdfast help set` shows what `holdfast set --help` does."""
    assert cli.did("help", "set").out == cli.did("set", "--help").out
    assert cli.did("help").out == cli.did("--help").out
    assert cli.did("help", "table", "index").out == cli.did("table", "index", "--help").out
    assert cli("help", "nothing").code == 2


def test_short_flags(cli: Cli) -> None:
    """-l is --long, -j is --json and -p is --plugin, alone or together."""
    cli.did("set", "k", "1", "-p", "other")
    assert cli.did("list", "-p", "other", "-j").json["keys"] == ["k"]
    assert cli.did("list", "-lj", "-p", "other").json["entries"][0]["version"] == 1
    assert cli.did("get", "k", "-lj", "-p", "other").json["version"] == 1
    assert cli("get", "gone", "-j").error["error_code"] == "KEY_NOT_FOUND"
    assert cli.did("table", "list", "-p", "other").out == ""


def test_options_before_the_command(cli: Cli, url: str) -> None:
    """Options about the store may stand before the command, of one word or of two."""
    cli.did("--url", f"{url}2", "--plugin=a", "set", "k", "1")
    assert cli.did("--json", "--url", f"{url}2", "-p", "a", "list").json["keys"] == ["k"]
    assert cli.did("--url", f"{url}2", "-p", "a", "ttl", "get", "k").out == "never\n"
    assert cli("--url", f"{url}2").code == 2
    assert cli("--url", f"{url}2", "completion", "bash").code == 2
    assert cli("--json", "get", "k").error["error_code"] == "KEY_NOT_FOUND"


def test_raw_text(cli: Cli, url: str) -> None:
    """--raw prints text as it is, line breaks and all, and anything else as JSON."""
    fill(url, ("t", 'a "b"\n\té', {}), ("n", [1, "x"], {}))
    assert cli.did("get", "t", "--raw").out == 'a "b"\n\té\n'
    assert cli.did("get", "n", "--raw").out == '[1,"x"]\n'
    assert cli("get", "t", "--raw", "--json").code == 2
    assert cli("get", "t", "--raw", "--long").code == 2


def test_the_ttl_of_a_key(cli: Cli) -> None:
    """`ttl KEY` prints what `ttl get KEY` does."""
    cli.did("set", "k", "1")
    assert cli.did("ttl", "k").out == cli.did("ttl", "get", "k").out == "never\n"
    assert cli.did("ttl", "gone", "--json").json == {"key": "gone", "ttl": 0}
    assert "remove" in cli.did("ttl", "--help").out


def test_variables_for_a_tenant(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant and a project may be set once for a shell, and what the command line says outweighs them."""
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    monkeypatch.setenv("HOLDFAST_TENANT", "acme")
    monkeypatch.setenv("HOLDFAST_PROJECT", "web")
    cli.did("set", "color", '"red"')
    cli.did("set", "color", '"blue"', "--project", "app")
    cli.did("set", "k", "1", "--plugin", "p")
    assert cli.did("list").out == "tenant/acme/project/web/color\n"
    assert cli.did("list", "--project", "app").out == "tenant/acme/project/app/color\n"
    assert cli.did("list", "--plugin", "p").out == "k\n"
    monkeypatch.delenv("HOLDFAST_PROJECT")
    assert "belong together" in cli("list").err


def test_variables_that_name_two_namespaces(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where variables contradict each other nothing is guessed, and an option decides."""
    monkeypatch.setenv("HOLDFAST_TENANT", "acme")
    outcome = cli("list")
    assert (outcome.code, "HOLDFAST_TENANT" in outcome.err) == (2, True)
    assert cli.did("list", "--plugin", "p").out == ""
    assert cli.did("list", "--tenant", "acme", "--project", "web").out == ""


def test_a_variable_does_not_narrow_what_covers_a_store(cli: Cli) -> None:
    """HOLDFAST_PLUGIN says whose keys are meant; what covers a whole store it leaves alone."""
    cli.did("set", "k", "1", "--plugin", "other")
    cli.did("set", "k", "1")
    assert [line.partition("\t")[0] for line in cli.did("stats").out.splitlines()] == ["kv/jobs", "kv/other"]
    assert cli.did("stats", "--plugin", "other").out.startswith("kv/other\t")
    exported = cli.did("export", "--plugin", "other").out
    assert "into kv/other" in cli("import", "-", stdin=exported).err


def test_every_list_has_the_alias() -> None:
    """Whatever can be listed can be listed with ls."""
    for name, group in app.resolved_commands().items():
        if "list" in group:
            assert "ls" in group, name
