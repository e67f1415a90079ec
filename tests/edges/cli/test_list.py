"""Listing: pages, all pages, orders, and forms that programs can read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.edges.cli.conftest import fill

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


@pytest.fixture
def listed(cli: Cli, url: str) -> Cli:
    """Four keys of different size, version, deadline and age."""
    fill(
        url,
        ("a", "xxxxx", {"ttl": 300}),
        ("c", 1, {}),
        ("b", "xx", {"ttl": 200}),
        ("c", 2222, {}),
        ("other", None, {}),
    )
    return cli


def test_keys_in_order(listed: Cli) -> None:
    """Without options the keys are printed one on each line, in the order of their bytes."""
    assert listed.did("list").out == "a\nb\nc\nother\n"
    assert listed.did("list", "o").out == "other\n"
    assert listed.did("list", "nothing").out == ""


def test_a_page_tells_that_there_is_more(listed: Cli) -> None:
    """A page that is not the last says how to go on, in JSON with a cursor."""
    page = listed("list", "--limit", "2")
    assert (page.code, page.out) == (0, "a\nb\n")
    assert "--all" in page.err
    first = listed.did("list", "--limit", "2", "--json").json
    assert (first["keys"], first["count"], first["truncated"]) == (["a", "b"], 2, True)
    rest = listed.did("list", "--json", "--cursor", first["cursor"]).json
    assert (rest["keys"], rest["truncated"], rest["cursor"]) == (["c", "other"], False, None)
    assert listed("list", "--limit", "0").code == 2
    assert listed("list", "--cursor", "?").code == 2


@pytest.mark.parametrize("size", [1, 3])
def test_all_pages(listed: Cli, size: int) -> None:
    """With --all the pages are followed to the end, however small they are; JSON comes line by line."""
    assert listed.did("list", "--all", "--limit", size).out == "a\nb\nc\nother\n"
    found = listed.did("list", "--all", "--json", "--limit", size).jsons
    assert found == [{"key": key} for key in ("a", "b", "c", "other")]


def test_long(listed: Cli) -> None:
    """With --long the size of the value, the version, the seconds left and the last change are shown."""
    cells = [line.split("\t") for line in listed.did("list", "--long").out.splitlines()]
    assert [row[:3] for row in cells] == [
        ["a", "7", "1"],
        ["b", "4", "3"],
        ["c", "4", "4"],
        ["other", "4", "5"],
    ]
    assert 0 < int(cells[0][3]) <= 300
    assert cells[2][3] == "-"
    assert all(row[4].endswith("Z") for row in cells)
    entries = listed.did("list", "--long", "--json").json["entries"]
    assert list(entries[0]) == ["key", "size", "version", "ttl", "updated_at"]
    assert [entry["ttl"] is None for entry in entries] == [False, False, True, True]
    again = listed.did("list", "--long", "--all", "--json").jsons
    passed = [entry.pop("ttl") or 0 for entry in again]  # the clock goes on between the two commands
    assert all(left <= (entry.pop("ttl") or 0) for left, entry in zip(passed, entries, strict=True))
    assert again == entries


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("key", ["a", "b", "c", "other"]),
        ("size", ["b", "c", "other", "a"]),
        ("version", ["a", "b", "c", "other"]),
        ("ttl", ["b", "a", "c", "other"]),
        ("updated", ["a", "b", "c", "other"]),
    ],
)
def test_orders(listed: Cli, order: str, keys: list[str]) -> None:
    """Rows can be sorted by what they show; those without a deadline have the longest."""
    assert listed.did("list", "--sort", order).out.split() == keys
    assert listed.did("list", "--sort", order, "--all", "--limit", "1").out.split() == keys
    assert listed.did("list", "--sort", order, "--reverse", "--json").json["keys"] == keys[::-1]


def test_an_unknown_order_is_refused(cli: Cli) -> None:
    """What can be sorted by is said in the error."""
    outcome = cli("list", "--sort", "colour")
    assert outcome.code == 2
    assert "updated" in outcome.err


def test_keys_that_would_disturb_a_line(cli: Cli) -> None:
    """A key with a control character in it is one line still, and can be told from any other key."""
    for key in ("a\nb", '"a\\nb"', "esc\x1b[2J", "plain"):
        cli.did("set", key, "1")
    assert cli.did("list").out.splitlines() == ['"\\"a\\\\nb\\""', '"a\\nb"', '"esc\\u001b[2J"', "plain"]


def test_entries_by_their_envelope(cli: Cli, url: str) -> None:
    """Options of the envelope choose what is listed; one that can't be is named and nothing is listed."""
    meaning = {"purpose": "lock", "producer": "nightly"}
    fill(
        url,
        ("a", 1, {"semantics": meaning, "writer": "bot:sync", "spec_ref": "adr-7", "ttl": 60}),
        ("b", 1, {"semantics": {"purpose": "lock"}, "ttl": 86_400}),
        ("c", 1, {"writer": "bot:sync"}),
    )
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert cli.did("list", "--purpose", "lock").out == "a\nb\n"
    assert cli.did("list", "--producer", "nightly").out == "a\n"
    assert cli.did("list", "--writer", "bot:sync", "--all", "--limit", "1").out == "a\nc\n"
    assert cli.did("list", "--spec-ref", "adr-7", "--json").json["keys"] == ["a"]
    assert cli.did("list", "--expires-before", soon).out == "a\n"
    assert cli.did("list", "--purpose", "lock", "--writer", "bot:sync", "--long").out.startswith("a\t")
    page = cli("list", "--purpose", "lock", "--limit", "1")
    assert (page.code, page.out) == (0, "a\n")
    assert "may be more" in page.err
    wrong = cli("list", "--expires-before", "soon", "--json")
    assert (wrong.code, wrong.out, wrong.error["field"]) == (2, "", "expires_before")
