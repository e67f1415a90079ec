"""The verbs on one key: what a command is given reaches the store, and what the store answers is printed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.cli.conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ('{"b": 1, "a": [null, true]}', '{"b":1,"a":[null,true]}'),
        ('"text"', '"text"'),
        ("null", "null"),
        ("-5", "-5"),
        ("1.5e3", "1500.0"),
        ('"grün\\u0000"', '"grün\\u0000"'),
        ("9" * 4300, "9" * 4300),
        ("-" + "9" * 4300, "-" + "9" * 4300),
    ],
)
def test_values_come_back_as_json(cli: Cli, given: str, printed: str) -> None:
    """Any JSON value can be set from an argument and is printed exactly."""
    cli.did("set", "k", given)
    assert cli.did("get", "k").out == printed + "\n"
    assert cli.did("get", "k", "--json").out == printed + "\n"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("hello", "'hello' is not JSON"),
        ("NaN", "is not JSON"),
        ("{", "is not JSON"),
        ("x" * 100, "xxx'... is not JSON"),
        ("1e400", "NaN or Infinity"),
        ("[" * 65 + "]" * 65, "nested deeper than 64"),
        ("[" * 5000 + "]" * 5000, "nested deeper than 64"),
        ("9" * 4301, "more than 4300 digits"),
        ('"\\ud800"', "lone surrogate"),
        (f'"{"x" * 70000}"', "exceeds 64KB limit"),
    ],
)
def test_invalid_values_are_refused(cli: Cli, given: str, told: str) -> None:
    """A bare word is never taken for text, and the message says what is wrong and how to write text."""
    outcome = cli("set", "k", given)
    assert outcome.code == 2
    assert told in outcome.err
    assert ("--text" in outcome.err) == ("not JSON" in told)
    assert cli("get", "k").code == 3


def test_text_needs_no_quotes(cli: Cli) -> None:
    """With --text a value is a string, whatever it looks like."""
    for text in ("hello", "5", '{"a":1}'):
        cli.did("set", "k", text, "--text")
        assert cli.did("get", "k").json == text


def test_values_from_stdin_and_files(cli: Cli, tmp_path: Path) -> None:
    """`-` reads stdin and `@` a file, as JSON or as text without its last line break."""
    (tmp_path / "value").write_text('{"from": "file"}\n')
    cli.did("set", "k", "-", stdin='{"from": "stdin"}\n')
    assert cli.did("get", "k").json == {"from": "stdin"}
    cli.did("set", "k", "@value")
    assert cli.did("get", "k").json == {"from": "file"}
    cli.did("set", "k", "@value", "--text")
    assert cli.did("get", "k").json == '{"from": "file"}'
    cli.did("set", "k", "-", "--text", stdin="two\nlines\n\n")
    assert cli.did("get", "k").json == "two\nlines\n"


def test_input_that_can_not_be_read(cli: Cli, tmp_path: Path) -> None:
    """A file that is not there, and bytes that are no text, are refused in one line."""
    missing = cli("set", "k", "@missing")
    assert (missing.code, missing.err) == (2, "holdfast: missing: no such file or directory\n")
    assert cli("set", "k", "-", stdin=b"\xff").err == "holdfast: what is on stdin is not UTF-8\n"


def test_set_prints_the_version_for_the_next_one(cli: Cli) -> None:
    """What set prints can be given to --if-version."""
    version = cli.did("set", "k", "1", "--if-version", "0").out.strip()
    assert cli.did("set", "k", "2", "--if-version", version).out == "2\n"
    assert cli("set", "k", "3", "--if-version", version).code == 4


def test_the_whole_entry(cli: Cli) -> None:
    """What set is told about a value, get --long shows, for people and as JSON."""
    cli.did(
        *("set", "k", "1", "--ttl", "100", "--purpose", "config", "--producer", "me"),
        *("--writer", "agent:7", "--request-id", "r-1", "--spec-ref", "doc#2"),
    )
    entry = cli.did("get", "k", "--long", "--json").json
    assert entry["semantics"] == {"purpose": "config", "producer": "me"}
    assert [entry[name] for name in ("version", "last_writer", "request_id", "spec_ref")] == [
        1,
        "agent:7",
        "r-1",
        "doc#2",
    ]
    shown = dict(line.split("\t") for line in cli.did("get", "k", "--long").out.splitlines())
    assert list(shown) == list(entry)
    assert (shown["version"], shown["semantics"]) == ("1", '{"purpose":"config","producer":"me"}')
    assert shown["expires_at"].endswith("Z")


def test_the_default_writer_is_the_command_line(cli: Cli) -> None:
    """An entry that was set by hand can be told from one that a program has set."""
    cli.did("set", "k", "1")
    assert cli.did("get", "k", "--long", "--json").json["last_writer"] == "cli"


def test_deadlines(cli: Cli) -> None:
    """A deadline can be set, kept, read, changed and removed."""
    cli.did("set", "k", "1", "--ttl", "100")
    assert 0 < int(cli.did("ttl", "get", "k").out) <= 100
    cli.did("set", "k", "2", "--keep-ttl")
    assert 0 < cli.did("ttl", "get", "k", "--json").json["ttl"] <= 100
    assert cli.did("ttl", "set", "k", "5000").out == "3\n"
    assert int(cli.did("ttl", "get", "k").out) > 4000
    assert cli.did("ttl", "remove", "k", "--json").json == {"key": "k", "version": 4, "expires_at": None}
    assert cli.did("ttl", "get", "k").out == "never\n"
    assert cli.did("ttl", "get", "nothing").out == "0\n"
    assert cli("set", "k", "1", "--ttl", "5", "--keep-ttl").code == 2


def test_delete_is_idempotent(cli: Cli) -> None:
    """Deleting what is not there is no error, and says so."""
    cli.did("set", "k", "1")
    assert cli("delete", "k", "--yes", "--if-version", "5").code == 4
    assert cli.did("delete", "k", "--yes").out == "deleted\n"
    assert cli.did("delete", "k", "--yes").out == "not there\n"
    assert cli.did("delete", "k", "--yes", "--json").json == {"deleted": False}


def test_counters(cli: Cli) -> None:
    """Any number can be added, also a negative or a fractional one, and the sum is printed."""
    assert cli.did("incr", "n").out == "1\n"
    assert cli.did("incr", "n", "41").out == "42\n"
    assert cli.did("incr", "n", "-2").out == "40\n"
    assert cli.did("incr", "n", "0.5", "--json").json == {
        "key": "n",
        "value": 40.5,
        "version": 4,
        "expires_at": None,
    }
    assert cli("incr", "n", "much").code == 2
    cli.did("incr", "brief", "--ttl", "100")
    assert int(cli.did("ttl", "get", "brief").out) <= 100


def test_logs(cli: Cli) -> None:
    """`append` prints the number of the item, and `list` reads on from a number or from the newest item."""
    assert cli.did("append", "log", '{"a":1}').out == "1\n"
    assert cli.did("append", "log", "2", "--once", "o", "--json").json == {
        "key": "log/000000000002",
        "number": 2,
        "version": 2,
        "expires_at": None,
    }
    assert cli.did("append", "log", "3", "--once", "o").out == "2\n"
    assert cli.did("append", "log", "3", "--keep", "2", "--ttl", "1h").out == "3\n"
    assert cli.did("list", "log/", "--after", "2").out == "log/000000000003\n"
    assert cli("list", "log/", "--reverse", "--limit", "1").out == "log/000000000003\n"
    assert cli.did("list", "log/").out == "log/000000000002\nlog/000000000003\n"


def test_fences(cli: Cli) -> None:
    """A write with a fence is refused once another holder has the lock, or, if asked, once nobody has it."""
    cli.did("batch", '[{"guard": "a:b"}]')
    assert cli.did("set", "k", "1", "--fence", "a:b:1").out == "2\n"
    assert cli("set", "k", "2", "--fence", "a:b:1:live").code == 4
    cli.did("batch", '[{"guard": "a:b"}]')
    writes = (
        'set "k" 3',
        "append log 3",
        "incr n",
        "delete k --yes",
        "delete --prefix k --yes",
        "blob delete b --yes",
    )
    for write in writes:
        refused = cli(*shlex.split(write), "--fence", "a:b:1")
        assert (refused.code, "newer holder" in refused.err) == (4, True), write
    assert cli.did("get", "k").out == "1\n"
    for wrong in ("", "a", "a:", ":1", "a:-1", "a:1.0", "a:x", "a:live", "a:1:dead", f"{'x' * 201}:1"):
        assert cli("set", "k", "4", "--fence", wrong).code == 2, wrong


def test_an_id_is_not_ignored(cli: Cli) -> None:
    """A delete by prefix takes no id, and says so."""
    cli.did("set", "a/1", "1")
    for option in ("--once", "--request-id"):
        assert cli("delete", "--prefix", "a/", "--yes", option, "o").code == 2
    assert cli.did("list").out == "a/1\n"


def test_restore(cli: Cli) -> None:
    """What went to the trash comes back under a new version."""
    cli.did("set", "k", "1", "--purpose", "config")
    cli.did("delete", "k", "--yes")
    assert cli.did("restore", "k", "--ttl", "100").out == "3\n"
    assert cli.did("get", "k").out == "1\n"
    assert int(cli.did("ttl", "get", "k").out) <= 100
    assert cli("restore", "k").code == 4


@pytest.mark.parametrize("key", ["-dash", "--json", "a b", "%_*", "ключ", '"quoted"', "line\nbreak", "@at"])
def test_any_key_can_be_named(cli: Cli, key: str) -> None:
    """No legal key is out of reach: after -- everything is a key or a value."""
    cli.did("set", "--", key, '"v"')
    assert cli.did("get", "--", key).json == "v"
    assert cli.did("list", "--all", "--json").jsons == [{"key": key}]


def test_the_variable_of_the_url_is_outweighed(cli: Cli, tmp_path: Path) -> None:
    """A flag outweighs a variable; each store is its own."""
    cli.did("set", "k", "1")
    other: list[Any] = ["--url", tmp_path / "other.db"]
    assert cli("get", "k", *other).code == 3
    cli.did("set", "k", "2", *other)
    assert (cli.did("get", "k").out, cli.did("get", "k", *other).out) == ("1\n", "2\n")


def test_the_users_own_store(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a URL it is the store of `holdfast up`, whose folder is made when it is missing."""
    monkeypatch.delenv("HOLDFAST_URL")
    cli.did("set", "k", "1")
    assert (tmp_path / "home" / "holdfast" / "holdfast.db").exists()
    monkeypatch.setenv("HOLDFAST_DB", str(tmp_path / "named.db"))
    assert cli("get", "k").code == 3
    cli.did("set", "k", "1")
    assert (tmp_path / "named.db").exists()


def test_keys_on_postgresql(cli: Cli, pg_url: str) -> None:
    """Commands are the same on every engine."""
    on = ["--url", pg_url]
    assert cli.did("set", "k", '{"a":1}', *on).out == "1\n"
    assert cli.did("incr", "n", "2", *on).out == "2\n"
    assert cli.did("get", "k", *on).json == {"a": 1}
    assert cli.did("list", *on).out == "k\nn\n"
    assert cli.did("stats", *on).out.startswith("kv/jobs\t2\t")
    assert cli.did("delete", "k", "--yes", *on).out == "deleted\n"
    assert cli.did("history", "k", "--json", *on).json["changes"][0]["op"] == "deleted"


def test_exists(cli: Cli) -> None:
    """`exists` prints true or false, and its exit code tells a script the same."""
    missing = cli("exists", "k")
    assert (missing.code, missing.out, missing.err) == (3, "false\n", "")
    cli.did("set", "k", "null")
    assert cli.did("exists", "k").out == "true\n"
    assert cli.did("exists", "k", "--json").out == '{"key":"k","exists":true}\n'
    assert cli("exists", "no", "--json").out == '{"key":"no","exists":false}\n'


def test_touch(cli: Cli) -> None:
    """`touch` moves the deadline of an entry and prints its version; a missing key is no error."""
    assert cli.did("touch", "k", "1h").out == "not there\n"
    assert cli.did("touch", "k", "1h", "--json").out == '{"key":"k","touched":false}\n'
    cli.did("set", "k", "1")
    assert cli.did("touch", "k", "1h").out == "2\n"
    assert cli.did("ttl", "k").out in ("3600\n", "3599\n")
    assert cli.did("touch", "k", "1h", "--json").out.startswith('{"key":"k","touched":true,"version":3,')


def test_incr_of_what_must_exist(cli: Cli) -> None:
    """`incr --only-if-exists` makes no entry: a missing one is an error with exit code 3."""
    assert cli("incr", "n", "--only-if-exists").code == 3
    assert cli.did("incr", "n").out == "1\n"
    assert cli.did("incr", "n", "--only-if-exists").out == "2\n"
