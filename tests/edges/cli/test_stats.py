"""Looking at a store: what it holds, whether it answers, and how fast it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.clock import moment
from holdfast.edges.cli.commands import operators as observe
from holdfast.model import Stats

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


def test_stats_of_all_and_of_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every namespace is listed by name, or one alone; one that was never written to is empty."""
    cli.did("set", "k", "1")
    cli.did("set", "kk", "22", "--plugin", "other")
    cells = cli.did("stats", "--plugin", "jobs").out.split("\t")
    entries, journal = int(cells[4]), int(cells[7])
    kept = [entries + journal, entries, 0, 0, journal, *[0] * 6]
    assert cells[:-1] == ["kv/jobs", "1", "2", *map(str, kept), "1"]
    one = cli.did("stats", "--plugin", "jobs", "--json").json
    assert (one["kept_bytes"], one["parts"]["entries"]) == (entries + journal, entries)
    assert cli.did("stats", "--plugin", "never", "--json").json["keys"] == 0
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    assert [line.split("\t")[0] for line in cli.did("stats").out.splitlines()] == ["kv/jobs", "kv/other"]
    found = cli.did("stats", "--json").json["namespaces"]
    assert [(one["namespace"], one["keys"], one["bytes"]) for one in found] == [
        ("kv/jobs", 1, 2),
        ("kv/other", 1, 4),
    ]


def test_ping(cli: Cli) -> None:
    """Each round trip of the readiness probe is timed; a store that can't be reached is exit code 5."""
    cli.did("set", "k", "1")
    assert cli.did("ping", "--count", "3").out.count("ready in ") == 3
    answer = cli.did("ping", "--count", "2", "--json").json
    assert answer["count"] == len(answer["times_ms"]) == 2
    assert cli("ping", "--url", "postgresql://nobody@127.0.0.1:1/x").code == 5
    for count in ("0", "1.5", "-1"):
        assert cli("ping", "--count", count).code == 2


def test_top_once(cli: Cli) -> None:
    """For scripts, one sample is printed and the command ends."""
    cli.did("set", "k", "1")
    assert cli.did("top", "--once", "--interval", "0.01").out == "kv/jobs\t1\t2\t0.0\n"
    assert cli.did("top", "--once", "--interval", "0.01", "--json").json == {
        "namespaces": [{"namespace": "kv/jobs", "keys": 1, "bytes": 2, "changes_per_second": 0.0}]
    }
    for interval in ("0", "-1", "1e9", "often"):
        assert cli("top", "--once", "--interval", interval).code == 2


def test_the_busiest_comes_first() -> None:
    """Namespaces are ordered by changes per second, then by keys; a new one counts from its first version."""

    def stats(name: str, keys: int, version: int) -> Stats:
        return Stats(namespace=name, keys=keys, bytes=0, version=version, changed_at=moment(0))

    before = [stats("a", 1, 10), stats("b", 1, 10), stats("c", 5, 10)]
    now = [stats("a", 1, 10), stats("b", 1, 30), stats("c", 5, 10), stats("d", 1, 10)]
    found = observe.samples(before, now, 2.0)
    assert [(one.namespace, one.changes_per_second) for one in found] == [
        ("b", 10.0),
        ("d", 5.0),
        ("c", 0.0),
        ("a", 0.0),
    ]


def test_history(cli: Cli) -> None:
    """The changes of a key are told with the newest first."""
    cli.did("set", "k", "1", "--writer", "me")
    cli.did("set", "other", "1")
    cli.did("delete", "k", "--yes")
    cells = [line.split("\t") for line in cli.did("history", "k").out.splitlines()]
    assert [row[1:] for row in cells] == [["deleted", "3", "k", "cli"], ["set", "1", "k", "me"]]
    changes = cli.did("history", "k", "--json", "--limit", "1").json["changes"]
    assert [(change["op"], change["version"]) for change in changes] == [("deleted", 3)]
