"""Metrics of many plugins: the busiest have labels of their own, the rest count together, nothing goes down.

A scrape is read as Prometheus reads it. The stopwatch is the test's own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.edges.intake.request_log import Operation
from holdfast.edges.monitoring import counters, metrics
from holdfast.edges.monitoring.counters import OTHER, PluginLabels
from holdfast.edges.monitoring.metrics import RANKING, VERBS, Metrics
from holdfast.engines.memory import MemoryEngine
from holdfast.rows import Namespace
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.unmeasured

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """Metrics that a test counts with and looks at, a minute apart if it likes."""

    def __init__(self, store: Store, most: int) -> None:
        self._now = 0.0
        self.store = store
        self.metrics = Metrics("m", store, most_plugins=most, ticks=lambda: self._now)

    def count(self, plugin: str, verb: str = "get", *, times: int = 1, code: str | None = None) -> None:
        """Have requests of a plugin answered."""
        for _ in range(times):
            self.metrics.operation(Operation("plugin", plugin, f"kv/{plugin}", verb, 0.003, False, code))

    def pass_a_minute(self) -> None:
        """Have the next scrape look who is busy."""
        self._now += RANKING

    async def counters(self) -> Series:
        """Every counter, and the counts and buckets of every histogram."""
        text = (await self.metrics.exposition()).decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            if family.type in ("counter", "histogram") and family.name.startswith("m_")
            for sample in family.samples
        }

    async def plugins(self) -> dict[str, float]:
        """How many gets are shown of each plugin; after that the labels are given anew."""
        self.pass_a_minute()
        found = await self.counters()
        return {dict(of)["plugin"]: value for (name, of), value in found.items() if name == "m_kv_get_total"}


@pytest.fixture
async def at() -> AsyncIterator[Scraped]:
    """Metrics with three labels for plugins."""
    async with Store(MemoryEngine(), reap=False) as store:
        yield Scraped(store, 3)


@pytest.mark.parametrize("number", [1_000, 10_000])
async def test_a_scrape_of_many_plugins_is_small(number: int) -> None:
    """A scrape has less than a megabyte and 12,000 lines by default, for any number of plugins."""
    engine = MemoryEngine()
    async with Store(engine, reap=False) as store:
        at = Scraped(store, counters.MOST_PLUGINS)
        for plugin in (f"plugin-{n:05}" for n in range(number)):
            for verb in ("get", "set", "delete", "list", "incr", "set_many"):
                at.count(plugin, verb)
            at.count(plugin, "set", code="VERSION_CONFLICT")
            engine._namespaces[f"kv/{plugin}"] = Namespace(name=f"kv/{plugin}", keys=1)
        text = await at.metrics.exposition()
    assert len(text) < 1_000_000
    assert text.count(b"\n") < 12_000
    for shown in ("kv_get_total", "kv_keys_total"):
        assert f'\nm_{shown}{{plugin="OTHER"}} {number - 100}.0\n'.encode() in text


async def test_the_lines_of_one_plugin_are_bounded(at: Scraped) -> None:
    """What a plugin costs at the most is bounded too: 12 lines for each verb, and a few."""
    before = (await at.metrics.exposition()).count(b"\n")
    for verb in VERBS:
        at.count("a", verb)
    assert (await at.metrics.exposition()).count(b"\n") - before <= 12 * len(VERBS)


async def test_the_busiest_have_labels(at: Scraped) -> None:
    """Who asks most in a minute has a label in the next, also if others were there first."""
    for plugin in ("early1", "early2", "early3"):
        at.count(plugin)
    at.count("busy", times=100)
    at.count("busier", times=200)
    assert await at.plugins() == {"early1": 1, "early2": 1, "early3": 1, OTHER: 300}
    at.count("busy")
    at.count("busier")
    at.count("early1")
    assert await at.plugins() == {"early3": 1, "busy": 1, "busier": 1, OTHER: 301}


async def test_a_plugin_that_pauses_keeps_its_label_for_a_while(at: Scraped) -> None:
    """A label is lost to somebody who is clearly busier, not to everybody who asks for something."""
    for plugin in ("a", "b", "c"):
        at.count(plugin, times=100)
    for _ in range(5):
        at.count("d", times=5)
        assert set(await at.plugins()) == {"a", "b", "c", OTHER}
    at.count("d", times=50)
    await at.plugins()
    at.count("d")
    assert len(set(await at.plugins()) & {"a", "b", "c"}) == 2


async def test_figures_go_on_when_a_label_comes_back(at: Scraped) -> None:
    """A plugin that lost its label and got it again goes on from where it was."""
    for plugin in ("a", "b", "c"):
        at.count(plugin, times=20)
    at.count("a", code="BUSY", times=7)
    for _ in range(4):
        for plugin in ("b", "c", "d"):
            at.count(plugin, times=100)
        shown = await at.plugins()
    assert "a" not in shown
    for _ in range(3):
        at.count("a", times=300)
        shown = await at.plugins()
    assert shown["a"] == 27 + 2 * 300  # what it asked for before it had its label again is among the others
    found = await at.counters()
    assert found["m_kv_errors_total", frozenset({("plugin", "a"), ("error_code", "BUSY")})] == 7


async def test_no_series_decreases_while_labels_change(at: Scraped) -> None:
    """Over hours of changing labels no series decreases, and what all grew by is what happened."""
    dice, grown, asked = random.Random(7), 0.0, 0
    seen: Series = {}
    for _ in range(25):
        for _ in range(4):
            plugin, times = f"p{dice.randrange(8)}", dice.choice((1, 30, 90))
            at.count(plugin, dice.choice(("get", "set")), times=times, code=dice.choice((None, "BUSY")))
            asked += times
        at.pass_a_minute()
        for series, value in (await at.counters()).items():
            assert value >= seen.get(series, 0.0), series
            if series[0] == "m_requests_total":
                grown += value - seen.get(series, 0.0)
            seen[series] = value
        whole = sum(value for (name, _), value in seen.items() if name == "m_request_duration_seconds_count")
        assert whole == asked
    assert grown == asked


async def test_figures_of_former_plugins_are_bounded(at: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many plugins have had labels, figures of a bounded number are kept; sums of all stay right."""
    monkeypatch.setattr(metrics, "FORMER", 5)
    for number in range(20):
        at.count(f"p{number}", times=40, code="BUSY")
        await at.plugins()
    assert len(at.metrics._durations._former) == 5
    assert len({plugin for (plugin, _), _ in at.metrics._errors.items()}) <= 3 + 5 + 1
    whole = (await at.counters())["m_request_duration_seconds_count", frozenset({("verb", "get")})]
    assert whole == 20 * 40


def test_counts_of_unlabelled_plugins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who comes under ever new names hides nobody who is busy, and fills no memory."""
    monkeypatch.setattr(counters, "WATCHED", 50)
    names = PluginLabels(1)
    assert names.of("first") == "first"
    for number in range(5_000):
        names.heard(f"p{number}")
        if number % 5 == 0:
            names.heard("busy")
        assert len(names._heard) <= 50
    assert names.rank({}) == [("first", "busy")]
    assert names.of("busy") == "busy"
    assert names.of("first") == OTHER


async def test_operators_take_no_label(at: Scraped) -> None:
    """Operators and callers whom nobody knows are shown beside the plugins."""
    for plugin in ("a", "b", "c", "d"):
        at.count(plugin)
    at.metrics.operation(Operation("admin", "OPERATOR", "", "nonsense", 0.1, True, "INVALID_SUBJECT"))
    at.metrics.operation(Operation("", "", "", "", 0.0, False, "INVALID_SUBJECT"))
    found = await at.counters()
    shown = {dict(of)["plugin"] for name, of in found if name == "m_kv_errors_total"}
    assert shown == {"OPERATOR", "UNKNOWN"}
    assert await at.plugins() == {"a": 1, "b": 1, "c": 1, OTHER: 1}
