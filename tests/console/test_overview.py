"""The overview: figures of an hour, a day and a week, quotas, and what needs attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from holdfast.edges.console.overview import nearest_quota
from holdfast.edges.monitoring.metrics import RANGES, Metrics, MetricTotals, RecentMetrics, percentile
from tests.console.visiting import log_in, page, refused

if TYPE_CHECKING:
    from tests.edges.http.ground import Served

START = MetricTotals(
    bounds=(0.01, 0.1), durations=[0, 0, 0], errors=0, commits=0, commands=0, waiting=0, under_way=0, lag=0.0
)


class Figures:
    """Metrics that show what a test sets."""

    def __init__(self) -> None:
        self.seen = START
        self.now = 0

    def totals(self) -> MetricTotals:
        """What the metrics show now."""
        return self.seen

    def recent(self) -> RecentMetrics:
        """What is kept of these figures."""
        return RecentMetrics(cast("Metrics", self), lambda: self.now)


def test_a_point_is_what_happened_since_the_last() -> None:
    """Counts are differences, gauges are as they are, and the figures since the last look are shown too."""
    figures = Figures()
    recent = figures.recent()
    figures.now = 10_000
    figures.seen = msgspec.structs.replace(
        START, durations=[98, 1, 1], errors=2, commits=4, commands=9, lag=0.5
    )
    recent.record()
    figures.now = 16_000
    figures.seen = msgspec.structs.replace(figures.seen, durations=[98, 4, 1], waiting=7)
    shown = recent.shown()
    assert (shown["requests"], shown["errors"], shown["seconds"]) == ([100, 3], [2, 0], [10, 6])
    assert (shown["commits"], shown["commands"]) == ([4, 0], [9, 0])
    assert (shown["p50"], shown["p99"]) == ([0.01, 0.1], [0.1, 0.1])
    assert (shown["lag"], shown["waiting"]) == ([0.5, 0.5], [0, 7])
    assert (shown["begin"], shown["at"]) == (10_000, [0, 6])
    figures.now = 17_000
    recent.record()
    assert len(recent.shown()["at"]) == 2


def test_an_hour_a_day_and_a_week_are_kept() -> None:
    """The oldest points give way, so that memory is bounded; the longer the range, the wider its points."""
    figures = Figures()
    recent = figures.recent()
    for number in range(8 * 24 * 360):
        figures.now = (number + 1) * 10_000
        counts = [number + 1, 0, 0]
        figures.seen = msgspec.structs.replace(START, durations=counts, waiting=7 * (number % 360 == 5))
        recent.record()
    for name, (step, kept) in RANGES.items():
        shown = recent.shown(name)
        assert (len(shown["at"]), shown["step"], shown["span"]) == (kept, step, step * kept), name
        assert shown["at"][-1] == step * (kept - 1), name
        assert set(shown["requests"]) == {step // 10}, name
    assert set(recent.shown("week")["waiting"]) == {7}, "a gauge has its peak"


def test_a_percentile_is_the_bound_of_its_bucket() -> None:
    """A percentile is the bound of its bucket; without requests there is none, and it may be over all."""
    assert percentile([0, 0, 0], (1.0, 2.0), 0.5) is None
    assert percentile([1, 1, 0], (1.0, 2.0), 0.5) == 1.0
    assert percentile([1, 1, 98], (1.0, 2.0), 0.99) == math.inf
    figures = Figures()
    recent = figures.recent()
    figures.now, figures.seen = 10_000, msgspec.structs.replace(START, durations=[0, 0, 1])
    recent.record()
    assert recent.shown()["p99"] == ["over"]


@pytest.mark.parametrize(
    ("policy", "quota"),
    [
        ({}, None),
        ({"quota_keys": 8}, ("keys", 8, 0.5)),
        ({"quota_keys": 8, "quota_bytes": 125}, ("bytes", 125, 0.8)),
        ({"quota_keys": 4, "quota_bytes": 125}, ("keys", 4, 1.0)),
        ({"quota_bytes": 125, "journal_retention": 60}, ("bytes", 125, 2.0)),
        ({"quota_keys": 0}, ("keys", 0, 1.0)),
    ],
)
def test_the_nearest_quota_is_shown(policy: dict[str, Any], quota: tuple[str, int, float] | None) -> None:
    """Of the quotas of keys and bytes, the one that is used most. A journal that gives way does not count."""
    stats = {"keys": 4, "kept_bytes": 250, "parts": {"journal": 150}, "policy": policy, "defaults": {}}
    nearest = nearest_quota(stats)
    assert (nearest and (nearest["of"], nearest["most"], nearest["share"])) == quota
    if not policy:
        assert nearest_quota(stats | {"defaults": {"quota_bytes": 1_000}}) == {
            "of": "bytes",
            "used": 100,
            "most": 1_000,
            "share": 0.1,
        }


async def test_the_overview_of_an_operator(here: Served) -> None:
    """It has the health of each part, namespaces with their quotas, and what needs attention, worst first."""
    await here.store.set_policy("kv/trivia", {"quota_keys": 2, "quota_bytes": 100_000, "audit": True})
    for key in "ab":
        assert (await here.ask("PUT", f"/v1/kv/trivia/{key}", 1)).status_code == 200
    lost = {"key": "c", "value": 1, "request_id": "lost"}
    await here.call("/v1/kv/other:escalate", verb="set", request=lost, error_code="TIMEOUT", attempts=3)
    await here.store.set_policy("kv/other", {"quota_keys": 5})
    for key in "abcd":
        await here.store.kv("other").set(key, 1)
    await here.store.semantic("acme", "web").set("plan", 1)
    found = await page(here, "/")
    assert (found["health"]["ready"], found["health"]["store"]) == (True, "ok")
    assert (found["totals"]["keys"], found["recent"]["range"]) == (7, "hour")
    assert found["addresses"]["nats"] == here.bus
    trivia = next(one for one in found["namespaces"] if one["namespace"] == "kv/trivia")
    assert (trivia["quota"]["of"], trivia["quota"]["share"], trivia["audit"]) == ("keys", 1.0, True)
    audited = {one["namespace"]: one["audit"] for one in found["namespaces"]}
    assert (audited["semantic/acme/web"], audited["kv/other"]) == (True, False)
    matters = [(one["severity"], one["text"], one["href"]) for one in found["attention"]]
    assert matters == [
        ("critical", "kv/trivia uses 100 % of its quota of keys", "/ui/kv/trivia"),
        ("warning", "kv/other uses 80 % of its quota of keys", "/ui/kv/other"),
        ("warning", "kv/other has 1 dead letter", "/ui/inbox?namespace=kv/other&tab=letters"),
    ]
    assert [action["label"] for action in found["attention"][2]["actions"]] == ["Retry", "Look"]
    assert (await page(here, "/?range=week"))["recent"]["range"] == "week"
    assert (await refused(here, "/?range=year"))[0] == 400


async def test_the_overview_of_a_plugin(closed: Served) -> None:
    """A plugin's token sees its own namespaces, and nothing of the service or of others."""
    await closed.store.kv("trivia").set("a", 1)
    await closed.store.kv("other").set("a", 1)
    made = await closed.store.tokens().create(plugin="trivia")
    await log_in(closed, token=made.token)
    found = await page(closed, "/")
    assert (found["health"], "recent" in found, "errors" in found) == (None, False, False)
    assert "addresses" not in found
    assert {one["namespace"] for one in found["namespaces"]} == {"kv/trivia", "table/trivia", "blob/trivia"}
    assert "other" not in str(found["namespaces"])
