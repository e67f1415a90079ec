"""The overview: figures of the last hour, and what needs a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from holdfast.edges.monitoring.metrics import KEPT_POINTS, Metrics, MetricTotals, RecentMetrics, percentile
from tests.console.visiting import log_in, page

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

    def hour(self) -> RecentMetrics:
        """An hour of these figures."""
        return RecentMetrics(cast("Metrics", self), lambda: self.now)


def test_a_point_is_what_happened_since_the_last() -> None:
    """Counts are differences, gauges are as they are, and the figures since the last look are shown too."""
    figures = Figures()
    hour = figures.hour()
    figures.now = 10_000
    figures.seen = msgspec.structs.replace(
        START, durations=[98, 1, 1], errors=2, commits=4, commands=9, lag=0.5
    )
    hour.record()
    figures.now = 16_000
    figures.seen = msgspec.structs.replace(figures.seen, durations=[98, 4, 1], waiting=7)
    first, last = hour.shown()
    assert (first["requests"], first["errors"], first["commits"], first["commands"]) == (100, 2, 4, 9)
    assert (first["p50"], first["p99"], first["lag"]) == (0.01, 0.1, 0.5)
    assert (last["requests"], last["seconds"], last["errors"], last["waiting"]) == (3, 6.0, 0, 7)
    figures.now = 17_000
    hour.record()
    assert len(hour.shown()) == 2


def test_an_hour_is_kept() -> None:
    """The oldest points give way, so that memory is bounded."""
    figures = Figures()
    hour = figures.hour()
    for number in range(KEPT_POINTS + 5):
        figures.now = number * 10_000
        hour.record()
    assert [hour.shown()[0]["at"], len(hour.shown())] == [50_000, KEPT_POINTS]


def test_a_percentile_is_the_bound_of_its_bucket() -> None:
    """A percentile is the bound of its bucket; without requests there is none."""
    assert percentile([0, 0, 0], (1.0, 2.0), 0.5) is None
    assert percentile([1, 1, 0], (1.0, 2.0), 0.5) == 1.0
    assert percentile([1, 1, 98], (1.0, 2.0), 0.99) == 2.0


async def test_the_overview_of_an_operator(here: Served) -> None:
    """It has the health of each part, namespaces with their quotas, and what needs a person, with a link."""
    await here.store.set_policy("kv/trivia", {"quota_keys": 2, "quota_bytes": 100_000, "audit": True})
    for key in "ab":
        assert (await here.ask("PUT", f"/v1/kv/trivia/{key}", 1)).status_code == 200
    lost = {"key": "c", "value": 1, "request_id": "lost"}
    await here.call("/v1/kv/other:escalate", verb="set", request=lost, error_code="TIMEOUT", attempts=3)
    await here.store.semantic("acme", "web").set("plan", 1)
    found = await page(here, "/")
    assert (found["health"]["ready"], found["health"]["store"]) == (True, "ok")
    assert found["totals"]["keys"] == 3
    trivia = next(one for one in found["namespaces"] if one["namespace"] == "kv/trivia")
    assert (trivia["quota_bytes"], trivia["quota_keys"], trivia["audit"]) == (100_000, 2, True)
    audited = {one["namespace"]: one["audit"] for one in found["namespaces"]}
    assert (audited["semantic/acme/web"], audited["kv/other"]) == (True, False)
    told = {one["text"]: one["href"] for one in found["attention"]}
    assert told == {
        "kv/trivia uses 100% of its quota of keys": "/ui/kv/trivia",
        "kv/other has 1 dead letter": "/ui/inbox",
    }


async def test_the_overview_of_a_plugin(closed: Served) -> None:
    """A plugin's token sees its own namespaces, and nothing of the service or of others."""
    await closed.store.kv("trivia").set("a", 1)
    await closed.store.kv("other").set("a", 1)
    made = await closed.store.tokens().create(plugin="trivia")
    await log_in(closed, token=made.token)
    found = await page(closed, "/")
    assert (found["health"], "hour" in found, "errors" in found) == (None, False, False)
    assert {one["namespace"] for one in found["namespaces"]} == {"kv/trivia", "table/trivia", "blob/trivia"}
    assert "other" not in str(found["namespaces"])
