"""`holdfast export` and `import` of policies and of a plugin's tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import holdfast.sync
from holdfast.edges.cli.commands import transfer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli


def versions(cli: Cli, *where: object) -> list[Any]:
    """The keys and versions of an export."""
    lines = [json.loads(line) for line in cli.did("export", *where).out.splitlines()[1:]]
    return [(one["key"], one["version"]) for one in lines]


def test_a_policy_that_was_set_first(cli: Cli, tmp_path: Path) -> None:
    """Entries keep their versions in a namespace that has only had policies, audited ones included."""
    for key in ("a", "b", "a"):
        cli.did("set", key, "1")
    content, before = cli.did("export").out, versions(cli)
    other = ["--url", tmp_path / "other.db"]
    for policy in ("--audit", "--trash"):
        assert cli("namespace", "set", policy, *other).code == 0
    assert cli("import", "-", *other, stdin=content).code == 0
    assert (versions(cli, *other), before) == ([("b", 2), ("a", 3)], [("b", 2), ("a", 3)])
    assert cli.did("set", "c", "1", *other).out == "4\n"
    assert cli("audit", "verify", *other).code == 0


def test_the_policy_goes_with_the_entries(cli: Cli, tmp_path: Path) -> None:
    """A namespace without a policy gets that of the export; another keeps its own; a dry run sets none."""
    cli.did("set", "k", "1")
    cli("namespace", "set", "--quota-keys", "5")
    content = cli.did("export").out
    assert json.loads(content.splitlines()[0])["policy"] == {"quota_keys": 5}
    other = ["--url", tmp_path / "other.db"]
    assert "with its policy" in cli("import", "-", *other, "--dry-run", stdin=content).err
    done = cli.did("import", "-", *other, "--json", stdin=content).json
    assert (done["policy_set"], done["keeps_versions"]) == (True, True)
    assert cli.did("namespace", "show", "--json", *other).json["policy"]["quota_keys"] == 5
    cli("namespace", "set", "--quota-keys", "7", *other)
    assert not cli.did("import", "-", *other, "--json", stdin=content).json["policy_set"]


@pytest.mark.parametrize("tables", [False, True])
def test_an_import_keeps_to_the_rate_that_it_has_set(
    cli: Cli, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tables: bool
) -> None:
    """The policy of an export may allow few requests a second. All of the export is imported nevertheless."""
    with holdfast.sync.open(url) as store:
        if tables:
            store.tables("jobs").create_table("t", partition_key=("k", "number"))
            puts = [{"put": {"item": {"k": number}}} for number in range(30)]
            store.tables("jobs").batch_write_item("t", puts)
        else:
            store.kv("jobs").set_many([{"key": f"k{number}", "value": number} for number in range(30)])
    assert cli("namespace", "set", "table/jobs" if tables else "kv/jobs", "--rate-limit", "20").code == 0
    content = cli.did("export", *(["--tables"] if tables else [])).out
    monkeypatch.setattr(transfer, "MAX_BATCH", 1)
    other = ["--url", tmp_path / "other.db"]
    done = cli("import", "-", *other, "--json", stdin=content)
    assert (done.code, done.json["written"]) == (0, 30)


def test_large_values_go_with_the_policy_that_allows_them(cli: Cli, tmp_path: Path) -> None:
    """The policy of an export also says how large its values may be, in a dry run too."""
    cli("namespace", "set", "--max-value-bytes", "524288")
    cli.did("set", "k", "-", stdin=json.dumps("x" * 524_286))
    content = cli.did("export").out
    other = ["--url", tmp_path / "other.db"]
    for arguments in (["--dry-run"], []):
        done = cli.did("import", "-", *other, "--json", *arguments, stdin=content).json
        assert (done["written"], done["policy_set"]) == (1, True)
    assert cli.did("export", *other).out.splitlines()[1:] == content.splitlines()[1:]
    cli("namespace", "set", "--quota-keys", "5", "--plugin", "own", *other)
    refused = cli("import", "-", "--plugin", "own", *other, stdin=content)
    assert (refused.code, "exceeds 64KB limit" in refused.err) == (2, True)


def made(cli: Cli) -> str:
    """A table with an index and three items; its export."""
    cli("table", "create", "scores", "--partition-key", "user:string", "--sort-key", "day:number")
    for day in (1, 2, 3):
        cli.did("table", "put", "scores", json.dumps({"user": "ada", "day": day, "won": f"w{day}"}))
    cli("table", "index", "create", "scores", "by-won", "--key", "won:string")
    return cli.did("export", "--tables").out


def test_tables_go_there_and_come_back(cli: Cli, tmp_path: Path) -> None:
    """Definitions, items and indexes arrive; repeated, an import changes nothing that a query shows."""
    content = made(cli)
    header = json.loads(content.splitlines()[0])
    assert (header["namespace"], [one["table"] for one in header["tables"]]) == ("table/jobs", ["scores"])
    other = ["--url", tmp_path / "other.db"]
    dry = cli.did("import", "-", *other, "--dry-run", "--json", stdin=content).json
    assert (dry["written"], dry["tables"]) == (3, 1)
    assert cli("table", "list", *other).out == ""
    for tables in (1, 0):
        done = cli.did("import", "-", *other, "--json", stdin=content).json
        assert (done["written"], done["tables"]) == (3, tables)
    found = cli.did("table", "index", "query", "scores", "by-won", "w2", *other).out
    assert '"day":2' in found
    shown = [cli.did("table", "scan", "scores", "--all", *where).out for where in ([], other)]
    assert shown[0] == shown[1]


def test_tables_that_do_not_fit(cli: Cli, tmp_path: Path) -> None:
    """A table with other keys is left alone, and a bad line is named before its chunk is written."""
    content = made(cli)
    other = ["--url", tmp_path / "other.db"]
    cli("table", "create", "scores", "--partition-key", "user:number", *other)
    refused = cli("import", "-", *other, stdin=content)
    assert (refused.code, "has another definition" in refused.err) == (2, True)
    for line, told in (('{"table": "x", "item": {}, "version": 1}', "no table 'x'"), ("[]", "not an item")):
        bad = cli("import", "-", "--plugin", "fresh", stdin=content + line + "\n")
        assert (bad.code, "line 5" in bad.err, told in bad.err) == (2, True, True)


def test_the_longest_integers_of_items_come_back(cli: Cli, tmp_path: Path) -> None:
    """An item may have integers of 4,300 digits, with and without a sign, as an entry may."""
    cli("table", "create", "numbers", "--partition-key", "n:number")
    item = '{"n":1,"least":-' + "9" * 4300 + ',"most":' + "9" * 4300 + "}"
    cli.did("table", "put", "numbers", item)
    other = ["--url", tmp_path / "other.db"]
    assert cli("import", "-", *other, stdin=cli.did("export", "--tables").out).code == 0
    shown = [cli.did("table", "scan", "numbers", "--all", *where).out for where in ([], other)]
    assert (shown[0] == shown[1], item[1:-1] in shown[0]) == (True, True)
