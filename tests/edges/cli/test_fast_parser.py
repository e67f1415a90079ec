"""The plain forms of commands, which are read without the library that reads command lines."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import __main__ as program_module
from holdfast.edges.cli.app import app, command_first
from holdfast.edges.cli.commands import get
from holdfast.edges.cli.fast_parser import COMMANDS, Call, leading, plain_call
from holdfast.edges.cli.target import Target
from tests.edges.cli.conftest import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.edges.cli.conftest import Cli, Program

FLAGS = ("--long", "--json", "--raw", "-l", "-j")
OPTIONS = ("--url", "--plugin", "--tenant", "--project", "-p")
ODD = ("", "-", "--", "-1", "--help", "-h", "--version", "--no-long", "--lon", "--ttl", *OPTIONS, *FLAGS)
WORD = st.sampled_from(
    ["none", "null", "true", "a=b", "@a", "{}", "[1]", '"a"', "a b", "é", "get"]
) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
FORMS = st.sampled_from(FLAGS).map(lambda flag: [flag]) | st.one_of(
    st.builds(lambda option, value: [option, value], st.sampled_from(OPTIONS), WORD),
    st.builds(
        lambda option, value: [f"{option}={value}"], st.sampled_from(["--url", "--plugin", "--long"]), WORD
    ),
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A key among options, and sometimes something odd."""
    odd = draw(st.just([]) | st.lists(st.sampled_from(ODD).map(lambda word: [word]), max_size=2))
    options = draw(st.lists(FORMS, max_size=4, unique_by=lambda words: words[0].partition("=")[0]))
    parts = draw(st.permutations([[draw(WORD)], *options, *odd]))
    return [word for part in parts for word in part]


@settings(deadline=None)
@given(name=st.sampled_from(sorted(COMMANDS)), line=lines(), before=st.booleans())
@example(name=("get",), line=["k", "--tenant", "a", "--project=b"], before=False)
@example(name=("get",), line=["--json", "none", "--url=a=b", "--long"], before=False)
@example(name=("get",), line=["-j", "--url", "x", "k", "-l"], before=True)
@example(name=("ttl", "get"), line=["--url", "a b", "@k"], before=False)
def test_both_parsers_agree(name: tuple[str, ...], line: list[str], before: bool) -> None:
    """Whatever is read without the library, the library binds to the very same call."""
    first, rest = leading(line) if before else ([], line)
    words = [*first, *name, *rest]
    call = plain_call(words)
    if call is not None:
        assert _bound(call) == _bound_by_the_library(words)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("k", {}),
        ("k --long --json", {"long": True, "target": Target(json=True)}),
        ("--long k", {"long": True}),
        ("--json k --url a.db", {"target": Target(json=True, url="a.db")}),
        ("k --url=nats://h:1?prefix=a", {"target": Target(url="nats://h:1?prefix=a")}),
        ("--plugin p k", {"target": Target(plugin="p")}),
        ("k --tenant a --project=b", {"target": Target(tenant="a", project="b")}),
        ("k -l -j -p p", {"long": True, "target": Target(json=True, plugin="p")}),
        ("k --raw", {"raw": True}),
    ],
)
def test_plain_forms_are_read_without_the_library(line: str, options: dict[str, Any]) -> None:
    """The forms that scripts use are read without the library, options before and after the key."""
    call = plain_call(["get", *line.split()])
    assert call == Call(get.get, ["k"], {"target": Target()} | options)
    assert _bound(call) == _bound_by_the_library(["get", *line.split()])


def test_options_before_the_command_are_plain_too() -> None:
    """Options that all commands share may stand before the command."""
    words = ["--url", "a.db", "-p", "p", "get", "k", "--json"]
    call = plain_call(words)
    assert call == Call(get.get, ["k"], {"target": Target(url="a.db", plugin="p", json=True)})
    assert _bound(call) == _bound_by_the_library(words)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "get",
        "get k l",
        "get k --help",
        "get -h",
        "get k --lon",
        "get k -x",
        "get k -lj",
        "get k --long --long",
        "get k --long=true",
        "get k --url",
        "get k --url=",
        "get k --url --json",
        "get k --url a --url b",
        "get k --plugin a --tenant b",
        "get -- -k",
        "get -1",
        "get k --target a",
        "--long get k",
        "--json",
        "ttl set k 1",
        "set k 1",
        "ttl k",
        "ttl get k --long",
        "list",
    ],
)
def test_other_forms_are_left_to_the_library(line: str) -> None:
    """Help, mistakes, doubles, conflicts and odd words are for the one parser that knows what to say."""
    assert plain_call(line.split()) is None


@pytest.mark.parametrize("more", [[], ["--long"]])
@pytest.mark.parametrize("error", ["get missing", "ttl get"])
def test_both_ways_complain_alike(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: str, more: list[str]
) -> None:
    """Exit codes and errors do not depend on who read the words, and neither does how they are told."""
    words = [*error.split(), *more, "--json"]
    plain = cli(*words)
    monkeypatch.setattr("holdfast.edges.cli.plain_call", lambda *_: None)
    assert cli(*words) == plain
    assert plain.code in (2, 3)
    assert plain.error["error_code"]


def test_a_plain_get_imports_little(program: Program, url: str) -> None:
    """A plain get imports no library for command lines or tables, and nothing of what decides on writes."""
    fill(url, ("k", 1, {}))
    needless = (
        "cyclopts",
        "rich",
        "sqlalchemy",
        "alembic",
        "nats",
        "hashlib",
        "json",
        "tempfile",
        "holdfast.decide.decision",
        "holdfast.edges.settings.read",
        "holdfast.upkeep.reaper",
        "holdfast.tables",
    )
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom holdfast.edges import cli\n"
        "assert cli.run(['get', 'k']) == 0\n"
        f"print([name for name in {needless!r} if name in sys.modules.keys() - before])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=program.environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n[]\n"


def test_a_get_from_a_service_imports_little() -> None:
    """What decides is the service's business, and tables are for those who have any."""
    needless = ("holdfast.decide.decision", "holdfast.tables", "holdfast.wire.tables", "sqlite3")
    code = (
        "import sys; before = set(sys.modules); import holdfast.client.nats; "
        f"print([name for name in {needless!r} if name in sys.modules.keys() - before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("command", [["get", "k"], ["--help"]])
def test_without_the_extra(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line is part of an extra, and whoever does not have it is told so, whatever was asked."""
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    monkeypatch.setattr(sys, "argv", ["holdfast", *command])
    with pytest.raises(SystemExit, match=r"needs the package cyclopts: pip install 'holdfast-kv\[cli\]'"):
        program_module.main()


def _bound(call: Call) -> tuple[Any, dict[str, Any]]:
    bound = inspect.signature(call.command).bind(*call.arguments, **call.options)
    bound.apply_defaults()
    return call.command, bound.arguments


def _bound_by_the_library(words: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    command, bound, _ = app.parse_args(command_first(words), exit_on_error=False, print_error=False)
    bound.apply_defaults()
    return command, bound.arguments
