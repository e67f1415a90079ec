"""Every command that destroys data asks a person first, and wants --yes from a script."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Final

import pytest

from tests.edges.cli.conftest import EVERYWHERE, fill
from tests.edges.cli.test_prompt import seated

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Program

DELETING: Final = json.dumps([{"key": "k", "delete": True}, {"key": "new", "value": 1}])
REMOVING: Final = json.dumps([{"delete": {"table": "t", "partition_key": "ada"}}])
EXAMPLES: Final = {
    "batch": ["batch", DELETING],
    "blob delete": ["blob", "delete", "b"],
    "deadletter drop": ["deadletter", "drop", "1"],
    "delete": ["delete", "k"],
    "flag clear": ["flag", "clear", "dark"],
    "migrate --reset-clock": ["migrate", "--reset-clock"],
    "migrate down": ["migrate", "down", "base"],
    "namespace set": ["namespace", "set", "--audit-retention", "60"],
    "table delete": ["table", "delete", "t", "ada"],
    "table drop": ["table", "drop", "t"],
    "table index drop": ["table", "index", "drop", "t", "i"],
    "table transact-write": ["table", "transact-write", REMOVING],
    "token revoke": ["token", "revoke", "id"],
}
"""A call of each command that destroys data."""
OF_STORES: Final = {"copy", "restore"}
"""Those that overwrite whole stores: `test_moves` tries them."""


def test_every_command_that_destroys_can_be_confirmed(cli: Cli) -> None:
    """A command that destroys has --yes and -y, and is tried by a test; no other command has them."""
    listed = cli.did("commands", "--json").json["commands"]
    destroying = {one["command"] for one in listed if one["destroys"]}
    assert {one["command"] for one in listed if one["asks"]} == destroying
    for one in listed:
        names = {name for argument in one["arguments"] for name in argument["names"]}
        assert ({"--yes", "-y"} <= names) is one["destroys"], one["command"]
    assert EXAMPLES.keys() == destroying - OF_STORES


@pytest.fixture
def filled(cli: Cli, url: str, tmp_path: Path) -> Cli:
    """A store with a key, a flag, a blob, an item and an audit, all of which a command could destroy."""
    fill(url, ("k", 1, {}))
    cli.did("namespace", "set", "--audit", "--json")
    (tmp_path / "file").write_bytes(b"bytes")
    cli.did("flag", "set", "dark", "true")
    cli.did("blob", "put", "b", tmp_path / "file")
    cli.did("table", "create", "t", "--partition-key", "id:string")
    cli.did("table", "put", "t", '{"id": "ada"}')
    return cli


def _there(cli: Cli) -> list[int]:
    looks = ("get k", "flag get dark", "blob head b", "table get t ada")
    return [cli(*look.split()).code for look in looks]


def test_a_script_without_yes_destroys_nothing(filled: Cli) -> None:
    """Each command that destroys is refused without --yes, and all the data is still there."""
    for name, words in EXAMPLES.items():
        outcome = filled(*words)
        assert (outcome.code, outcome.out, "add --yes to do it" in outcome.err) == (2, "", True), name
        assert filled(*words, "--json").error["field"] == "yes", name
    assert _there(filled) == [0, 0, 0, 0]
    assert filled.did("namespace", "show", "--json").json["policy"]["audit_retention"] is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("batch", "the batch deletes 1 key of plugin jobs"),
        ("blob delete", "blob 'b' of plugin jobs is deleted"),
        ("delete", "key 'k' of plugin jobs is deleted"),
        ("flag clear", "flag 'dark' of plugin jobs is cleared, and programs use their default"),
        ("table delete", "item 'ada' of table 't' of plugin jobs is deleted"),
    ],
)
def test_the_loss_is_named(filled: Cli, name: str, told: str) -> None:
    """The refusal says what would be lost and whose it is; with -y the command does it."""
    assert filled(*EXAMPLES[name]).err == f"holdfast: {told}: add --yes to do it\n"
    filled.did(*EXAMPLES[name], "-y")
    assert sorted(_there(filled)) == [0, 0, 0, 3]


@EVERYWHERE
def test_a_shorter_retention_of_the_audit_asks(cli: Cli) -> None:
    """Only a retention that removes records asks: not one for an empty audit, and not a longer one."""
    prune = ("namespace", "set", "kv/jobs", "--json", "--audit-retention")
    cli.did(*prune, "1d", "--audit")
    cli.did("set", "k", "1")
    refused = cli(*prune, "1h").error["message"]
    assert refused == "audit records of kv/jobs older than 3600 seconds are removed: add --yes to do it"
    cli.did(*prune, "1d", "--quota-keys", "5")
    cli.did(*prune, "2d")
    assert cli.did(*prune, "1h", "--yes").json["policy"]["audit_retention"] == 3600
    cli.did("namespace", "set", "kv/jobs", "--json", "--clear", "audit-retention")
    assert cli(*prune, "9d").code == 2


@EVERYWHERE
def test_absence_is_no_error(cli: Cli) -> None:
    """With --yes, a key, flag or blob that does not exist is still no error."""
    assert cli.did("rm", "gone", "--yes").out == "not there\n"
    assert cli.did("flag", "clear", "gone", "--yes").out == "not set\n"
    assert cli.did("blob", "delete", "gone", "--yes").out == "not there\n"


def test_a_batch_that_deletes_nothing_needs_no_yes(cli: Cli) -> None:
    """Only a deletion in the batch asks; a value that holds the word does not."""
    writes = [{"key": "delete", "value": {"delete": True}}, {"key": "n", "incr": 1}]
    assert cli.did("batch", json.dumps(writes)).out == "1\n2\n"
    many = [{"key": "delete", "delete": True}, {"key": "n", "delete": True}]
    refused = cli("batch", "-", "--tenant", "acme", "--project", "web", stdin=json.dumps({"writes": many}))
    assert "the batch deletes 2 keys of project acme/web: add --yes" in refused.err


@pytest.mark.parametrize(
    "command", ["rm k", "rm --prefix k", "flag clear f", "blob delete b", "table delete t a"]
)
def test_a_missing_plugin_comes_before_the_question(
    cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that names no plugin could destroy nothing, so it says that instead of asking."""
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    assert "Give --plugin NAME" in cli(*command.split()).err


def test_the_question_names_the_namespace_of_a_context(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace comes from the context that the command is run in."""
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    cli("context", "add", "prod", "--url", url, "--plugin", "kept")
    for words in (
        ["rm", "k"],
        ["flag", "clear", "k"],
        ["blob", "delete", "k"],
        ["table", "delete", "t", "k"],
    ):
        assert "of plugin kept is " in cli("-c", "prod", *words).err, words


def test_a_prompt_asks(program: Program, url: str) -> None:
    """At the prompt of the shell a question can be declined and left with Ctrl-C, and the prompt goes on."""
    fill(url, ("k", 1, {}))
    with seated(program) as seat:
        seat.at_the_prompt()
        for answer, left in ((b"n\n", b"1\r\n"), (None, b"1\r\n"), (b"y\n", b"there is no key")):
            seat.type(b"rm k\r")
            seat.until(b"key 'k' of plugin jobs is deleted. Go on? [y/N]")
            if answer is None:
                seat.process.send_signal(signal.SIGINT)
            else:
                seat.type(answer)
            seat.at_the_prompt()
            seat.type(b"get k\r")
            assert left in seat.at_the_prompt()
        assert seat.leave() == 0
