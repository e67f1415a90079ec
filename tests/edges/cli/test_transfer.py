"""Export and import: what comes out goes in again unchanged, and nothing is ever written by halves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.cli.commands import transfer
from tests.edges.cli.conftest import fill, lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli

HEADER = '{"holdfast":1,"namespace":"kv/jobs","exported_at":"2031-05-01T00:00:00Z"}'
DEEP = 3000
"""So deep is a value nested that no parser can follow it."""


def entry_line(number: int, /, **fields: Any) -> str:
    """A line of an export."""
    entry = {
        "key": f"k{number}",
        "value": number,
        "version": number,
        "created_at": "2031-05-01T00:00:00Z",
        "updated_at": "2031-05-02T00:00:00Z",
        "expires_at": None,
        "last_writer": "me",
        "semantics": None,
        "request_id": None,
        "spec_ref": None,
    }
    return json.dumps(entry | fields)


def exported(cli: Cli, *arguments: object) -> list[Any]:
    """The entries of an export, without the header."""
    return cli.did("export", *arguments).jsons[1:]


@pytest.fixture
def filled(cli: Cli, url: str) -> Cli:
    """A namespace with gaps between its versions, and entries with everything that an entry can have."""
    meaning = {"purpose": "config", "producer": "me", "consumer_hints": ["you"]}
    fill(
        url,
        ("b", {"n": [1, None]}, {"writer": "agent:1", "spec_ref": "doc", "request_id": "r1"}),
        ("a", 1, {}),
        ("c", "grün\x00", {"ttl": 3600, "semantics": meaning}),
        ("a", 1 - 10**4300, {}),
        ("gone", 1, {"ttl": 3600}),
    )
    cli.did("delete", "gone", "--yes")
    return cli


def test_a_round_trip_is_identical(filled: Cli, tmp_path: Path) -> None:
    """Exported, imported into an empty namespace and exported again, every line is the same."""
    first = filled.did("export").out
    assert [json.loads(line)["version"] for line in first.splitlines()[1:]] == [1, 3, 4]
    imported = filled("import", "-", "--url", tmp_path / "other.db", stdin=first)
    assert (imported.code, imported.err) == (0, "holdfast: 3 entries imported into kv/jobs\n")
    again = filled.did("export", "--url", tmp_path / "other.db").out
    assert again.splitlines()[1:] == first.splitlines()[1:]


def test_the_counter_goes_on_from_the_last_version(filled: Cli) -> None:
    """After an import that kept versions the next write has a greater one than any entry."""
    filled("import", "-", "--plugin", "copy", stdin=filled.did("export").out)
    assert filled.did("stats", "--plugin", "copy", "--json").json["version"] == 4
    assert filled.did("set", "a", "1", "--if-version", "4", "--plugin", "copy").out == "5\n"


def test_the_namespace_is_the_one_of_the_export(filled: Cli, tmp_path: Path) -> None:
    """The header says where entries go when the command line does not; semantic keys stay whole."""
    here = ["--tenant", "acme", "--project", "web"]
    filled.did("set", "x", "1", *here)
    content = filled.did("export", *here).out
    assert json.loads(content.splitlines()[0])["namespace"] == "semantic/acme/web"
    filled("import", "-", "--url", tmp_path / "o.db", stdin=content)
    assert exported(filled, "--url", tmp_path / "o.db", *here)[0]["key"] == "tenant/acme/project/web/x"
    elsewhere = filled("import", "-", "--tenant", "acme", "--project", "app", stdin=content)
    assert elsewhere.code == 2
    assert "line 2: key does not belong here" in elsewhere.err


def test_a_part_of_a_namespace(filled: Cli) -> None:
    """With a prefix only the keys that begin with it are exported."""
    assert [entry["key"] for entry in exported(filled, "--prefix", "b")] == ["b"]


def test_expired_entries_are_not_exported(filled: Cli, url: str) -> None:
    """An entry is gone at its deadline, swept or not."""
    with contextlib.closing(sqlite3.connect(url)) as connection, connection:
        connection.execute("UPDATE plugin_kv_storage SET expires_at = 1 WHERE key = 'c'")
    assert [entry["key"] for entry in exported(filled)] == ["b", "a"]


def test_a_file_appears_when_it_is_complete(filled: Cli, tmp_path: Path) -> None:
    """An export to a file leaves that file and nothing else, or says why it can't."""
    told = filled("export", "--out", tmp_path / "jobs.jsonl")
    assert (told.code, told.out) == (0, "")
    assert (tmp_path / "jobs.jsonl").read_text().count("\n") == 4
    before = (tmp_path / "jobs.jsonl").read_bytes()
    refused = filled("export", "--out", tmp_path / "jobs.jsonl")
    assert refused.code == 2
    assert "jobs.jsonl already exists; --force replaces it" in refused.err
    assert (tmp_path / "jobs.jsonl").read_bytes() == before
    as_json = filled.did("export", "--out", tmp_path / "jobs.jsonl", "--force", "--json").json
    assert (as_json["namespace"], as_json["entries"]) == ("kv/jobs", 3)
    refused = filled("export", "--out", tmp_path / "no" / "jobs.jsonl")
    assert (refused.code, "no such file or directory" in refused.err) == (2, True)
    assert sorted(path.name for path in tmp_path.glob("*jobs*")) == ["jobs.jsonl"]


def test_entries_written_past_holdfast_keep_their_versions(cli: Cli, url: str) -> None:
    """An entry that another program wrote has a version, which an import into an empty namespace keeps."""
    cli.did("set", "k", "1")
    with contextlib.closing(sqlite3.connect(url)) as connection, connection:
        connection.execute(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('jobs', 'a', '2')"
        )
    assert [(entry["key"], entry["version"]) for entry in exported(cli)] == [("k", 1), ("a", 2)]
    cli("import", "-", "--plugin", "copy", stdin=cli.did("export").out)
    assert [(entry["key"], entry["version"]) for entry in exported(cli, "--plugin", "copy")] == [
        ("k", 1),
        ("a", 2),
    ]


def test_a_namespace_in_use_gets_new_versions(filled: Cli) -> None:
    """Versions are never reused: where there has been one, entries get new ones, and that is said."""
    before = exported(filled)
    outcome = filled("import", "-", stdin=filled.did("export").out)
    assert outcome.code == 0
    assert "kv/jobs has been written to before, so the entries get new versions" in outcome.err
    after = exported(filled)
    assert [entry["version"] for entry in after] == [7, 8, 9]
    assert [entry | {"version": 0} for entry in after] == [entry | {"version": 0} for entry in before]


def test_a_dry_run_changes_nothing(cli: Cli, url: str) -> None:
    """Every line is checked, and nothing is written."""
    content = lines([HEADER, entry_line(1), entry_line(2, expires_at="2020-01-01T00:00:00Z")])
    outcome = cli("import", "-", "--dry-run", "--json", stdin=content)
    assert outcome.json == {
        "namespace": "kv/jobs",
        "keeps_versions": True,
        "dry_run": True,
        "written": 1,
        "expired": 1,
        "skipped": 0,
        "policy_set": False,
    }
    assert cli.did("stats", "--plugin", "jobs", "--json").json["version"] == 0
    bad = cli("import", "-", "--dry-run", stdin=lines([HEADER, "x", entry_line(1), "y"]))
    assert (bad.code, bad.err.count("line ")) == (2, 2)


def test_expired_entries_are_left_out(cli: Cli) -> None:
    """What has expired since the export is not brought back."""
    content = lines([HEADER, entry_line(1, expires_at="2020-01-01T00:00:00Z"), entry_line(2)])
    assert cli.did("import", "-", "--json", stdin=content).json["expired"] == 1
    assert cli.did("list").out == "k2\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", None),
        ("nonsense", "this is not JSON"),
        ("5", "this is not an entry"),
        ('{"key":"k"}', "missing required field"),
        (entry_line(2, key=""), "key must not be empty"),
        (entry_line(2, value="x" * 70000), "exceeds 64KB limit"),
        (entry_line(2, version=-1), "version must be"),
        (entry_line(2, version=2**62 + 1), f"version must be a whole number from 0 to {2**62}"),
        (entry_line(2, version=2**63 - 1), f"version must be a whole number from 0 to {2**62}"),
        (entry_line(2, version="2"), "this is not an entry"),
        (entry_line(2, last_writer=""), "last_writer must be"),
        (entry_line(2, semantics={"purpose": "UPPER"}), "semantics.purpose"),
        (entry_line(2, created_at="yesterday"), "this is not an entry"),
        (entry_line(1), "versions are kept only in ascending order"),
        ('{"key":"k","value":' + "[" * DEEP + "]" * DEEP + "}", "line 3: "),
    ],
)
def test_bad_lines_are_reported_with_their_number(cli: Cli, line: str, told: str | None) -> None:
    """A bad line stops the import before anything of its chunk is written; an empty one is no line."""
    if line.count("[") == DEEP:
        gc.collect()  # what earlier tests left would complain from the bottom of a deep recursion
    outcome = cli("import", "-", stdin=lines([HEADER, entry_line(1), line, entry_line(3)]))
    if told is None:
        assert (outcome.code, cli.did("list").out) == (0, "k1\nk3\n")
        return
    assert outcome.code == 2
    assert outcome.err.startswith("holdfast: line 3: ")
    assert told in outcome.err
    assert cli.did("stats", "--plugin", "jobs", "--json").json["version"] == 0


def test_only_so_many_bad_lines_are_described(cli: Cli) -> None:
    """A file of another kind does not flood the screen."""
    outcome = cli("import", "-", stdin=lines([HEADER, *(["nonsense"] * 30)]))
    assert outcome.err.endswith("line 11: this is not JSON; and 20 lines more\n")


@pytest.mark.parametrize("header", ["", "{}", "nonsense", entry_line(1), '{"holdfast":2,"namespace":"kv/a"}'])
def test_a_file_without_a_header_is_refused(cli: Cli, header: str) -> None:
    """What is not an export is not taken for one."""
    outcome = cli("import", "-", stdin=lines([header, entry_line(2)]))
    assert (outcome.code, outcome.err) == (2, "holdfast: line 1 is not the header of a Holdfast export\n")


def test_a_newer_format_is_refused(cli: Cli) -> None:
    """An export of a later Holdfast is not read by guessing."""
    outcome = cli("import", "-", stdin=HEADER.replace(":1,", ":2,"))
    assert outcome.code == 1
    assert "upgrade Holdfast" in outcome.err


def test_input_that_is_not_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, and a header without a namespace of keys, are said in one line."""
    assert cli("import", "missing.jsonl").err == "holdfast: missing.jsonl: no such file or directory\n"
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    outcome = cli("import", "-", stdin=HEADER.replace("kv/jobs", "table/jobs"))
    assert (outcome.code, "--plugin" in outcome.err) == (2, True)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of two entries."""
    monkeypatch.setattr(transfer, "MAX_BATCH", 2)


@pytest.mark.usefixtures("small_chunks")
def test_resume_goes_on_where_it_was_cut_short(cli: Cli) -> None:
    """The chunks before a bad line stay; once it is mended, the import goes on after them."""
    good = [entry_line(version) for version in range(1, 8)]
    cut = cli("import", "-", stdin=lines([HEADER, *good[:5], "nonsense", *good[6:]]))
    assert (cut.code, cut.err.startswith("holdfast: line 7: ")) == (2, True)
    assert cli.did("list").out == "k1\nk2\nk3\nk4\n"
    resumed = cli.did("import", "-", "--resume", "--json", stdin=lines([HEADER, *good])).json
    assert (resumed["written"], resumed["skipped"], resumed["keeps_versions"]) == (3, 4, True)
    assert [entry["version"] for entry in exported(cli)] == list(range(1, 8))
    complete = cli.did("import", "-", "--resume", "--json", stdin=lines([HEADER, *good])).json
    assert (complete["written"], complete["skipped"]) == (0, 7)


def test_resume_into_an_empty_namespace_begins(cli: Cli) -> None:
    """With nothing to go on from, --resume imports all."""
    assert (
        cli.did("import", "-", "--resume", "--json", stdin=lines([HEADER, entry_line(3)])).json["written"]
        == 1
    )


@pytest.mark.parametrize("version", [2, 3, 9])
def test_resume_refuses_what_it_did_not_begin(cli: Cli, version: int) -> None:
    """A namespace that others have written to is not taken for an import that was cut short."""
    begun = lines([HEADER, entry_line(1), entry_line(2)])
    cli("import", "-", stdin=begun)
    for _ in range(version - 2):
        cli.did("set", "mine", "1")
    if version == 2:
        cli.did("delete", "k2", "--yes")
    outcome = cli("import", "-", "--resume", stdin=begun + lines([entry_line(3), entry_line(4)]))
    assert (outcome.code, "--resume" in outcome.err) == (2, True)
    assert cli("get", "k4").code == 3


def test_resume_where_the_last_entry_has_expired(cli: Cli) -> None:
    """An entry that is gone by now is no reason to refuse: its version is still the namespace's last."""
    asyncio.run(_expire("state.db"))
    content = lines([HEADER, entry_line(1, expires_at="2024-01-01T00:00:00Z"), entry_line(2)])
    assert cli.did("import", "-", "--resume", "--json", stdin=content).json["skipped"] == 1


async def _expire(url: str) -> None:
    """Leave the first line behind as it was before its deadline."""
    async with holdfast.open(url, clock=ManualClock(), reap=False) as store:
        assert (await store.kv("jobs").set("k1", 1, ttl=1)).version == 1


def test_more_than_fits_a_chunk(cli: Cli) -> None:
    """Any number of entries of any size can be moved: chunks hold at most 1,000 entries and 512 KB."""
    many = [entry_line(version) for version in range(1, 2502)]
    large = [entry_line(version, value="x" * 65000) for version in range(2502, 2520)]
    assert cli.did("import", "-", "--json", stdin=lines([HEADER, *many, *large])).json["written"] == 2519
    assert [entry["version"] for entry in exported(cli)] == list(range(1, 2520))


def test_between_engines(filled: Cli, pg_url: str) -> None:
    """A namespace moves from SQLite to PostgreSQL and back, to the byte."""
    first = filled.did("export").out
    assert filled("import", "-", "--url", pg_url, stdin=first).code == 0
    second = filled.did("export", "--url", pg_url).out
    assert second.splitlines()[1:] == first.splitlines()[1:]
    assert filled("import", "-", "--plugin", "back", stdin=second).code == 0
    assert filled.did("export", "--plugin", "back").out.splitlines()[1:] == first.splitlines()[1:]
    assert filled.did("set", "a", "1", "--if-version", "4", "--url", pg_url).out == "5\n"
