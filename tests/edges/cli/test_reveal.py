"""`holdfast reveal`, `table reveal` and `blob reveal`: what `get` prints, and who looked in the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


def test_an_entry_is_revealed(cli: Cli) -> None:
    """The value is printed in any form that `get` knows, and the audit has who looked and why."""
    cli.did("set", "a", '"secret"')
    cli("namespace", "set", "kv/jobs", "--audit")
    assert cli.did("reveal", "a", "--why", "OPS-1", "--writer", "ann").out == '"secret"\n'
    assert cli.did("reveal", "a", "--why", "OPS-1", "--raw").out == "secret\n"
    assert cli.did("reveal", "a", "--why", "OPS-1", "--long", "--json").json["version"] == 1
    log = cli.did("audit", "log", "kv/jobs", "--op", "revealed", "--json").jsons
    assert [(one["key"], one["writer"], one["spec_ref"]) for one in log] == [
        ("a", "ann", "OPS-1"),
        ("a", "cli", "OPS-1"),
        ("a", "cli", "OPS-1"),
    ]
    newest = cli("audit", "log", "kv/jobs", "--reverse", "--limit", "1", "--json").jsons
    assert [one["number"] for one in newest] == [log[-1]["number"]]


def test_a_reveal_is_refused(cli: Cli) -> None:
    """A reason that the audit lacks, a policy that forbids it and a missing key are refused and say so."""
    cli.did("set", "a", "1")
    assert cli.did("reveal", "a").out == "1\n"
    cli("namespace", "set", "kv/jobs", "--audit")
    asked = cli("reveal", "a")
    assert (asked.code, "say why" in asked.err) == (2, True)
    assert cli("reveal", "nothing", "--why", "OPS-1").code == 3
    cli("namespace", "set", "kv/jobs", "--reveal", "never")
    assert cli("reveal", "a", "--why", "OPS-1").code != 0


def test_an_item_is_revealed(cli: Cli) -> None:
    """An item is printed as `table get` prints it, and the audit has its name."""
    cli.did("table", "create", "scores", "--partition-key", "user:string")
    cli.did("table", "put", "scores", '{"user": "ann", "points": 3}')
    cli("namespace", "set", "table/jobs", "--audit")
    shown = cli.did("table", "reveal", "scores", "ann", "--why", "OPS-1", "--json").json
    assert shown == {"user": "ann", "points": 3}
    [one] = cli.did("audit", "log", "table/jobs", "--op", "revealed", "--json").jsons
    assert ("scores" in one["key"], one["spec_ref"]) == (True, "OPS-1")
    assert cli("table", "reveal", "scores", "bob", "--why", "OPS-1").code == 3


def test_a_blob_is_revealed(cli: Cli, tmp_path: Path) -> None:
    """The bytes are written to a file, and the audit has the blob's name."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"secret")
    cli.did("blob", "put", "a", str(source))
    cli("namespace", "set", "blob/jobs", "--audit")
    cli.did("blob", "reveal", "a", "--why", "OPS-1", "--output", str(target))
    assert target.read_bytes() == b"secret"
    [one] = cli.did("audit", "log", "blob/jobs", "--op", "revealed", "--json").jsons
    assert (one["key"], one["spec_ref"]) == ("a", "OPS-1")
    assert cli("blob", "reveal", "none", "--why", "OPS-1", "--output", str(tmp_path / "no")).code == 3
