"""Many keys at once: deleting by prefix, the tree of keys, and batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.edges.cli.conftest import EVERYWHERE, fill

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


@pytest.fixture
def filled(cli: Cli, url: str) -> Cli:
    """A few keys, with two kinds of separators."""
    fill(url, *((key, 1, {}) for key in ("a", "game:1:score", "game:1:turn", "game:2", "users/ann")))
    return cli


@EVERYWHERE
def test_delete_by_prefix(filled: Cli) -> None:
    """What would go can be seen first; then it goes, and nothing else does."""
    seen = filled("rm", "--prefix", "game:", "--dry-run")
    assert seen.out == "game:1:score\ngame:1:turn\ngame:2\n"
    assert seen.err == "holdfast: 3 keys would be deleted\n"
    assert filled("rm", "--prefix", "game:").code == 2
    assert filled.did("list").out.count("\n") == 5
    assert filled.did("rm", "--prefix", "game:1", "--yes").out == "deleted 2 keys\n"
    assert filled.did("delete", "--prefix", "game:", "-y", "--json").json == {"deleted": 1}
    assert filled.did("list").out == "a\nusers/ann\n"


@EVERYWHERE
def test_many_pages_are_deleted(cli: Cli, url: str) -> None:
    """A prefix may have more keys than a page."""
    batch = [{"key": f"k{number:04}", "value": 0} for number in range(1000)]
    cli.did("batch", "-", stdin=json.dumps(batch))
    cli.did("batch", "-", stdin=json.dumps([{"key": "k1000", "value": 0}, {"key": "other", "value": 0}]))
    assert cli.did("rm", "--prefix", "k", "--yes").out == "deleted 1001 keys\n"
    assert cli.did("list").out == "other\n"


@pytest.mark.parametrize(
    "line",
    ["rm", "rm k --prefix p", "rm --prefix= --yes", "rm k --dry-run", "rm --prefix p --yes --if-version 1"],
)
def test_an_ambiguous_deletion_deletes_nothing(filled: Cli, line: str) -> None:
    """A key and a prefix exclude each other, and an empty prefix does not mean everything."""
    assert filled(*line.split()).code == 2
    assert filled.did("list").out.count("\n") == 5


def test_counts_of_thousands_have_plain_digits(cli: Cli) -> None:
    """Numbers can be pasted: those of the tree, and those that the doctor finds."""
    for first in (0, 1_000):
        batch = [{"key": f"game:{number}", "value": 1} for number in range(first, min(first + 1_000, 1_001))]
        cli.did("batch", "-", stdin=json.dumps(batch))
    assert cli.did("tree", "--depth", "1").out == "game: (1001)\n"
    assert "rows: 1001, namespaces: 1" in cli("doctor", "--deep").out


def test_tree(filled: Cli) -> None:
    """Keys branch at / and :, and each branch has its count."""
    assert filled.did("tree").out == ("a\ngame: (3)\n  1: (2)\n    score\n    turn\n  2\nusers/ (1)\n  ann\n")
    assert filled.did("tree", "--depth", "1").out == "a\ngame: (3)\nusers/\n"
    assert filled.did("tree", "game:1").out.splitlines()[0] == "game: (2)"
    assert filled.did("tree", "--separators", "", "--json").json["keys"] == 5
    assert filled("tree", "--depth", "0").code == 2


@EVERYWHERE
def test_batch(cli: Cli) -> None:
    """All writes or none, from an argument, stdin or a file, with checks if there are any."""
    cli.did("set", "n", "1")
    writes = [{"key": "a", "value": {"x": 1}}, {"key": "n", "incr": 2}, {"key": "gone", "delete": True}]
    assert cli.did("batch", json.dumps(writes), "--yes").out == "2\n3\n-\n"
    guarded = {"checks": [{"key": "a", "version": 9}], "writes": [{"key": "b", "value": 1}]}
    assert cli("batch", "-", "--json", stdin=json.dumps(guarded)).error["error_code"] == "VERSION_CONFLICT"
    assert cli("get", "b").code == 3
    for wrong in ("5", "{}", '{"writes": [], "more": 1}', "[5]", "nonsense"):
        assert cli("batch", wrong).code == 2
    told = cli("batch", "writes.json").err
    assert "@FILE" in told
    assert "--text" not in told  # an option that this command does not have
