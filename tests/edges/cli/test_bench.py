"""`holdfast bench`: what it tells, and what it leaves behind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.cli.commands.bench import PLUGIN, figures

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli


def test_it_measures_every_kind_of_work_and_leaves_no_key(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets, gets and mixed work are told in turn; other keys are as before and none of its own is left."""
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    cli.did("set", "bench:1", "1", "--plugin", PLUGIN)
    found = cli.did("bench", "--seconds", "0.05", "--in-flight", "4", "--keys", "20", "--json").json[
        "results"
    ]
    assert [one["work"] for one in found] == ["set", "get", "mixed"]
    for one in found:
        assert one["calls"] > 0
        assert one["errors"] == {}
        assert one["per_second"] == pytest.approx(one["calls"] / one["seconds"], rel=0.02)
        assert one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"] <= one["p99_9_ms"]
    assert cli.did("list", "--plugin", PLUGIN).out == "bench:1\n"


def test_it_uses_the_plugin_that_is_named(cli: Cli) -> None:
    """Where credentials are good for one plugin only, that one is measured; a row is a line of cells."""
    cells = cli.did("bench", "set", "--seconds", "0.01", "--in-flight", "1", "--keys", "1").out.split("\t")
    assert cells[:2] == ["set", "1"]
    assert len(cells) == 8
    assert "kv/jobs" in cli.did("stats").out


@pytest.mark.parametrize(
    "arguments",
    [("--seconds", "0"), ("--in-flight", "0"), ("--in-flight", "1.5"), ("--keys", "0"), ("nonsense",)],
)
def test_what_makes_no_sense_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    """A number out of range, or work that there is not, is exit code 2 before anything is written."""
    assert cli("bench", *arguments).code == 2


def test_refusals_are_counted(cli: Cli) -> None:
    """A store that refuses some calls is told with how many and why, and the rest is measured."""
    assert cli("namespace", "set", "kv/jobs", "--rate-limit", "3").code == 0
    [found] = cli.did("bench", "set", "--seconds", "0.1", "--in-flight", "4", "--keys", "1", "--json").json[
        "results"
    ]
    assert found["errors"]["RATE_LIMITED"] > 0


def test_nothing_has_no_latency() -> None:
    """When every call was refused there are no latencies, rather than good ones."""
    found = figures("set", 1, 2.0, [], Counter({"BUSY": 3}))
    assert (found.calls, found.per_second, found.p50_ms, found.errors) == (0, 0.0, None, {"BUSY": 3})
